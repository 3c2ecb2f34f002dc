"""Topics: changes of one (settings, trim, its end), each said before it is done; a list of many."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.api.web_console.conftest import TOPIC, OpenPage
from tests.api.web_console.keyboard import tab_to
from tests.api.web_console.test_screens import SCREENS, SHOWING
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="package")

MAX_OPEN_MS = 1000
"""The time until a screen of a service of 1,000 topics is shown, at the best of some."""

MAX_OPEN_RATIO = 3
"""The time until a page of 1,000 topics is on the screen, by that of a page of one: both are the
best of some, and what else runs slows down both."""

OPENED = 5

FIGURES_MS = 30_000
"""The time for figures, which brokers keep for a while, on a busy machine."""

NOTE_SHOWN = """new MutationObserver(() => {
    if (document.querySelector(%s)) window.shownMs ??= performance.now();
}).observe(document, {subtree: true, childList: true})"""
"""A script that notes when something is in the page."""


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


async def test_topics_have_figures_and_are_sorted_by_them(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    for name, messages, settings in (
        ("a-few", 1, {}),
        ("b-many", 30, {"retention_ms": 7_200_000, "retention_bytes": 5 * 1024**2}),
    ):
        topic = f"/v1/topics/sorted/{name}"
        (await http.put(topic, json=settings)).raise_for_status()
        body = {"start": "earliest"}
        (await http.put(f"{topic}/subscriptions/s", json=body)).raise_for_status()
        batch = {"messages": [{"text": "x" * 100}] * messages}
        (await http.post(f"{topic}/messages:batch", json=batch)).raise_for_status()
    (owner,) = (await http.get("/v1/topics/sorted/b-many/owners")).json()["owners"]
    async with open_page("?screen=topics&contains=sorted/") as page:
        rows = page.locator("tbody tr")
        few, many = re.compile("^sorted/a-few"), re.compile("^sorted/b-many")
        await expect(rows).to_have_text([few, many])
        cells = page.get_by_role("row", name="sorted/b-many").locator("td")
        # Written, read, backlog, messages, size, retention, owners
        await expect(cells.nth(2)).to_have_text("30", timeout=FIGURES_MS)
        await expect(cells.nth(3)).to_have_text("30", timeout=FIGURES_MS)
        await expect(cells.nth(4)).to_have_text(re.compile(r"^[\d.]+ (B|KiB)$"))
        await expect(cells.nth(5)).to_have_text("2 hours or 5.0 MiB")
        await expect(cells.nth(6)).to_have_text(owner["broker_id"])
        for figure in ("backlog_messages", "messages", "size"):
            await page.get_by_label("Sorted by").select_option(figure)
            await expect(rows).to_have_text([many, few], timeout=FIGURES_MS)
            assert f"sort={figure}" in page.url
            await page.get_by_label("Sorted by").select_option("name")
            await expect(rows).to_have_text([few, many], timeout=FIGURES_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def thousand_topics(service: str) -> None:
    async with http_client(service) as http:
        for number in range(1000):
            (await http.put(f"/v1/topics/many/t{number:04}")).raise_for_status()


@pytest.mark.thorough
@pytest.mark.usefixtures("thousand_topics")
@pytest.mark.parametrize("query", SHOWING)
async def test_each_screen_opens_at_once_where_there_are_a_thousand_topics(
    open_page: OpenPage, query: str
) -> None:
    took: list[float] = []
    async with open_page("?screen=nothing") as page:
        await page.add_init_script(NOTE_SHOWN % json.dumps(SCREENS[query]))
        root = page.url.removesuffix("?screen=nothing")
        while len(took) < OPENED and min(took, default=MAX_OPEN_MS) >= MAX_OPEN_MS:
            await page.goto(root + query)
            await page.wait_for_selector(SCREENS[query])
            took.append(await page.evaluate("shownMs"))
    print({query: took})  # noqa: T201 - measured
    assert min(took) < MAX_OPEN_MS, took


@pytest.mark.thorough
@pytest.mark.usefixtures("thousand_topics")
async def test_a_thousand_topics_are_there_at_once(open_page: OpenPage) -> None:
    of_one, of_many = f"?screen=topics&contains={TOPIC}", "?screen=topics&contains=many/"
    async with open_page(of_many) as page:
        await page.add_init_script(NOTE_SHOWN % json.dumps("tbody tr"))
        root = page.url.removesuffix(of_many)
        took: dict[str, list[float]] = {of_one: [], of_many: []}
        for _ in range(OPENED):
            for query, times_ms in took.items():
                await page.goto(root + query)
                await page.wait_for_selector("tbody tr")
                times_ms.append(await page.evaluate("shownMs"))
        assert await page.locator("tbody tr").count() == 50
        assert "of 1,000" in await page.inner_text("nav.pages")
        print({query: min(times_ms) for query, times_ms in took.items()})  # noqa: T201 - measured
        assert min(took[of_many]) <= MAX_OPEN_RATIO * min(took[of_one]), took
        await page.get_by_label("Name contains").focus()
        await page.keyboard.press("End")
        await page.keyboard.type("t09")
        await expect(page.locator("nav.pages")).to_contain_text("of 100")
        await page.get_by_role("link", name="next").press("Enter")
        await expect(page.locator("nav.pages")).to_contain_text("51 to 100 of 100")
