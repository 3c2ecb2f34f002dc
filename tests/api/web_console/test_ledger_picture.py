"""The ledger chain as it is drawn: each thing that it shows is in the picture, at its place."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.api.web_console.conftest import TOPIC, OpenPage, answer_part, reads
from tests.api.web_console.test_ledger_picture_core import answer

pytestmark = pytest.mark.asyncio(loop_scope="package")

PARTITION = f"?screen=partition&topic={TOPIC}&partition=0"

CURSOR = {
    "subscription": "slow",
    "durable": True,
    "acked_to": 50,
    "backlog_messages": 60,
    "backlog_bytes": 6000,
    "outstanding": 0,
    "holes": 0,
}

PLACES = """() => {
    const of = (each, ...names) => names.map((name) => Number(each.getAttribute(name)));
    const boxes = [...document.querySelectorAll('.seg .box')].map((each) => of(each, 'x', 'width'));
    const lines = [...document.querySelectorAll('svg > line[opacity]')].map((each) =>
        [each.getAttribute('stroke'), ...of(each, 'x1')]);
    const bars = [...document.querySelectorAll('svg rect:has(> title)')].map((each) =>
        [each.textContent, each.getAttribute('fill'), ...of(each, 'x', 'width')]);
    const cursors = [...document.querySelectorAll('svg rect[fill="var(--done)"]')].map((each) =>
        of(each, 'x', 'width'));
    return {boxes, lines: Object.fromEntries(lines), bars, cursors};
}"""
"""The places of what is drawn."""


async def whole(http: httpx.AsyncClient) -> dict[str, Any]:
    """A chain with everything that can be drawn: ledger 1 of broker a, in which b4 took the place
    of b2, which is gone; ledger 2 of broker b, which fenced it; what is trimmed; what is cut next;
    a subscription; a compacted view."""
    real: dict[str, Any] = (await http.get(f"/v1/topics/{TOPIC}/partitions/0/chain")).json()
    view = {"state": "ready", "messages": 7, "end_offset": 90}
    return real | answer() | {"subscriptions": [CURSOR], "compaction": real["compaction"] | view}


async def drawn(page: Page, view: dict[str, Any]) -> None:
    await page.route(reads("/chain"), lambda route: answer_part(route, "/chain", view))
    await page.goto(page.url.replace("?screen=nothing", PARTITION))
    await expect(page.locator(".seg")).to_have_count(2)


async def test_everything_is_in_the_picture_in_words(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    async with open_page("?screen=nothing") as page:
        await drawn(page, await whole(http))
        picture = page.get_by_role("figure", name="The ledger chain")
        for words in (
            "a \u00b7 epoch 1",
            "b \u00b7 epoch 2",
            "1970-01-01 00:00:02 b took over from a",
            "Ledger 1",
            "100 messages",
            "fenced, then closed",
            "\u2715 b2 gone",
            "missing",
            "trimmed: readable from 40",
            "tail 110: where the next message goes",
            "slow",
            "50 \u00b7 60 behind",
            "Compacted view",
            "7 messages; made from the log up to 90",
        ):
            await expect(picture.get_by_text(words).first).to_be_visible()
        facts = page.locator(".facts")
        await expect(facts).to_contain_text("Ownerb (epoch 2)")
        await expect(facts).to_contain_text(
            "Deleted nextledger 1 (up to offset 99), when slow has acknowledged it"
        )
        await expect(page.locator(".alert")).to_contain_text("b2 is gone")
        await page.unroute_all(behavior="ignoreErrors")


async def test_everything_is_at_its_place(open_page: OpenPage, http: httpx.AsyncClient) -> None:
    """Offsets are to scale: a ledger, a copy, a cursor and a line are where their offset is."""
    async with open_page("?screen=nothing") as page:
        await drawn(page, await whole(http))
        places = await page.evaluate(PLACES)
        (left, _), (second, width) = places["boxes"]
        of_one = (second - left) / 100
        assert width / of_one == pytest.approx(10)

        def at(offset: int) -> Any:
            return pytest.approx(left + offset * of_one)

        assert places["lines"] == {
            "var(--trim)": at(40),
            "var(--bad)": at(100),
            "var(--good)": at(110),
            "var(--o2)": at(100),
        }
        assert places["cursors"] == [[at(0), pytest.approx(50 * of_one)]]
        by_name = {name: rest for name, *rest in places["bars"]}
        assert len(by_name) == 9  # three copies of each of three fragments
        for name, fill, offset, length in (
            ("Ledger 1 on b2, from offset 0 on", "url(#gone)", 0, 50),
            ("Ledger 1 on b4, from about offset 50 on", "var(--copy)", 50, 50),
            ("Ledger 2 on b4, from offset 100 on", "var(--copy)", 100, 10),
        ):
            assert by_name[name] == [fill, at(offset), pytest.approx(length * of_one - 3)]
        await page.unroute_all(behavior="ignoreErrors")


async def test_a_click_on_a_segment_shows_its_ledger(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    async with open_page("?screen=nothing") as page:
        await drawn(page, await whole(http))
        await expect(page.locator("#ledger-title")).to_have_text("Ledger 2")
        await page.locator(".seg").first.click()
        await expect(page.locator("#ledger-title")).to_have_text("Ledger 1")
        panel = page.locator("section.panel")
        await expect(panel).to_contain_text("closed by a takeover (fenced in epoch 2)")
        await expect(panel).to_contain_text("Last confirmed entry49")
        fragments = panel.get_by_role("region", name="Fragments of ledger 1").locator("tbody tr")
        await expect(fragments).to_have_text(
            [re.compile("b1, \u2715 b2 \\(missing\\), b3$"), re.compile("b1, b4, b3$")]
        )
        entries = panel.get_by_role("region", name="Entries of ledger 1 on each bookie")
        for bookie, has in (("b1", "50"), ("b2", "25"), ("b3", "50"), ("b4", "25")):
            await expect(entries.get_by_role("row", name=bookie)).to_contain_text(has)
        missing = entries.get_by_role("row", name="b2")
        await expect(missing).to_contain_text("all, as far as is known")
        await page.unroute_all(behavior="ignoreErrors")
