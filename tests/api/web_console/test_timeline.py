"""The timeline of events: newest first, narrowed by kind, topic and time, page by page."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, Route, expect

from fencelog.api.admin.events.log import EVENTS_PATH
from fencelog.broker.cluster.events_core import EventKind
from tests.api.web_console.conftest import OpenPage, answer_part, reads
from tests.api.web_console.keyboard import tab_to
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="package")


def event(offset: int, kind: str, summary: str, **other: Any) -> dict[str, Any]:
    return {
        "offset": offset,
        "time_us": 1_000_000 * offset,
        "kind": kind,
        "broker_id": "broker-2",
        "topic": "shop/orders",
        "partition": 3,
        "epoch": 7,
        "ledger_id": None,
        "from": None,
        "detail": {},
        "summary": summary,
        **other,
    }


EVENTS = [
    event(41, "takeover", "shop/orders/3 taken over by broker-2 from broker-1 <b>"),
    event(42, "drain", "broker-2 drains", topic=None, partition=None),
]


async def test_events_are_listed_narrowed_and_paged(open_page: OpenPage) -> None:
    asked: list[dict[str, str]] = []

    async def answer(route: Route) -> None:
        together = parse_qs(urlsplit(route.request.url).query)["path"]
        (path,) = (each for each in together if EVENTS_PATH in each)
        query = parse_qs(urlsplit(path).query)
        asked.append({name: value for name, (value,) in query.items()})
        kind, before = asked[-1].get("kind"), int(asked[-1].get("before", 99))
        events = [one for one in EVENTS if kind in (None, one["kind"]) and one["offset"] < before]
        older = 41 if before == 99 and kind is None else None
        body = {"events": events, "older": older, "newer": 43}
        await answer_part(route, EVENTS_PATH, body)

    async with open_page("?screen=nothing") as page:
        await page.route(reads(EVENTS_PATH), answer)
        await page.get_by_role("link", name="Cluster").press("Enter")
        rows = page.get_by_role("region", name="Events").locator("tbody tr")
        await expect(rows).to_have_count(2)
        assert asked[0] == {"limit": "100"}
        await expect(rows.nth(0)).to_contain_text("broker-2 drains")
        await expect(rows.nth(1)).to_contain_text("1970-01-01 00:00:41Takeover")
        await expect(rows.nth(1)).to_contain_text("taken over by broker-2 from broker-1 <b>")
        link = rows.nth(1).get_by_role("link")
        await expect(link).to_have_text("shop/orders, partition 3")
        await page.get_by_label("Kind").select_option("takeover")
        await expect(rows).to_have_count(1)
        assert asked[-1]["kind"] == "takeover"
        await page.get_by_label("Topic (namespace/topic)").fill("shop/orders")
        await page.get_by_label("Since (UTC)").fill("1970-01-01 00:00:09")
        await page.get_by_label("Until (UTC)").fill("1970-01-02 00:00:00")
        await page.keyboard.press("Enter")
        about = "Of shop/orders, since 1970-01-01 00:00:09, until 1970-01-02 00:00:00."
        await expect(page.get_by_text(about)).to_be_visible()
        await until(lambda: "until" in asked[-1])  # The words come first, then the request.
        assert asked[-1]["until"] == "86400000000"
        assert asked[-1]["topic"] == "shop/orders"
        assert asked[-1]["since"] == "9000000"
        await page.reload()  # The address is the state.
        await expect(rows).to_have_count(1)
        assert asked[-1]["since"] == "9000000"
        await page.get_by_role("button", name="Show all").press("Enter")
        await page.get_by_label("Kind").select_option("")
        await expect(rows).to_have_count(2)
        await tab_to(page, "older")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nothing older is kept")).to_be_visible()
        assert asked[-1]["before"] == "41"
        await page.get_by_role("link", name="the newest").press("Enter")
        await expect(rows).to_have_count(2)


async def test_every_kind_has_a_word(modules: Page) -> None:
    code = "async () => Object.keys((await import('./timeline.js')).KINDS)"
    assert sorted(await modules.evaluate(code)) == sorted(EventKind)


async def test_a_time_that_is_none_is_said(open_page: OpenPage) -> None:
    async with open_page("?screen=cluster") as page:
        await page.get_by_label("Since (UTC)").fill("yesterday")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("“yesterday” is no time")
