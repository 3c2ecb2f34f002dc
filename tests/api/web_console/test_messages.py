"""The screen of messages where there are many of them, and ranges of them as files."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Download, Page, Route, expect

from tests.api.web_console.conftest import TOPIC, OpenPage, cost_of_step
from tests.api.web_console.keyboard import tab_to

pytestmark = pytest.mark.asyncio(loop_scope="package")

MANY = 100_000
BATCH = 10_000
SLOW_MS = 60_000
MAX_KEY_COST = 0.5
"""That of a key, see ``cost_of_step``."""

MOST_ROWS = 60

PRESS_UP = """async (times) => {
    const list = document.querySelector('.list');
    for (let n = 0; n < times; n += 1) {
        const before = list.getAttribute('aria-activedescendant');
        list.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowUp', bubbles: true}));
        await new Promise((done) => { requestAnimationFrame(() => { setTimeout(done); }); });
        if (list.getAttribute('aria-activedescendant') === before) throw new Error('no effect');
    }
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def long_log(http: httpx.AsyncClient) -> str:
    """A query for the messages of a partition that has many."""
    topic = "/v1/topics/long/log"
    (await http.put(topic)).raise_for_status()
    for first in range(0, MANY, BATCH):
        messages = [{"text": f"message {n}"} for n in range(first, first + BATCH)]
        (await http.post(f"{topic}/messages:batch", json={"messages": messages})).raise_for_status()
    return "?screen=messages&topic=long/log&partition=0"


@pytest.mark.thorough
async def test_a_hundred_thousand_messages_are_few_elements_and_answer_keys_at_once(
    open_page: OpenPage, long_log: str
) -> None:
    async with open_page(long_log) as page:
        about = page.get_by_role("status").first
        loaded = 200
        while loaded < MANY:
            await expect(about).to_contain_text(f"{loaded:,} messages;", timeout=SLOW_MS)
            await page.get_by_role("button", name=re.compile("^Load ")).press("Enter")
            loaded = min(MANY, loaded + BATCH)
        await expect(about).to_have_text("100,000 messages; up to the tail", timeout=SLOW_MS)
        rows = page.locator(".row")
        assert await rows.count() <= MOST_ROWS
        await page.locator(".list").focus()
        await page.keyboard.press("End")
        await expect(page.locator("[aria-selected=true]")).to_contain_text("99,999")
        assert await rows.count() <= MOST_ROWS
        assert 0 < await cost_of_step(page, PRESS_UP) <= MAX_KEY_COST
        await page.keyboard.press("/")
        await page.keyboard.type("message 77777")
        await expect(about).to_contain_text("1 message of 100,000 loaded", timeout=SLOW_MS)
        assert await rows.count() == 1


async def test_latest_is_the_last_page_and_what_is_older_can_be_loaded(
    open_page: OpenPage, long_log: str
) -> None:
    async with open_page(f"{long_log}&from=latest") as page:
        offsets = page.locator(".row .offset")
        await expect(offsets.first).to_have_text("99,800")
        await expect(page.get_by_text("200 messages; up to the tail")).to_be_visible()
        await page.locator(".list").focus()
        await page.keyboard.press("End")
        await expect(page.locator("[aria-selected=true]")).to_contain_text("99,999")
        await page.get_by_role("button", name="Load 1,000 older").press("Enter")
        await expect(page.get_by_text("1,200 messages; up to the tail")).to_be_visible()
        await expect(page.locator("[aria-selected=true]")).to_be_in_viewport()
        await page.locator(".list").focus()
        await page.keyboard.press("Home")
        await expect(page.locator("[aria-selected=true]")).to_contain_text("98,800")
        await page.get_by_label("From (offset").fill("500")
        await page.keyboard.press("Enter")
        await expect(offsets.first).to_have_text("500")
        await page.get_by_role("button", name="Load 500 older").press("Enter")
        await expect(page.get_by_text("700 messages; 99,300 more")).to_be_visible()
        await expect(page.get_by_role("button", name=re.compile("older$"))).to_have_count(0)


@pytest.mark.parametrize(
    ("offset", "title", "link", "first", "status"),
    [
        ("99", "Nothing is written there yet", "To the tail", "2", "416"),
        ("1", "These messages are deleted", "To the earliest message", "2", "410"),
    ],
)
async def test_a_place_without_messages_leads_to_the_next_one(
    open_page: OpenPage,
    http: httpx.AsyncClient,
    offset: str,
    title: str,
    link: str,
    first: str,
    status: str,
) -> None:
    topic = "/v1/topics/shop/trimmed"
    (await http.put(topic)).raise_for_status()
    if (await http.get(f"{topic}/offsets")).json()["offsets"][0]["tail_offset"] == 0:
        body = {"messages": [{"text": f"message {n}"} for n in range(4)]}
        (await http.post(f"{topic}/messages:batch", json=body)).raise_for_status()
        trim = await http.post(f"{topic}/partitions/0:trim", json={"before": 2})
        trim.raise_for_status()
    query = f"?screen=messages&topic=shop/trimmed&partition=0&from={offset}"
    async with open_page(query, expects=(f"status of {status}",)) as page:
        picture = page.locator("[data-picture=outside]")
        await expect(picture).to_contain_text(title)
        assert "tried again" not in await picture.inner_text()
        await tab_to(page, link)
        await page.keyboard.press("Enter")
        await expect(page.locator(".row .offset").first).to_have_text(first)
        await page.go_back()
        await expect(picture).to_contain_text(title)


async def test_messages_that_could_not_be_loaded_are_asked_for_again_on_request(
    open_page: OpenPage,
) -> None:
    query = f"?screen=messages&topic={TOPIC}&partition=0"
    async with open_page("?screen=nothing", expects=("Failed to load",)) as page:
        await page.route("**/messages?**", lambda route: route.abort())
        await page.evaluate(f"history.pushState(null, '', '{query}')")
        await page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
        picture = page.locator("[data-picture=failed]")
        await expect(picture).to_contain_text("the broker does not answer, at ")
        await page.unroute("**/messages?**")
        await tab_to(page, "Try again")
        await page.keyboard.press("Enter")
        await expect(page.locator(".row .offset").first).to_have_text("0")


async def test_who_follows_goes_to_the_tail_and_is_told_what_was_skipped(
    open_page: OpenPage, long_log: str, http: httpx.AsyncClient
) -> None:
    async with open_page(long_log) as page:
        await expect(page.locator(".row .offset").first).to_have_text("0")
        await page.get_by_role("button", name="Follow the tail").press("Enter")
        skipped = "Skipped 99,600 offsets to follow the tail, up to 99,800"
        await expect(page.get_by_text(skipped)).to_be_visible()
        last = page.locator(".row .offset").last
        await expect(last).to_have_text("99,999")
        await expect(last).to_be_in_viewport()
        topic = "/v1/topics/long/log"
        (await http.post(f"{topic}/messages", content="one more")).raise_for_status()
        await expect(last).to_have_text("100,000")
        await expect(last).to_be_in_viewport()
        await page.get_by_role("button", name="Load 1,000 older").press("Enter")
        await expect(page.get_by_text("1,201 messages; up to the tail")).to_be_visible()
        await expect(page.get_by_role("button", name="Follow the tail")).to_be_visible()


async def test_whoever_asks_at_once_gets_no_message_twice(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    """A button that is pressed twice, one message appended by hand, and the tail followed."""
    topic = "/v1/topics/long/asked"
    (await http.put(topic)).raise_for_status()
    body = {"messages": [{"text": f"message {n}"} for n in range(600)]}
    (await http.post(f"{topic}/messages:batch", json=body)).raise_for_status()
    async with open_page("?screen=messages&topic=long/asked&partition=0") as page:
        await page.wait_for_selector(".row")
        asked: list[Route] = []
        is_free = asyncio.Event()

        async def hold(route: Route) -> None:
            asked.append(route)
            await is_free.wait()
            await route.continue_()

        await page.route("**/messages?**", hold)
        load = page.get_by_role("button", name=re.compile("^Load "))
        await load.press("Enter")
        await expect(load).to_have_attribute("aria-disabled", "true")
        await load.press("Enter")
        await page.get_by_role("button", name="Follow the tail").press("Enter")
        await page.locator("fencelog-append").dispatch_event("appended")
        assert len(asked) == 1
        is_free.set()
        await expect(page.get_by_text("600 messages; up to the tail")).to_be_visible()
        (await http.post(f"{topic}/messages", content="one more")).raise_for_status()
        await expect(page.get_by_text("601 messages; up to the tail")).to_be_visible()
        await page.unroute_all(behavior="ignoreErrors")


async def saved(page: Page, first: str, last: str) -> list[int]:
    """Save a range by keyboard; return the offsets in the file."""
    await page.get_by_label("First offset", exact=True).fill(first)
    await page.get_by_label("Last offset", exact=True).fill(last)
    async with page.expect_download() as download:
        await page.keyboard.press("Enter")
    file = await download.value
    assert file.suggested_filename == "shop_orders-0.ndjson"
    lines = Path(await file.path()).read_text("utf-8").splitlines()
    return [json.loads(line)["offset"] for line in lines]


async def test_a_range_is_saved_as_lines_of_json(open_page: OpenPage) -> None:
    async with open_page(f"?screen=messages&topic={TOPIC}&partition=0") as page:
        await page.wait_for_selector(".row")
        await tab_to(page, "Download a range")
        await page.keyboard.press("Enter")
        assert await saved(page, "5", "8") == [5, 6, 7, 8]
        await expect(page.get_by_text("Saved what is there from 5 to 8.")).to_be_visible()
        assert await saved(page, "30", "999999") == list(range(30, 36))
        await expect(page.get_by_text("Saved what is there from 30 to 35.")).to_be_visible()
        await page.get_by_label("First offset", exact=True).fill("9")
        await page.get_by_label("Last offset", exact=True).fill("8")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("8 comes before 9.")).to_be_visible()
        await page.get_by_label("Last offset", exact=True).fill("x")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("“x” is no offset.")).to_be_visible()


