"""The screens of subscriptions, by keyboard: the list, lag, consumers, what is stuck, seek, dead
letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.async_api import expect

from tests.api.web_console.conftest import TOPIC, OpenPage, answer_part, reads
from tests.api.web_console.keyboard import tab_to

pytestmark = pytest.mark.asyncio(loop_scope="package")

SLOW_MS = 30_000
"""The time for figures, which brokers keep for a while, on a busy machine."""


async def put(http: httpx.AsyncClient, topic: str, messages: int = 0, **settings: Any) -> str:
    """Create a topic with messages. Return its path."""
    path = f"/v1/topics/{topic}"
    (await http.put(path, json=settings)).raise_for_status()
    for number in range(messages):
        (await http.post(f"{path}/messages", content=str(number))).raise_for_status()
    return path


async def pull(http: httpx.AsyncClient, sub: str, **request: Any) -> list[str]:
    """Pull, and return the ack ids."""
    answer = await http.post(f"{sub}:pull", json=request)
    return [each["ack_id"] for each in answer.raise_for_status().json()["messages"]]


async def ack(http: httpx.AsyncClient, sub: str, ids: Sequence[str]) -> None:
    (await http.post(f"{sub}:ack", json={"ack_ids": ids})).raise_for_status()


async def test_from_the_list_to_a_seek_by_keyboard(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = await put(http, "seeks/orders", 12)
    sub = f"{topic}/subscriptions/billing"
    (await http.put(sub, json={"start": "earliest"})).raise_for_status()
    await ack(http, sub, await pull(http, sub, max=7))
    async with open_page() as page:
        await page.keyboard.press("g")
        await page.keyboard.press("s")
        await page.wait_for_selector("[role=option]")
        await page.keyboard.press("/")
        await page.keyboard.type("SEEKS/ORDERS bill")
        only = page.locator("[role=option]")
        await expect(only).to_have_count(1, timeout=SLOW_MS)
        await expect(only).to_contain_text("5 messages behind", timeout=SLOW_MS)
        await tab_to(page, "Subscriptions")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="billing of seeks/orders")).to_be_visible()
        await expect(page.get_by_text("5 messages, about")).to_be_visible()
        await tab_to(page, "Seek\u2026")
        await page.keyboard.press("Enter")
        confirm = page.get_by_role("group", name="Confirm the seek")
        await expect(confirm).to_contain_text("back from 7 to 0: up to 7 messages are delivered")
        await tab_to(page, "Seek now")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Partition 0 goes on at 0.")).to_be_visible()
        await expect(page.get_by_text("12 messages, about")).to_be_visible(timeout=SLOW_MS)
        await expect(confirm).to_have_count(0)
    assert len(await pull(http, sub, max=20)) == 12


async def test_a_seek_by_offset_and_by_time_and_its_mistakes(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = await put(http, "seeks/places", 9)
    sub = f"{topic}/subscriptions/s"
    (await http.put(sub, json={"start": "earliest"})).raise_for_status()
    async with open_page("?screen=subscription&topic=seeks/places&subscription=s") as page:
        to = page.get_by_label("Go on from")
        await expect(page.locator("option", has_text="partition 0")).to_have_count(1)
        await expect(page.get_by_role("region", name="Partitions")).to_be_visible()
        await to.select_option("offset")
        await page.get_by_label("Offset", exact=True).fill("99")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("Partition 0 ends at 9, before 99")
        await page.get_by_label("Offset", exact=True).fill("4")
        await page.keyboard.press("Enter")
        confirm = page.get_by_role("group", name="Confirm the seek")
        await expect(confirm).to_contain_text("ahead from 0 to 4: up to 4 messages are never")
        await page.get_by_role("button", name="Seek now").press("Enter")
        await expect(page.get_by_text("Partition 0 goes on at 4.")).to_be_visible()
        await to.select_option("time")
        await page.get_by_label("Time, like").fill("2001-01-01 00:00:00")
        await page.keyboard.press("Enter")
        await expect(confirm).to_contain_text("published at 2001-01-01 00:00:00 UTC or later")
        await page.get_by_role("button", name="Cancel").press("Enter")
        await expect(confirm).to_have_count(0)
    assert len(await pull(http, sub, max=20)) == 5


async def test_the_lag_of_the_last_hour_is_drawn(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = await put(http, "lag/orders", 3)
    await http.put(f"{topic}/subscriptions/s", json={"start": "earliest"})
    query = "?screen=subscription&topic=lag/orders&subscription=s"
    begins_us = 1_700_000_000_000_000
    lag = {"interval_ms": 10_000, "since_us": begins_us, "backlog_messages": [0, 90, None, 45] * 10}
    async with open_page(query) as page:
        shown = page.get_by_role("region", name="Lag over time", exact=True).first
        await expect(shown).to_contain_text("at most 3 behind", timeout=SLOW_MS)  # a real sample
        await page.route(reads("/s/lag"), lambda route: answer_part(route, "/s/lag", lag))
        about = "Messages behind from 2023-11-14 22:13:20 to 2023-11-14 22:19:50 UTC: at most 90"
        await expect(shown.get_by_role("img", name=about)).to_be_visible(timeout=SLOW_MS)
        assert await shown.locator("polyline").count() == 10
        assert await shown.locator("circle").count() == 1
        await shown.get_by_text("As a table").press("Enter")
        newest = shown.locator("tbody tr").first
        await expect(newest).to_contain_text("22:19:00")
        await expect(newest).to_contain_text("90")
        await expect(shown.get_by_text("Kept since 2023-11-14 22:13:20 UTC")).to_be_visible()
        none: dict[str, Any] = {"interval_ms": 10_000, "since_us": None, "backlog_messages": []}
        await page.route(reads("/s/lag"), lambda route: answer_part(route, "/s/lag", none))
        await expect(shown).to_contain_text("No sample is kept yet", timeout=SLOW_MS)


async def test_consumers_leases_and_what_is_stuck(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = await put(http, "stuck/orders", 4)
    sub = f"{topic}/subscriptions/s"
    (await http.put(sub, json={"start": "earliest"})).raise_for_status()
    query = "?screen=subscription&topic=stuck/orders&subscription=s"
    async with open_page(query) as page:
        stuck = page.get_by_role("region", name="What is stuck")
        await expect(stuck).to_contain_text("4 messages wait, and no consumer asks for them")
        await expect(page.get_by_text("No consumer is there")).to_be_visible()
        ids = await pull(http, sub, max=3, consumer="mill-7", lease_ms=600_000)
        await ack(http, sub, ids[1:])
        row = page.get_by_role("row", name="mill-7")
        await expect(row).to_contain_text("1")
        await expect(stuck).to_contain_text("Message 0 is not acknowledged, while 1 range")
        await page.get_by_role("link", name="Look at message 0").press("Enter")
        await expect(page.locator(".row .offset").first).to_have_text("0")


async def test_dead_letters_are_shown_and_replayed(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = await put(http, "letters/orders", 2)
    sub = f"{topic}/subscriptions/mail"
    settings = {"start": "earliest", "max_deliveries": 1, "backoff_min_ms": 1}
    (await http.put(sub, json=settings)).raise_for_status()
    async with open_page("?screen=subscription&topic=letters/orders&subscription=mail") as page:
        letters = page.get_by_role("region", name="Dead letters")
        await expect(letters).to_contain_text("No message has failed for good")
        await expect(letters).to_contain_text("After 1 delivery a message goes to")
        ids = await pull(http, sub, max=2)
        body = {"ack_ids": ids, "delay_ms": 0}
        (await http.post(f"{sub}:nack", json=body)).raise_for_status()
        await pull(http, sub)  # sees that they are hopeless
        said = "2 messages in letters/orders-mail-dead; 2 not replayed yet"
        await expect(letters).to_contain_text(said, timeout=SLOW_MS)
        await tab_to(page, "Replay dead letters")
        await page.keyboard.press("Enter")
        await tab_to(page, "Replay now")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("2 dead letters were replayed")).to_be_visible()
        await expect(letters).to_contain_text("all were replayed", timeout=SLOW_MS)
    assert len(await pull(http, sub, max=5)) == 2


@pytest.mark.thorough
async def test_a_thousand_subscriptions_are_one_request_and_few_elements(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = await put(http, "many-subs/t", 3)
    names = [f"s{number:04}" for number in range(1000)]
    for first in range(0, len(names), 50):
        async with asyncio.TaskGroup() as group:
            for name in names[first : first + 50]:
                body = {"start": "earliest"}
                group.create_task(http.put(f"{topic}/subscriptions/{name}", json=body))
    asked: list[str] = []
    async with open_page("?screen=nothing") as page:
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(page.url.replace("nothing", "subscriptions&sort=name&topic=many-subs/t"))
        options = page.locator("[role=option]")
        await expect(options.first).to_contain_text("s0000", timeout=SLOW_MS)
        await expect(page.locator("nav.pages")).to_contain_text("1 to 1,000 of 1,000")
        assert await options.count() <= 60
        queries = [parse_qs(urlsplit(each).query) for each in asked if "/v1/" in each]
        paths = {path.partition("?")[0] for query in queries for path in query["path"]}
        assert paths == {"/v1/admin/subscriptions"}
        await page.locator(".list").focus()
        await page.keyboard.press("End")
        last = page.locator("[role=option][aria-selected=true]")
        await expect(last).to_contain_text("s0999")
        assert await options.count() <= 60
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="s0999 of many-subs/t")).to_be_visible()
        await page.go_back()  # to the one that was chosen
        await expect(last).to_contain_text("s0999", timeout=SLOW_MS)
        await expect(last).to_be_in_viewport()


async def test_no_subscription_and_no_match_are_two_pictures(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    await put(http, "seeks/unread")
    async with open_page("?screen=subscriptions&topic=seeks/unread") as page:
        await expect(page.locator("[data-picture=empty]")).to_contain_text("no subscriptions")
        await page.keyboard.press("/")
        await page.keyboard.type("nothing")
        await expect(page.locator("[data-picture=empty]")).to_contain_text("has such a name")
    absent = "?screen=subscription&topic=seeks/unread&subscription=absent"
    async with open_page(absent, expects=("status of 404",)) as page:
        refused = page.locator("[data-picture=refused]").first
        await expect(refused).to_contain_text("there is no subscription absent")


async def test_the_picture_of_a_partition_leads_to_its_subscriptions(open_page: OpenPage) -> None:
    async with open_page(f"?screen=partition&topic={TOPIC}&partition=0") as page:
        await page.wait_for_selector(".seg")
        await page.get_by_text("All subscriptions as a table").press("Enter")
        await page.get_by_role("link", name="billing").press("Enter")
        await expect(page.get_by_role("heading", name=f"billing of {TOPIC}")).to_be_visible()
