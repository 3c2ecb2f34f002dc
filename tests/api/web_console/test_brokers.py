"""The brokers on the overview and on the cluster's screen: with the loads that they have now."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from tests.api.web_console.conftest import OpenPage, answer_part, reads

pytestmark = pytest.mark.asyncio(loop_scope="package")

ASKED = "/v1/admin/brokers"


async def test_a_load_that_is_published_is_not_shown_as_the_current_one(modules: Page) -> None:
    code = """async () => { const m = await import('./brokers_core.js');
        const published = ['a', 'b'].map((broker_id) => ({broker_id, draining: true,
            partitions: 9, in_bytes_per_s: 9, out_bytes_per_s: 9}));
        const asked = [{broker_id: 'a', partitions: 1, in_bytes_per_s: 2, out_bytes_per_s: 3}];
        return m.withLoads(published, asked).map((each) => Object.values(each)) }"""
    assert await modules.evaluate(code) == [["a", True, 1, 2, 3], ["b", True, None, None, None]]


@pytest.mark.parametrize("screen", ["overview", "cluster"])
async def test_the_current_load_of_each_broker_is_shown(
    open_page: OpenPage, http: httpx.AsyncClient, screen: str
) -> None:
    (broker,) = (await http.get(ASKED)).json()["brokers"]
    load = {"partitions": 77, "in_bytes_per_s": 5 * 1024, "out_bytes_per_s": 7 * 1024}
    body = {"brokers": [broker | load], "unanswered": []}
    async with open_page("?screen=nothing") as page:
        await page.route(reads(ASKED), lambda route: answer_part(route, ASKED, body))
        await page.get_by_role("link", name=screen.capitalize(), exact=True).press("Enter")
        cells = page.get_by_role("table", name="Brokers").locator("tbody td")
        for text in ("77", "5.0 KiB/s", "7.0 KiB/s"):
            await expect(cells.get_by_text(text, exact=True)).to_be_visible()
        await page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize(
    ("list_", "row"), [("topics", "tbody tr"), ("subscriptions", ".row[role=option]")]
)
async def test_figures_that_come_later_move_nothing(
    open_page: OpenPage, http: httpx.AsyncClient, list_: str, row: str
) -> None:
    path = f"/v1/admin/{list_}"
    whole: dict[str, Any] = (await http.get(path)).json()
    names = ("topic", "subscription", "partitions", "created_us")
    bare = [
        {name: value if name in names else None for name, value in each.items()} | {"brokers": []}
        for each in whole[list_]
    ]
    answers = [whole | {list_: bare, "unanswered": ["gone"]}]

    async def first_without(route: Route) -> None:
        if answers:
            await answer_part(route, path, answers.pop())
        else:
            await route.continue_()

    async with open_page("?screen=nothing") as page:
        await page.route(reads(path), first_without)
        await page.get_by_role("link", name=list_.capitalize(), exact=True).press("Enter")
        await expect(page.locator("[data-figures=some]")).to_contain_text("Figures of gone")
        places = f"[...document.querySelectorAll('{row}')].map((e) => e.getBoundingClientRect().y)"
        before = await page.evaluate(places)
        await expect(page.get_by_text("not known yet").last).to_be_visible()
        await expect(page.locator("[data-figures=all]")).to_be_visible()
        await expect(page.locator(row).get_by_text("not known yet")).to_have_count(0)
        assert before
        assert await page.evaluate(places) == before
        await page.unroute_all(behavior="ignoreErrors")