async def test_a_range_is_saved_whole_or_not_at_all(open_page: OpenPage) -> None:
    """It is cancelled, fails, or the page is left; another view is chosen meanwhile."""
    query = f"?screen=messages&topic={TOPIC}&partition=0"
    async with open_page(query, expects=("Failed to load",)) as page:
        downloads: list[Download] = []
        page.on("download", lambda saved: downloads.append(saved))
        await page.wait_for_selector(".row")
        held: asyncio.Queue[Route] = asyncio.Queue()
        await page.get_by_text("Download a range").press("Enter")
        await page.get_by_label("First offset", exact=True).fill("5")
        await page.get_by_label("Last offset", exact=True).fill("8")
        await page.route("**/messages?from=5&**", held.put)
        outcome = page.locator("fencelog-range [role=status]")
        await page.keyboard.press("Enter")
        await held.get()
        await expect(outcome).to_have_text("Reading from 5 on; 0 B so far…")
        await page.get_by_role("button", name="Cancel").press("Enter")
        await expect(outcome).to_have_text("Cancelled. Nothing was saved.")
        download = page.get_by_role("button", name="Download", exact=True)
        await download.press("Enter")
        await (await held.get()).abort()
        await expect(outcome).to_have_text("Failed: the broker does not answer. Nothing was saved.")
        await page.get_by_label("View").select_option("the compacted view")
        await expect(page.get_by_text("Offsets have gaps.")).to_be_visible()
        await download.press("Enter")
        asked = (await held.get()).request
        assert "view=compacted" in asked.url
        async with page.expect_event("requestfailed", lambda failed: failed.url == asked.url):
            await page.get_by_role("link", name="Overview", exact=True).press("Enter")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert downloads == []


