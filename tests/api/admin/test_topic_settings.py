"""Settings, rates, trim and the end of a topic over HTTP, on a service with all its parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.api.read import read
from fencelog.ledgers.errors import ErrorCode, FencelogError

TOPIC = "/v1/topics/shop/orders"
PARTITION = f"{TOPIC}/partitions/0"


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service, with the topic ``shop/orders`` of three messages in it."""
    async with standalone(StandaloneConfig(tmp_path, "127.0.0.1:0")) as service:
        url = str(service.announcement["http"])
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
            assert (await http.put(TOPIC)).status_code == 201
            for number in range(3):
                await http.post(f"{TOPIC}/messages", content=b"%d" % number)
            yield http


async def test_settings_show_what_is_own_and_what_holds(shop: httpx.AsyncClient) -> None:
    made = await shop.put("/v1/namespaces/shop", json={"ttl_ms": 5000, "retention_ms": 7})
    assert made.status_code == 201
    changed = (await shop.patch(TOPIC, json={"retention_ms": "unlimited", "partitions": 2})).json()
    assert changed["settings"] == {"retention_ms": "unlimited"}
    assert (changed["effective"]["retention_ms"], changed["effective"]["ttl_ms"]) == (
        "unlimited",
        5000,
    )
    assert changed["partitions"] == 2
    assert (await shop.post(f"{TOPIC}/messages?partition=1", content=b"x")).status_code == 201
    assert (await shop.get(f"{PARTITION}/messages")).json()["messages"][0]["text"] == "0"
    back = (await shop.patch(TOPIC, json={"retention_ms": None})).json()
    assert (back["settings"], back["effective"]["retention_ms"]) == ({}, 7)
    for body, field in (({"partitions": 1}, "partitions"), ({"ack_quorum": 1}, "Qa=1")):
        refused = await shop.patch(TOPIC, json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
        assert field in refused.text
    full = await shop.delete("/v1/namespaces/shop")
    assert (full.status_code, full.json()["code"]) == (409, "namespace_not_empty")


async def test_whoever_is_too_fast_is_told_when_to_come_again(shop: httpx.AsyncClient) -> None:
    """The rate is so low that a pause between the two requests is a small part of the wait."""
    await shop.patch(TOPIC, json={"publish_bytes_per_s": 10})
    assert (await shop.post(f"{TOPIC}/messages", content=bytes(500))).status_code == 201
    refused = await shop.post(f"{TOPIC}/messages", content=b"x")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert 30_000 < refused.json()["retry_after_ms"] <= 56_000
    assert 31 <= int(refused.headers["retry-after"]) <= 56


async def test_an_event_stream_that_is_too_fast_waits(
    shop: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "PING_INTERVAL_MS", 50)
    await shop.patch(TOPIC, json={"dispatch_messages_per_s": 1})
    body = "\n".join("x" * 100)
    text = {"content-type": "text/plain"}
    for _ in range(2):  # the second one waits for the debt of the first
        await shop.post(f"{TOPIC}/messages:batch", content=body, headers=text)
    stream = shop.stream(
        "GET", f"{PARTITION}/messages?from=3&limit=200", headers={"accept": "text/event-stream"}
    )
    async with asyncio.timeout(10), stream as answer:
        lines = answer.aiter_lines()
        events = []
        while "event: ping" not in events:
            events.append(await anext(lines))
        await shop.patch(TOPIC, json={"dispatch_messages_per_s": None})
        events += [line async for line in lines]
    assert events.count("event: message") == 200
    assert "event: problem" not in events


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("messages?from=8&limit=10", "application/json"),
        ("messages?from=8&limit=10", "application/x-ndjson"),
        ("messages?from=8&limit=10", "text/event-stream"),
        ("messages?from=8&limit=10&view=compacted", "application/json"),
        ("messages/8", "*/*"),
    ],
)
async def test_the_rate_of_reads_counts_what_is_answered(
    shop: httpx.AsyncClient, path: str, accept: str
) -> None:
    """All of it lies in one batch of fifty times the rate, which a read of record batches has."""
    body = "\n".join("x" * 5000)
    text = {"content-type": "text/plain"}
    await shop.post(f"{TOPIC}/messages:batch", content=body, headers=text)
    await shop.patch(TOPIC, json={"dispatch_messages_per_s": 100})
    for _ in range(3):
        answer = await shop.get(f"{PARTITION}/{path}", headers={"accept": accept})
        assert answer.status_code == 200, answer.text
    whole = {"accept": "application/vnd.fencelog.batch"}
    answer = await shop.get(f"{PARTITION}/messages?from=8&limit=10", headers=whole)
    assert answer.headers["next-offset"] == "5003"
    refused = await shop.get(f"{PARTITION}/messages?from=8&limit=1")
    assert refused.json()["code"] == "rate_limited"


