"""Changes of a topic: settings, trim, its end; each is said before it is done."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.api.web_console.conftest import OpenPage
from tests.api.web_console.keyboard import tab_to

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def core(modules: Page, expression: str) -> Any:
    code = f"async () => {{ const m = await import('./topic_core.js'); return {expression} }}"
    return await modules.evaluate(code)


async def test_settings_are_sent_as_what_they_are(modules: Page) -> None:
    texts = ["", " ", "unlimited", "true", "5", "1.5", "refuse", "1e9"]
    found = await core(modules, f"{texts}.map(m.settingOf)")
    assert found == [None, None, "unlimited", True, 5, 1.5, "refuse", "1e9"]


@pytest.mark.parametrize(
    ("partition", "text", "mistake"),
    [
        ("9", "5", "The partitions are not known yet."),
        ("0", "five", "\u201cfive\u201d is no offset."),
        ("0", "11", "Partition 0 ends at 10, before 11."),
        ("0", "4", "Partition 0 begins at 4 already."),
    ],
)
async def test_a_trim_that_would_do_nothing_is_a_mistake(
    modules: Page, partition: str, text: str, mistake: str
) -> None:
    offsets = "[{partition: 0, earliest_offset: 4, tail_offset: 10}]"
    found = await core(modules, f"m.trimOf('{partition}', '{text}', {offsets})")
    assert found == {"mistake": mistake}


async def test_a_topic_is_changed_trimmed_and_ended_by_keyboard(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = "/v1/topics/changes/orders"
    (await http.put(topic)).raise_for_status()
    for text in ("one", "two", "three"):
        (await http.post(f"{topic}/messages", content=text)).raise_for_status()
    async with open_page("?screen=topic&topic=changes/orders") as page:
        confirm = page.get_by_role("group", name="Confirm the change")
        await page.locator("summary", has_text="Settings").press("Enter")
        await page.locator("select[name=setting]").select_option("retention_bytes")
        await tab_to(page, "value")
        await page.keyboard.type("1000000")
        await page.keyboard.press("Enter")
        await expect(confirm).to_contain_text("retention_bytes changes from unlimited to 1000000.")
        await page.get_by_role("button", name="Change now").press("Enter")
        await expect(page.get_by_text("Changed.")).to_be_visible()
        await expect(page.get_by_text("977 KiB")).to_be_visible()
        await page.get_by_text("Trim a partition").press("Enter")
        await page.get_by_label("First offset to keep").fill("2")
        await page.keyboard.press("Enter")
        await expect(confirm).to_contain_text("2 messages of partition 0, those before 2")
        await page.get_by_role("button", name="Trim for good").press("Enter")
        await expect(page.get_by_text("Partition 0 begins at 2.")).to_be_visible()
        await page.get_by_text("End or delete this topic").press("Enter")
        end = page.get_by_role("button", name="End for good")
        await expect(end).to_be_disabled()
        await page.get_by_label("Name", exact=True).fill("changes/orders")
        await end.press("Enter")
        await expect(
            page.get_by_text("The topic has ended. Partition 0 ends at 3.")
        ).to_be_visible()
    refused = await http.post(f"{topic}/messages", content="four")
    assert refused.json()["code"] == "topic_terminated"
