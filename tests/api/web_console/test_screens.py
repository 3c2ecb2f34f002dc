"""Every screen in a browser: by keyboard alone, in both themes, without findings of axe, and what
it shows when there is nothing, or nothing answers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from playwright.async_api import Route, expect

from tests.api.web_console.conftest import (
    LOOKS,
    TOPIC,
    OpenPage,
    accessibility_findings,
    answer_part,
    cost_of_step,
    reads,
)
from tests.api.web_console.keyboard import active, tab_to
from tests.run_suite import thorough_but
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="package")

PARTITION = f"?screen=partition&topic={TOPIC}&partition=0"
SCREENS = {
    "": "tbody tr",
    "?screen=topics": "tbody tr",
    f"?screen=topic&topic={TOPIC}": "tbody tr",
    PARTITION: ".seg",
    f"?screen=messages&topic={TOPIC}&partition=0": ".row",
    "?screen=subscriptions": ".row[role=option]",
    f"?screen=subscriptions&topic={TOPIC}": ".row[role=option]",
    f"?screen=subscription&topic={TOPIC}&subscription=billing": "[aria-label=Partitions] tbody tr",
    "?screen=cluster": "tbody tr",
    "?screen=nothing": ".refused",
}
SHOWING = [query for query in SCREENS if "nothing" not in query]
FEW = ["", "?screen=topics", PARTITION]
"""Of those that show something, the ones that are enough unless tests are thorough."""

ELEMENTS = (
    *("console", "overview", "topics", "topic", "partition", "messages", "cluster"),
    *("subscriptions", "subscription", "troubles", "copyable", "timeline", "bookies", "append"),
)
"""All custom elements, without what their names begin with."""

FAILURE_SHOWN_MS = 3000

SETTLED_S = 0.4
"""The time after which a page has asked for all that it opens with."""

MAX_KEY_COST = 0.75
"""That of a key, see ``cost_of_step``: 50 ms where a table takes 67."""

PRESS_LEFT = """async (times) => {
    for (let n = 0; n < times; n += 1) {
        const before = document.activeElement;
        before.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true}));
        await new Promise((done) => { requestAnimationFrame(() => { setTimeout(done); }); });
        if (document.activeElement === before) throw new Error('the key has no effect');
    }
}"""


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("query", SCREENS)
async def test_axe_finds_nothing_and_no_width_scrolls_sideways(
    open_page: OpenPage, axe: str, query: str, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 900}
    async with open_page(query, color_scheme=scheme, viewport=size) as page:
        await page.wait_for_selector(SCREENS[query])
        assert await accessibility_findings(page, axe) == []


@pytest.mark.parametrize("query", thorough_but(FEW, SHOWING))
async def test_a_screen_opens_with_one_request(open_page: OpenPage, query: str) -> None:
    """Whatever it asks for later is not needed: no part of it is loading when this one is
    answered."""
    async with open_page("?screen=nothing", expects=("Failed to load",)) as page:
        asked: list[str] = []
        at_opening: list[str] = []

        async def only_the_first(route: Route) -> None:
            asked.append(route.request.url)
            if len(asked) == 1:
                await asyncio.sleep(SETTLED_S)
                at_opening.extend(asked)
                await route.continue_()
            else:
                await route.abort()

        await page.route("**/v1/**", only_the_first)
        await page.goto(page.url.replace("?screen=nothing", query))
        await page.wait_for_selector(SCREENS[query])
        await expect(page.locator("[data-picture=loading]")).to_have_count(0)
        assert len(at_opening) == 1, at_opening


async def test_from_the_overview_to_a_ledger_by_keyboard(open_page: OpenPage) -> None:
    async with open_page() as page:
        await page.wait_for_selector("tbody tr")
        await page.keyboard.press("Tab")
        assert await active(page) == "To the content"
        await page.keyboard.press("g")
        await page.keyboard.press("t")
        await page.wait_for_selector("tbody tr th a")
        assert page.url.endswith("?screen=topics")
        await tab_to(page, TOPIC)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("tbody tr th a")
        await tab_to(page, "Partition 0")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".seg")
        await tab_to(page, "Ledger ")
        newest = await active(page)
        await page.keyboard.press("Home")
        first = await active(page)
        assert first.startswith("Ledger ")
        assert first != newest
        assert "offsets 0 to" in first
        chosen = first.split(",")[0]
        await expect(page.locator("#ledger-title")).to_have_text(chosen)
        assert f"ledger={chosen.removeprefix('Ledger ')}" in page.url
        await page.keyboard.press("End")
        assert await active(page) == newest
        await page.keyboard.press("ArrowLeft")
        assert await active(page) != newest
        await page.keyboard.press("Tab")
        assert not (await active(page)).startswith("Ledger ")


async def thousand_ledgers(http: httpx.AsyncClient) -> dict[str, Any]:
    """The newest 40 of 1,000 ledgers, four epochs, each ledger with two ensemble changes."""
    view: dict[str, Any] = (await http.get(f"/v1/topics/{TOPIC}/partitions/0/chain")).json()
    last = view["segments"][-1]
    fragments = [
        {"first_entry": 10 * n, "bookies": [f"b{(n + m) % 5}" for m in range(3)]} for n in range(3)
    ]
    segments = [
        last
        | {
            "ledger_id": 1000 + n,
            "base_offset": 96_000 + 100 * n,
            "end_offset": 96_100 + 100 * n,
            "epoch": 1 + n // 10,
            "entries": 30,
            "size": 10_000,
            "is_closed": n < 39,
            "is_written": n == 39,
            "last_publish_us": last["created_us"],
            "ledger": last["ledger"] | {"fragments": fragments},
        }
        for n in range(40)
    ]
    taken = {"broker_id": "a", "taken_us": last["created_us"], "from": "b"}
    return view | {
        "segments": segments,
        "takeovers": [taken | {"epoch": n} for n in range(1, 5)],
        "ledgers": 1000,
        "older": {"ledgers": 960, "epochs": 96, "to_offset": 96_000},
        "epoch": 4,
        "earliest_offset": 0,
        "tail_offset": 100_000,
    }


@pytest.mark.thorough
async def test_a_key_moves_along_a_thousand_ledgers_at_once(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    view = await thousand_ledgers(http)
    async with open_page("?screen=nothing") as page:
        await page.route(reads("/chain"), lambda route: answer_part(route, "/chain", view))
        await page.goto(page.url.replace("?screen=nothing", PARTITION))
        await expect(page.locator(".seg")).to_have_count(40)
        await expect(page.get_by_text("960 older ledgers")).to_be_visible()
        await page.locator(".seg[tabindex='0']").focus()
        assert 0 < await cost_of_step(page, PRESS_LEFT) <= MAX_KEY_COST
        await expect(page.locator("#ledger-title")).to_have_text("Ledger 1027")


async def test_a_closer_look_at_a_chain_and_the_whole_again_by_keyboard(
    open_page: OpenPage,
) -> None:
    async with open_page(PARTITION) as page:
        await page.wait_for_selector(".seg")
        whole = await page.locator(".seg").count()
        await page.locator(".seg[tabindex='0']").focus()
        newest = await active(page)
        await page.keyboard.press("+")
        await expect(page.locator(".seg")).to_have_count((whole + 1) // 2)
        assert await active(page) == newest
        assert "zoom=1" in page.url
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("-")
        await expect(page.locator(".seg")).to_have_count(whole)
        await page.get_by_role("button", name="Closer").press("Enter")
        await page.get_by_role("button", name="All", exact=True).press("Enter")
        await expect(page.locator(".seg")).to_have_count(whole)
        held = page.get_by_role("region", name="on each bookie")
        await expect(held.locator("tbody tr")).to_have_count(3)


async def test_the_address_is_the_state(open_page: OpenPage) -> None:
    async with open_page(PARTITION) as page:
        await page.wait_for_selector(".seg")
        await page.locator(".seg").first.focus()
        await page.keyboard.press("Enter")
        title = await page.inner_text("#ledger-title")
        await page.reload()
        await page.wait_for_selector(".seg")
        assert await page.inner_text("#ledger-title") == title
        await page.get_by_role("link", name="Messages").press("Enter")
        await page.wait_for_selector(".row")
        await page.go_back()
        await page.wait_for_selector(".seg")
        assert await page.inner_text("#ledger-title") == title


async def test_the_tail_moves_while_one_looks(open_page: OpenPage, service: str) -> None:
    topic = "/v1/topics/shop/moving"
    async with http_client(service) as http:
        (await http.put(topic)).raise_for_status()
        (await http.post(f"{topic}/messages", content="x")).raise_for_status()
        async with open_page("?screen=partition&topic=shop/moving&partition=0") as page:
            confirmed = page.locator("dt", has_text="Last confirmed entry").locator("+ dd")
            await expect(page.locator("svg")).to_contain_text("tail 1:")
            await expect(confirmed).to_have_text("0")
            (await http.post(f"{topic}/messages", content="y")).raise_for_status()
            await expect(page.locator("svg")).to_contain_text("tail 2:", timeout=FAILURE_SHOWN_MS)
            await expect(confirmed).to_have_text("1", timeout=FAILURE_SHOWN_MS)


async def test_subscriptions_that_the_picture_has_no_room_for_are_counted(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = "/v1/topics/shop/popular"
    (await http.put(topic)).raise_for_status()
    (await http.post(f"{topic}/messages", content="x")).raise_for_status()
    for number in range(14):
        (await http.put(f"{topic}/subscriptions/s{number:02}", json={})).raise_for_status()
    async with open_page("?screen=partition&topic=shop/popular&partition=0") as page:
        undrawn = page.get_by_text("the 12 slowest subscriptions, and 2 more are not in it")
        await expect(undrawn).to_be_visible()
        await tab_to(page, "all subscriptions of shop/popular")
        await page.keyboard.press("Enter")
        await expect(
            page.get_by_role("heading", name="Subscriptions of shop/popular")
        ).to_be_visible()
        await expect(page.locator(".row[role=option]")).to_have_count(14)


async def test_who_follows_a_link_is_at_the_title_of_what_it_leads_to(open_page: OpenPage) -> None:
    async with open_page() as page:
        await page.wait_for_selector("tbody tr")
        await page.keyboard.press("g")
        await page.keyboard.press("t")
        await expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_focused()
        await tab_to(page, TOPIC)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_be_focused()
        await page.go_back()
        await expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_focused()


async def test_single_letters_are_no_shortcuts_if_they_are_turned_off(open_page: OpenPage) -> None:
    async with open_page() as page:
        await page.wait_for_selector("tbody tr")
        await page.keyboard.press("?")
        switch = page.get_by_label("Letters and signs are shortcuts")
        await switch.press("Space")
        await page.keyboard.press("Escape")
        await expect(switch).to_have_count(0)
        for key in ("?", "g", "t"):
            await page.keyboard.press(key)
        await page.reload()
        await page.wait_for_selector("tbody tr")
        for key in ("?", "g", "t"):
            await page.keyboard.press(key)
        await page.get_by_role("button", name="Keys ?").press("Enter")
        await expect(switch).not_to_be_checked()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await switch.press("Space")
        await page.locator("h1").click()
        await page.keyboard.press("g")
        await page.keyboard.press("t")
        await expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()


async def test_the_chosen_row_is_named_by_an_id_without_a_blank(open_page: OpenPage) -> None:
    async with open_page("?screen=subscriptions") as page:
        await page.wait_for_selector(".row[role=option]")
        rows = page.locator(".list")
        await rows.focus()
        await page.keyboard.press("ArrowDown")
        chosen = await page.locator("[aria-selected=true]").get_attribute("id")
        assert chosen
        assert " " not in chosen
        await expect(rows).to_have_attribute("aria-activedescendant", chosen)


async def test_messages_are_sought_read_filtered_and_appended_by_keyboard(
    open_page: OpenPage,
) -> None:
    async with open_page(f"?screen=messages&topic={TOPIC}&partition=0") as page:
        await page.wait_for_selector(".row")
        await page.keyboard.press("/")
        await page.keyboard.type("key:k1")
        await expect(page.get_by_text("of 36 loaded")).to_be_visible()
        await page.keyboard.press("Control+a")
        await page.keyboard.press("Delete")
        await tab_to(page, "Messages")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await expect(page.locator("pre")).to_contain_text('"line": 1')
        await page.get_by_label("From (offset").focus()
        await page.keyboard.type("30")
        await page.keyboard.press("Enter")
        await expect(page.locator(".row .offset").first).to_have_text("30")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("soon")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("neither an offset")


async def test_a_message_that_is_appended_by_hand_arrives_while_the_tail_is_followed(
    open_page: OpenPage, service: str
) -> None:
    async with http_client(service) as http:
        (await http.put("/v1/topics/shop/by-hand")).raise_for_status()
    async with open_page("?screen=messages&topic=shop/by-hand&partition=0&live=1") as page:
        await expect(page.locator(".empty")).to_be_visible()
        await tab_to(page, "Append a message")
        await page.keyboard.press("Enter")
        await page.get_by_label("Key (optional)").focus()
        await page.keyboard.type("käse")
        for _ in ("event time", "headers", "form", "value"):
            await page.keyboard.press("Tab")
        await page.keyboard.type("<b>hello</b>")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator(".row .value")).to_have_text("<b>hello</b>")
        await expect(page.locator(".row .key")).to_have_text("käse")
        await page.get_by_role("button", name="Pause").press("Enter")
        await expect(page.get_by_role("button", name="Follow the tail")).to_be_visible()


async def test_a_topic_is_made_and_deleted_with_its_name_typed(open_page: OpenPage) -> None:
    async with open_page("?screen=topics") as page:
        await page.wait_for_selector("tbody tr")
        await tab_to(page, "Create a topic")
        await page.keyboard.press("Enter")
        await page.get_by_label("Name (namespace/topic)").focus()
        await page.keyboard.type("shop/short-lived")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="shop/short-lived")).to_be_visible()
        await page.get_by_text("End or delete this topic").press("Enter")
        button = page.get_by_role("button", name="Delete for good")
        await expect(button).to_be_disabled()
        await page.get_by_label("Name", exact=True).focus()
        await page.keyboard.type("shop/short-lived")
        await button.press("Enter")
        await expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
        await expect(page.locator("tbody")).not_to_contain_text("short-lived")


async def test_topics_of_a_namespace_and_its_settings(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    made = await http.put("/v1/namespaces/audited", json={"retention_bytes": 12345})
    made.raise_for_status()
    (await http.put("/v1/topics/audited/log")).raise_for_status()
    async with open_page("?screen=topics") as page:
        await expect(page.locator("option", has_text="audited")).to_have_count(1)
        await page.get_by_label("Namespace").select_option("audited")
        await expect(page.locator("nav.pages")).to_contain_text("1 to 1 of 1")
        assert "namespace=audited" in page.url
        await page.get_by_text("Settings of namespace audited, which").press("Enter")
        row = page.get_by_role("row", name="retention_bytes")
        await expect(row).to_contain_text("12345the namespace")
        await expect(page.get_by_role("row", name="ack_quorum")).to_contain_text("inherited")
        await page.get_by_label("Name contains").fill("nothing")
        empty = page.locator("[data-picture=empty]")
        await expect(empty).to_contain_text("none with “nothing” in it in namespace audited")


async def test_no_screen_gives_a_method_of_elements_another_meaning(open_page: OpenPage) -> None:
    """A method `remove` of a screen would be called when the screen is left."""
    async with open_page() as page:
        await page.wait_for_selector("tbody tr")
        shadowed = await page.evaluate(
            """(names) => names.flatMap((name) => Object.getOwnPropertyNames(
                customElements.get(`fencelog-${name}`).prototype)).filter((each) =>
                    each !== 'constructor' && each in HTMLElement.prototype)""",
            ELEMENTS,
        )
    assert shadowed == []


async def test_nothing_and_refused_are_two_pictures(open_page: OpenPage) -> None:
    async with open_page("?screen=topics&contains=no-such-topic") as page:
        await expect(page.locator("[data-picture=empty]")).to_contain_text(
            "No topic has such a name"
        )
    absent = "?screen=partition&topic=shop/absent&partition=0"
    async with open_page(absent) as page:
        picture = page.locator("[data-picture=refused]")
        await expect(picture).to_contain_text("there is no topic shop/absent")


async def test_loading_and_failed_are_two_pictures(open_page: OpenPage) -> None:
    async with open_page("?screen=nothing", expects=("Failed to load",)) as page:
        held: asyncio.Future[Route] = asyncio.get_running_loop().create_future()
        answers = asyncio.Event()

        async def hold(route: Route) -> None:
            if not held.done():
                held.set_result(route)
            elif answers.is_set():
                await route.continue_()
            else:
                await route.abort()

        await page.route(reads("/v1/admin/topics"), hold)
        await page.get_by_role("link", name="Topics").press("Enter")
        await expect(page.locator("[data-picture=loading]")).to_contain_text("Loading the topics")
        await (await held).abort()  # The page may show its picture before the route is told.
        await expect(page.locator("[data-picture=failed]")).to_contain_text("does not answer")
        answers.set()
        await page.wait_for_selector("tbody tr")


async def test_a_broker_that_is_gone_shows_within_three_seconds(open_page: OpenPage) -> None:
    async with open_page(PARTITION, expects=("Failed to load",)) as page:
        await page.wait_for_selector(".seg")
        await page.route("**/v1/**", lambda route: route.abort())
        old = page.locator("[data-picture=failed]")
        await expect(old).to_contain_text("This is old", timeout=FAILURE_SHOWN_MS)
        assert await page.locator(".seg").count() > 0