async def test_a_trimmed_topic_begins_where_it_was_cut(shop: httpx.AsyncClient) -> None:
    trimmed = await shop.post(f"{PARTITION}:trim", json={"before": 2})
    assert trimmed.json() == {"partition": 0, "earliest_offset": 2, "held_back": False}
    gone = await shop.get(f"{PARTITION}/messages?from=1")
    assert (gone.status_code, gone.json()["earliest_offset"]) == (410, 2)
    left = await shop.get(f"{PARTITION}/messages")
    assert [message["text"] for message in left.json()["messages"]] == ["2"]
    assert left.headers["start-offset"] == "2"
    beyond = await shop.post(f"{PARTITION}:trim", json={"before": 9})
    assert (beyond.status_code, beyond.json()["tail_offset"]) == (416, 3)
    assert (await shop.post(f"{PARTITION}:trim", json={"before": -1})).status_code == 400


async def test_a_terminated_topic_says_where_it_ends(shop: httpx.AsyncClient) -> None:
    for _ in range(2):
        ended = await shop.post(f"{TOPIC}:terminate")
        assert ended.json() == {"partitions": [{"partition": 0, "end_offset": 3}]}
    refused = await shop.post(f"{TOPIC}/messages", content=b"x")
    assert (refused.status_code, refused.json()["code"]) == (409, "topic_terminated")
    assert refused.json()["tail_offset"] == 3
    part = await shop.get(f"{PARTITION}/messages?limit=2")
    assert "end-of-topic" not in part.headers
    whole = await shop.get(f"{PARTITION}/messages?wait=60")
    assert whole.headers["end-of-topic"] == "true"
    waited = await shop.get(f"{PARTITION}/messages?from=latest&wait=60")
    assert (waited.json()["messages"], waited.headers["end-of-topic"]) == ([], "true")
    stream = await shop.get(f"{PARTITION}/messages", headers={"accept": "text/event-stream"})
    assert stream.text.count("event: message\n") == 3
    assert '"end_of_topic":true' in stream.text


async def test_internals_name_subscriptions(shop: httpx.AsyncClient) -> None:
    await shop.put(f"{TOPIC}/subscriptions/billing", json={})
    await shop.post(f"{TOPIC}/subscriptions/billing:pull", json={})
    inside = (await shop.get(f"{PARTITION}/internal")).json()
    assert inside["tail_offset"] == 3
    assert list(inside["subscriptions"]) == ["billing"]
    assert [segment["sealed"] for segment in inside["segments"]] == [False]


def test_waits_are_rounded_up() -> None:
    from fencelog.api.http.problems import retry_after_s

    def told(**extra: int) -> int:
        return retry_after_s(FencelogError(ErrorCode.RATE_LIMITED, "why", **extra))

    assert [told(), told(retry_after_ms=1), told(retry_after_ms=1001)] == [1, 1, 2]


async def test_settings_that_no_append_could_meet_are_refused(shop: httpx.AsyncClient) -> None:
    five = {"ensemble_size": 5}
    await shop.put("/v1/namespaces/other")
    for method, url in (
        ("PUT", "/v1/topics/shop/five"),
        ("PATCH", TOPIC),
        ("PUT", "/v1/namespaces/five"),
        ("PATCH", "/v1/namespaces/other"),
    ):
        refused = await shop.request(method, url, json=five)
        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (503, "not_enough_bookies")
        assert (problem["field"], problem["registered_bookies"]) == ("ensemble_size", 3)
        assert "allow_missing_bookies" in problem["detail"]
    assert (await shop.get("/v1/topics/shop/five")).status_code == 404
    assert (await shop.get("/v1/namespaces/five")).status_code == 404
    allowed = await shop.put("/v1/topics/shop/five?allow_missing_bookies=true", json=five)
    assert (allowed.status_code, allowed.json()["ensemble_size"]) == (201, 5)
    assert (await shop.put("/v1/topics/shop/five", json=five)).status_code == 200
    unchanged = await shop.patch("/v1/topics/shop/five", json={"retention_ms": 1000})
    assert unchanged.status_code == 200
    assert (await shop.post("/v1/topics/shop/five/messages")).json()["code"] == "not_enough_bookies"
