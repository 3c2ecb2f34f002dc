"""``GET /v1/admin/events``: what brokers record arrives there, in pages, filtered, as it comes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from fencelog.api.admin.events import log as event_log
from fencelog.broker.cluster.events_core import EVENTS_TOPIC, EventKind
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.record_batch import Message
from tests.api.admin.doctor.sick_cluster import put_topic, sick_cluster
from tests.support.subscription_service import Service, Site, ok, running
from tests.support.until import PATIENCE_S, until, until_found

EVENTS = "/v1/admin/events"
Json = dict[str, Any]


async def events(site: Site, **query: Any) -> Json:
    found: Json = await ok(await site.http.get(EVENTS, params=query))
    return found


async def recording(service: Service, *names: str) -> list[Site]:
    return [await service.site(name, record_events=True) for name in names]


async def settled(*sites: Site) -> None:
    """Wait until all that these brokers have recorded is in the topic of events, their takeovers of
    it too. ``flush`` waits for a moment only."""
    await until(lambda: all(site.broker.events._settled.is_set() for site in sites))


async def record(site: Site, count: int, kind: EventKind = EventKind.ROLL) -> None:
    """Record events of a broker, and wait until they are durable."""
    for number in range(count):
        site.broker.events.record(kind, topic=site.name, partition=0, number=number)
    await settled(site)


async def test_a_cluster_without_events_has_an_empty_timeline() -> None:
    async with running() as service:
        site = await service.site("a")
        assert await events(site) == {"events": [], "older": None, "newer": 0}
        asked = asyncio.get_running_loop().time()
        await events(site, after=0, wait=0.2)
        assert asyncio.get_running_loop().time() - asked >= 0.2


async def test_any_broker_shows_what_every_broker_has_recorded() -> None:
    async with running() as service:
        first, second = await service.topic(await recording(service, "a", "b"))
        await settled(first, second)
        shown = [await events(site) for site in (first, second)]
        assert shown[0] == shown[1]
        found = [e for e in shown[0]["events"] if e["topic"] == str(first.name)]
        assert sorted((e["broker_id"], e["partition"], e["kind"]) for e in found) == [
            ("a", 0, "takeover"),
            ("b", 1, "takeover"),
        ]
        of_events = [e for e in shown[0]["events"] if e["topic"] == str(EVENTS_TOPIC)]
        assert [e["kind"] for e in of_events] == ["takeover"]
        assert shown[0]["newer"] == len(shown[0]["events"])
        assert found[0].keys() == {
            *("offset", "time_us", "kind", "broker_id", "topic", "partition", "epoch"),
            *("ledger_id", "from", "detail", "summary"),
        }


async def test_pages_cover_the_timeline_in_both_directions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "_WINDOW", 7)
    async with running() as service:
        (site,) = await service.topic(await recording(service, "a"))
        await record(site, 40)
        whole = (await events(site, limit=1000))["events"]
        assert [e["offset"] for e in whole] == list(range(len(whole)))
        pages, page = [], await events(site, limit=9)
        while True:
            pages.append(page["events"])
            if page["older"] is None:
                break
            page = await events(site, limit=9, before=page["older"])
        assert [event for page in reversed(pages) for event in page] == whole
        assert {len(page) for page in pages[:-1]} == {9}
        forward, page = [], await events(site, limit=9, after=0)
        while page["events"]:
            forward += page["events"]
            page = await events(site, limit=9, after=page["newer"])
        assert forward == whole


async def test_filters_leave_out_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_WINDOW", 7)
    monkeypatch.setattr(event_log, "MAX_EVENTS_SCANNED", 20)
    async with running() as service:
        (site,) = await service.topic(await recording(service, "a"))
        await record(site, 2, EventKind.TRIM)
        await record(site, 50)
        page = await events(site, kind="trim")
        assert page["events"] == []  # it has looked at the newest twenty
        found = 0
        while page["older"] is not None:
            page = await events(site, kind="trim", before=page["older"])
            found += len(page["events"])
        assert found == 2
        page, found = await events(site, kind="trim,takeover", after=0), 0
        while page["newer"] < (await events(site))["newer"]:
            found += len(page["events"])
            page = await events(site, kind="trim,takeover", after=page["newer"])
        assert found == 4
        rolls = (await events(site, topic=str(site.name), kind="roll", limit=3))["events"]
        assert [e["detail"]["number"] for e in rolls] == [47, 48, 49]
        assert (await events(site, topic="ns/other"))["events"] == []


async def test_since_begins_at_a_time() -> None:
    async with running() as service:
        (site,) = await service.topic(await recording(service, "a"))
        await record(site, 3)
        await asyncio.sleep(0.01)
        time_us = site.broker.host.now_us()
        await record(site, 2, EventKind.TRIM)
        for query in ({}, {"after": 0}):
            page = await events(site, since=time_us, **query)
            assert [e["kind"] for e in page["events"]] == ["trim", "trim"]
        assert (await events(site, since=site.broker.host.now_us()))["events"] == []


async def test_until_ends_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as service:
        (site,) = await service.topic(await recording(service, "a"))
        await record(site, 3, EventKind.TRIM)
        await asyncio.sleep(0.01)
        time_us = site.broker.host.now_us()
        await asyncio.sleep(0.01)
        await record(site, 2, EventKind.TRIM)
        for late_us in (0, 10**9, 2**62):  # what comes later is not read, or is left out
            monkeypatch.setattr("fencelog.api.admin.events.log._LATE_US", late_us)
            for query in ({}, {"after": 0}):
                page = await events(site, until=time_us, kind="trim", **query)
                assert len(page["events"]) == 3
            (newest,) = (await events(site, until=time_us, kind="trim", limit=1))["events"]
            assert newest["time_us"] < time_us
        assert len((await events(site, until=2**62, kind="trim"))["events"]) == 5
        assert (await events(site, until=0))["events"] == []


async def test_a_follower_gets_the_next_event_as_it_comes() -> None:
    async with running() as service:
        first, second = await service.topic(await recording(service, "a", "b"))
        await settled(first, second)
        end = (await events(first))["newer"]
        for site in (first, second):  # one of them does not own the topic of events
            waiting = asyncio.create_task(events(site, after=end, wait=20, kind="trim"))
            await asyncio.sleep(0.1)
            await record(first, 1)  # of another kind
            assert not waiting.done()
            await record(first, 1, EventKind.TRIM)
            async with asyncio.timeout(5):
                page = await waiting
            assert [e["kind"] for e in page["events"]] == ["trim"]
            end = page["newer"]


async def test_a_message_that_is_no_event_is_left_out() -> None:
    async with running() as service:
        (site,) = await service.topic(await recording(service, "a"))
        await settled(site)
        log = await site.broker.partition(EVENTS_TOPIC, 0)
        for value in (b"hello", b'{"time_us": 1, "kind": "eclipse", "broker_id": "moon"}'):
            await log.append_message(Message(value))
        *_, strange = (await events(site))["events"]
        assert (strange["kind"], strange["summary"]) == ("eclipse", "moon: eclipse")


async def test_a_topic_of_events_that_is_there_keeps_its_settings() -> None:
    async with running() as service:
        (site,) = await recording(service, "a")
        await site.broker.topics.create(EVENTS_TOPIC, TopicConfig(2, {"retention_ms": 60_000}))
        await service.topic([site])
        await settled(site)
        assert {e["kind"] for e in (await events(site))["events"]} == {"takeover"}
        info = await site.broker.topics.get(EVENTS_TOPIC)
        assert info.config == TopicConfig(2, {"retention_ms": 60_000})


async def test_the_timeline_begins_anew_when_its_topic_was_deleted() -> None:
    async with running() as service:
        (site,) = await service.topic(await recording(service, "a"))
        await record(site, 2)
        (await site.http.delete(f"/v1/topics/{EVENTS_TOPIC}")).raise_for_status()
        await record(site, 1, EventKind.TRIM)

        async def some() -> list[dict[str, Any]]:
            return list((await events(site))["events"])

        found = await until_found(some)
        assert {"trim", "takeover"} >= {e["kind"] for e in found}


async def test_a_bookie_that_was_replaced_is_named(tmp_path: Path) -> None:
    """From the writer of a ledger to the timeline, with real bookies."""
    async with (
        sick_cluster(tmp_path, record_events=True) as cluster,
        httpx.AsyncClient(base_url=cluster.urls["r1"], trust_env=False, timeout=20) as http,
    ):
        await put_topic(http, "ns/t")
        segments = await ok(await http.get("/v1/topics/ns/t/partitions/0/segments"))
        ledger = segments["segments"][0]["ledger"]
        before = ledger["fragments"][0][1]
        (spare,) = {"b1", "b2", "b3", "b4"}.difference(before)
        await cluster.stop(before[0])

        async def replaced() -> list[Json]:
            (await http.post("/v1/topics/ns/t/messages", content=b"y")).raise_for_status()
            query = {"kind": "ensemble_change", "topic": "ns/t"}
            found: list[Json] = (await ok(await http.get(EVENTS, params=query)))["events"]
            return found

        (event,) = await until_found(replaced)
        assert (event["ledger_id"], event["partition"]) == (ledger["ledger_id"], 0)
        assert (event["detail"]["removed"], event["detail"]["added"]) == ([before[0]], [spare])
        assert f"{before[0]} replaced by {spare}" in event["summary"]
        # The ledger itself knows when, too: events may be lost, and are kept for a while only.
        shown = await ok(await http.get("/v1/topics/ns/t/partitions/0/chain"))
        fragments = shown["segments"][0]["ledger"]["fragments"]
        (began,) = [e for e in fragments if e["first_entry"] == event["detail"]["first_entry"]]
        assert spare in began["bookies"]
        assert 0 <= event["time_us"] - began["since_us"] < PATIENCE_S * 1_000_000

        # The log of events was opened by the first of them, so its own takeover is appended later.
        async def of_events() -> list[Json]:
            query = {"topic": str(EVENTS_TOPIC)}
            found: list[Json] = (await ok(await http.get(EVENTS, params=query)))["events"]
            return found

        assert [each["kind"] for each in await until_found(of_events)] == ["takeover"]


@pytest.mark.parametrize(
    "query", ["limit=0", "kind=eclipse", "topic=t", "before=1&after=1", "zz=1", "wait=1"]
)
async def test_a_request_that_is_wrong_is_refused(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(f"{EVENTS}?{query}")
    assert answer.status_code == 400, answer.text


async def test_other_methods_and_forms_are_refused(http: httpx.AsyncClient) -> None:
    assert (await http.post(EVENTS)).status_code == 405
    assert (await http.get(EVENTS, headers={"accept": "text/html"})).status_code == 406
    head = await http.head(EVENTS)
    assert (head.status_code, head.content) == (200, b"")