async def test_a_range_is_read_until_it_is_large_enough_for_a_file(modules: Page) -> None:
    code = """async ([first, last, most]) => {
        const m = await import('./range_download.js'), asked = [];
        const read = async (from, limit) => { asked.push([from, limit]);
            return {lines: new Blob(['x'.repeat(10)]), next: Math.min(from + 100, 350),
                isAtTail: from + 100 >= 350} };
        const {pages, next, isWhole} = await m.readRange(read, {first, last}, most, () => {});
        return [asked, pages.length, next, isWhole] }"""
    whole = [[[0, 250], [100, 150], [200, 50]], 3, 300, True]
    assert await modules.evaluate(code, [0, 249, 99]) == whole
    assert await modules.evaluate(code, [0, 249, 20]) == [[[0, 250], [100, 150]], 2, 200, False]
    tail = [[[200, 10_000], [300, 10_000]], 2, 350, True]
    assert await modules.evaluate(code, [200, 10**9, 99]) == tail


async def test_the_beginning_of_a_large_value_is_shown(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = "/v1/topics/shop/large"
    (await http.put(topic)).raise_for_status()
    value = ('"' + "ä" * 200_000 + '"').encode()
    (await http.post(f"{topic}/messages", content=value)).raise_for_status()
    async with open_page("?screen=messages&topic=shop/large&partition=0") as page:
        await page.locator(".row").click()
        await expect(page.get_by_text("The beginning of 391 KiB.")).to_be_visible()
        assert await page.locator("pre").inner_text() == '"' + "ä" * (32 * 1024 - 1)
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Download the value").press("Enter")
        assert Path(await (await download.value).path()).read_bytes() == value


async def test_a_search_goes_on_beyond_what_is_loaded_until_it_is_stopped(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = "/v1/topics/long/searched"
    (await http.put(topic)).raise_for_status()
    for first in range(0, 40_000, BATCH):
        messages = [{"text": f"message {n:05}"} for n in range(first, first + BATCH)]
        (await http.post(f"{topic}/messages:batch", json={"messages": messages})).raise_for_status()
    async with open_page("?screen=messages&topic=long/searched&partition=0") as page:
        await page.wait_for_selector(".row")
        await page.keyboard.press("/")
        await page.keyboard.type("7777")
        await expect(page.locator("[data-picture=empty]")).to_contain_text("search further")
        await tab_to(page, "Search further")
        await page.keyboard.press("Enter")
        about = page.get_by_text(re.compile("^Search(ing|ed) from"))
        done = "Searched from offset 200 to 40,000: 4 messages found."
        await expect(about).to_contain_text(done, timeout=SLOW_MS)
        await expect(page.locator(".row .value").first).to_have_text("message 07777")
        assert await page.locator(".row").count() == 4
        await expect(page.get_by_role("button", name="Search further")).to_have_count(0)
        await page.get_by_role("button", name="Load them all from there").press("Enter")
        await page.get_by_label("Filter what is loaded").fill("")
        await expect(page.locator(".row .offset").first).to_have_text("200")
        held: asyncio.Queue[Route] = asyncio.Queue()
        await page.route("**/messages?**", held.put)
        await page.get_by_label("Filter what is loaded").fill("39999")
        await page.get_by_role("button", name="Search further").press("Enter")
        first_page = await held.get()
        await expect(about).to_contain_text("Searching from offset 400")
        await page.get_by_role("button", name="Stop the search").press("Enter")
        await first_page.continue_()
        await expect(about).to_contain_text("Searched from offset 400 to 10,400: 0 messages found.")
        await page.unroute("**/messages?**")
        await page.get_by_role("button", name="Search further").press("Enter")
        await expect(about).to_contain_text("to 40,000: 1 message found.", timeout=SLOW_MS)


async def test_a_filter_that_is_not_understood_finds_nothing_and_says_why(
    open_page: OpenPage,
) -> None:
    async with open_page(f"?screen=messages&topic={TOPIC}&partition=0") as page:
        await page.wait_for_selector(".row")
        await page.keyboard.press("/")
        await page.keyboard.type("$..order")
        picture = page.locator("[data-picture=empty]")
        await expect(picture).to_contain_text("The filter is not understood")
        await expect(picture).to_contain_text("“$..order” is not understood from “..order” on")


async def test_the_compacted_view_is_beside_the_log(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = "/v1/topics/shop/compacted"
    (await http.put(topic, json={"compaction_ms": 3_600_000})).raise_for_status()
    messages = [{"text": f"v{n}", "key": f"k{n % 2}"} for n in range(6)]
    (await http.post(f"{topic}/messages:batch", json={"messages": messages})).raise_for_status()
    (await http.post(f"{topic}/partitions/0:compact")).raise_for_status()
    async with asyncio.timeout(30):
        while True:
            state = (await http.get(f"{topic}/partitions/0/compaction")).json()
            if state["state"] == "ready" and state["messages"] == 2:
                break
            await asyncio.sleep(0.1)
    async with open_page("?screen=messages&topic=shop/compacted&partition=0") as page:
        rows = page.locator(".row .value")
        await expect(rows).to_have_count(6)
        await page.get_by_label("View").select_option("the compacted view")
        await expect(rows).to_have_text(["v4", "v5"])
        await expect(page.get_by_text("Offsets have gaps.")).to_be_visible()
        assert "view=compacted" in page.url
        await page.reload()
        await expect(rows).to_have_text(["v4", "v5"])
        await page.get_by_label("View").select_option("the log")
        await expect(rows).to_have_count(6)


async def test_what_is_appended_by_hand_has_a_key_a_time_and_headers(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    (await http.put("/v1/topics/shop/written")).raise_for_status()
    async with open_page(
        "?screen=messages&topic=shop/written&partition=0", expects=("status of 413",)
    ) as page:
        await tab_to(page, "Append a message")
        await page.keyboard.press("Enter")
        form = page.locator("fencelog-append form")
        send = page.get_by_role("button", name="Append to this partition")
        await form.get_by_label("Event time").fill("soon")
        await form.get_by_label("Headers").fill("no header")
        await form.get_by_label("Value is").select_option("JSON")
        await form.get_by_label("Value", exact=True).fill("{")
        await send.press("Enter")
        await expect(form.get_by_role("alert")).to_have_count(3)
        wrong = form.get_by_label("Event time")
        await expect(wrong).to_be_focused()
        await expect(wrong).to_have_attribute("aria-invalid", "true")
        await expect(wrong).to_have_accessible_description(re.compile("^“soon” is no time"))
        await wrong.fill("2026-01-31 12:00:00")
        await form.get_by_label("Headers").fill("trace: 4bf92f\nTeam: a: b")
        await form.get_by_label("Value", exact=True).fill('{"n": 1.0}')
        await form.get_by_label("Key").fill("k" * 70_000)
        await send.press("Enter")
        await expect(form.get_by_role("alert")).to_contain_text("key: 70000 bytes, at most")
        await expect(form.get_by_label("Key")).to_be_focused()
        await form.get_by_label("Key").fill("käse")
        await send.press("Enter")
        await expect(page.get_by_text("Appended at offset 0.")).to_be_visible()
        await expect(form.get_by_role("alert")).to_have_count(0)
        await expect(page.locator(".row .key")).to_have_text("käse")
    read = await http.get("/v1/topics/shop/written/partitions/0/messages")
    (message,) = read.json()["messages"]
    assert message["text"] == '{"n": 1.0}'
    assert (message["key"], message["event_time"]) == ("käse", 1_769_860_800_000_000)
    assert message["headers"] == {"trace": "4bf92f", "Team": "a: b"}


async def test_the_chosen_message_is_in_the_address(open_page: OpenPage, long_log: str) -> None:
    async with open_page(f"{long_log}&from=70000") as page:
        await page.wait_for_selector(".row .offset")
        await page.locator(".list").focus()
        for key in ("Home", "ArrowDown", "ArrowDown"):
            await page.keyboard.press(key)
        await page.wait_for_url(re.compile("message=70002"))
        address = page.url
        # Elsewhere before the choice rests: the page that is left has it all the same.
        await page.keyboard.press("ArrowDown")
        await page.get_by_role("link", name="Ledger chain").press("Enter")
        await page.wait_for_selector(".seg")
        assert "message=" not in page.url
        await page.go_back()
        await page.wait_for_url(re.compile("message=70003"))
        await expect(page.get_by_role("heading", name="Message 70,003")).to_be_visible()
        await page.goto(address)
        await expect(page.get_by_role("heading", name="Message 70,002")).to_be_visible()
        await expect(page.locator("[aria-selected=true]")).to_be_in_viewport()
        # One that the first page at this place does not have is looked for.
        await page.goto(address.replace("message=70002", "message=91234"))
        await expect(page.get_by_role("heading", name="Message 91,234")).to_be_visible()
        await expect(page.locator("[aria-selected=true]")).to_contain_text("91,234")
        await page.get_by_label("From (offset").fill("5")
        await page.keyboard.press("Enter")
        await expect(page.locator(".row .offset").first).to_have_text("5")
        assert "message=" not in page.url
