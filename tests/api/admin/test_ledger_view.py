"""The ledger chain over HTTP: what it contains, its tag, its window; and the list of topics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fencelog.broker.limits import TOPIC_TOTALS_MS
from tests.support.network.http_client import http_client
from tests.support.until import until_found

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC = "/v1/topics/chains/orders"
VIEW = f"{TOPIC}/partitions/0/chain"
ROLL_ENTRIES = 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(real: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with a topic that has a subscription and a few ledgers."""
    async with http_client(real) as client:
        settings = {"roll_entries": ROLL_ENTRIES, "retention_bytes": 1_000_000}
        (await client.put(TOPIC, json=settings)).raise_for_status()
        (await client.put(f"{TOPIC}/subscriptions/billing", json={})).raise_for_status()
        for number in range(6):
            text = str(number)
            (await client.post(f"{TOPIC}/messages", content=text)).raise_for_status()
        yield client


async def settled(client: httpx.AsyncClient) -> httpx.Response:
    """Return the answer once the log has rolled, no ledger is being closed, and the newest one is
    not about to be followed by another."""

    async def look() -> httpx.Response | None:
        answer = await client.get(VIEW)
        found = answer.json()
        *older, newest = found["segments"]
        is_settled = older and all(each["is_closed"] for each in older)
        entries = found["tail_offset"] - newest["base_offset"]  # each post is one
        return answer if is_settled and entries < ROLL_ENTRIES else None

    return await until_found(look)


async def view(client: httpx.AsyncClient, **query: Any) -> Any:
    answer = await client.get(VIEW, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_chain_shows_ledgers_bookies_takeovers_and_subscriptions(
    shop: httpx.AsyncClient,
) -> None:
    found = (await settled(shop)).json()
    assert (found["topic"], found["partition"], found["tail_offset"]) == ("chains/orders", 0, 6)
    assert len(found["bookies"]) == 3
    segments = found["segments"]
    assert len(segments) >= 2
    assert [each["end_offset"] for each in segments[:-1]] == [
        each["base_offset"] for each in segments[1:]
    ]
    for each in segments:
        assert each["missing"] == []
        (fragment,) = each["ledger"]["fragments"]
        assert set(fragment["bookies"]) == set(found["bookies"])
    assert segments[-1]["is_written"]
    (takeover,) = found["takeovers"]
    assert (takeover["epoch"], takeover["from"]) == (1, None)
    assert takeover["broker_id"] == found["owner"]
    (cursor,) = found["subscriptions"]
    assert (cursor["subscription"], cursor["backlog_messages"], cursor["durable"]) == (
        "billing",
        6,
        True,
    )
    assert found["next_cut"]["held_by"] == "retention"
    assert found["next_cut"]["bytes_to_come"] > 0


async def test_each_member_of_the_chain_is_documented(shop: httpx.AsyncClient) -> None:
    manual = (Path(__file__).parents[3] / "api" / "HTTP.md").read_text("utf-8")
    (section,) = re.findall(r"### The ledger chain\n(.*?)\n###", manual, re.DOTALL)
    named = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    documented = {name for cell in named for name in re.findall("`(\\w+)`", cell)}
    assert (await view(shop)).keys() == documented


async def test_an_unchanged_chain_is_not_sent_again(shop: httpx.AsyncClient) -> None:
    first = await settled(shop)
    etag = first.headers["etag"]
    for named in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = await shop.get(VIEW, headers={"If-None-Match": named})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    (await shop.post(f"{TOPIC}/messages", content="new")).raise_for_status()
    changed = await shop.get(VIEW, headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag


async def test_a_window_folds_the_rest(shop: httpx.AsyncClient) -> None:
    whole = (await settled(shop)).json()
    last = await view(shop, ledgers=1)
    assert last["segments"] == whole["segments"][-1:]
    assert last["older"]["ledgers"] == whole["ledgers"] - 1
    first = await view(shop, ledgers=1, before=1)
    assert first["segments"][0]["ledger_id"] == whole["segments"][0]["ledger_id"]
    assert first["newer"]["ledgers"] == whole["ledgers"] - 1


@pytest.mark.parametrize("query", [{"ledgers": 0}, {"ledgers": 201}, {"before": -1}, {"limit": 1}])
async def test_bad_windows_are_refused(shop: httpx.AsyncClient, query: dict[str, int]) -> None:
    answer = await shop.get(VIEW, params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert answer.json()["parameter"] == next(iter(query))


async def test_topics_are_listed_with_figures_a_page_at_a_time(shop: httpx.AsyncClient) -> None:
    (await shop.put("/v1/topics/chains/unused", json={"partitions": 2})).raise_for_status()
    await asyncio.sleep(TOPIC_TOTALS_MS / 1000)
    by_name = (await shop.get("/v1/admin/topics", params={"namespace": "chains"})).json()
    orders, unused = by_name["topics"]
    assert (orders["topic"], orders["open_partitions"]) == ("chains/orders", 1)
    assert orders["messages"] == orders["backlog_messages"] >= 6
    assert orders["size"] > 0
    assert len(orders["brokers"]) == 1
    assert (orders["retention_bytes"], orders["retention_ms"]) == (1_000_000, None)
    assert (unused["partitions"], unused["open_partitions"], unused["size"]) == (2, 0, None)
    assert (by_name["total"], by_name["next_start"], by_name["unanswered"]) == (2, None, [])
    page: dict[str, Any] = {"namespace": "chains", "limit": 1, "sort": "size"}
    first = (await shop.get("/v1/admin/topics", params=page)).json()
    assert ([each["topic"] for each in first["topics"]], first["next_start"]) == (
        ["chains/orders"],
        1,
    )
    rest = (await shop.get("/v1/admin/topics", params={**page, "start": 1})).json()
    assert ([each["topic"] for each in rest["topics"]], rest["next_start"]) == (
        ["chains/unused"],
        None,
    )
    found = (await shop.get("/v1/admin/topics", params={"contains": "UNUS"})).json()
    assert [each["topic"] for each in found["topics"]] == ["chains/unused"]


@pytest.mark.parametrize("query", [{"sort": "colour"}, {"limit": 201}, {"start": -1}, {"zz": 1}])
async def test_bad_questions_about_topics_are_refused(
    shop: httpx.AsyncClient, query: dict[str, Any]
) -> None:
    answer = await shop.get("/v1/admin/topics", params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
