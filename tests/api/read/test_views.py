"""Positions by time, and the compacted view, through the real broker over ledgers in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.streams.compact import compact_now
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ReadLimits, ReadResult
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.record_batch import Message, check_batch, decode_batch, encode_batch
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.network.http_client import http_client
from tests.support.scripted_ledgers import ScriptedLedgers
from tests.support.until import until

T = TopicName("ns", "t")
URL = "/v1/topics/ns/t"
PARTITION = f"{URL}/partitions/0"


class Clock(SystemHost):
    clock_us = 1000

    def now_us(self) -> int:
        return self.clock_us


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(clock: Clock) -> AsyncIterator[Broker]:
    """A broker with a topic of two partitions; partition 0 holds, of each key, more than one
    message."""
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    broker = Broker(store, ScriptedLedgers(), host=clock, config=BrokerConfig("a", "http://a"))
    await broker.start()
    await broker.topics.create(T, TopicConfig(2))
    for time_us, keys in ((1000, "ab"), (1100, "a"), (1100, "bc"), (1200, "d")):
        clock.clock_us = time_us
        await append(broker, keys)
    yield broker
    await broker.close()
    await store.close()


async def append(broker: Broker, keys: str) -> None:
    log = await broker.partition(T, 0)
    first = log.tail_offset
    batch = encode_batch(
        [Message(b"%d" % number, key.encode()) for number, key in enumerate(keys, first)]
    )
    await log.append_batch(batch, check_batch(batch))


@pytest.fixture
async def url(broker: Broker, fake_bookies: FakeBookies, serve: Serve) -> AsyncIterator[str]:
    async with serve(app_over(broker, fake_bookies)) as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[FencelogClient]:
    async with FencelogClient(url) as client:
        yield client


@pytest.fixture
async def raw(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(url) as raw:
        yield raw


def offsets(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [message["offset"] for message in answer.json()["messages"]]


async def test_reads_begin_at_a_time(raw: httpx.AsyncClient) -> None:
    for time_us, first in ((0, 0), (1000, 0), (1001, 2), (1100, 2), (1101, 5), (1200, 5)):
        answer = await raw.get(f"{PARTITION}/messages", params={"from_time": time_us})
        assert offsets(answer) == list(range(first, 6))
    answer = await raw.get(f"{PARTITION}/messages", params={"from_time": 1201})
    assert (offsets(answer), answer.headers["next-offset"]) == ([], "6")
    head = await raw.head(f"{PARTITION}/messages", params={"from_time": 1100})
    assert head.headers["next-offset"] == "2"


@pytest.mark.parametrize(
    ("query", "cut", "first"),
    [("from=earliest", 3, 3), ("from_time=1001", 3, 3), ("from=latest", 7, 7)],
)
@pytest.mark.parametrize(
    "accept", ["application/json", "application/vnd.fencelog.batch", "text/event-stream"]
)
async def test_a_start_that_was_trimmed_meanwhile_is_found_again(
    broker: Broker,
    raw: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    cut: int,
    first: int,
    accept: str,
) -> None:
    """The client named no offset. What came after the tail that it asked for is not skipped."""
    log = await broker.partition(T, 0)
    fetch = log.fetch

    async def late(offset: int, limits: ReadLimits) -> ReadResult:
        monkeypatch.undo()
        for _ in range(3):
            await append(broker, "e")
        log._reader.trim(cut)
        return await fetch(offset, limits)

    monkeypatch.setattr(log, "fetch", late)
    url = f"{PARTITION}/messages?limit=1&{query}"
    answer = await raw.get(url, headers={"accept": accept})
    assert answer.status_code == 200, answer.text
    if accept == "text/event-stream":
        assert f"\nid: {first}\n" in answer.text
    else:
        assert answer.headers["start-offset"] == str(first)


@pytest.mark.parametrize(
    ("query", "fetches"), [("from=earliest", 2), ("from=latest", 2), ("from=0", 1)]
)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_start_is_found_again_once_and_only_if_it_was_not_named(
    broker: Broker,
    raw: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    fetches: int,
    accept: str,
) -> None:
    log = await broker.partition(T, 0)
    fetch = log.fetch
    asked: list[int] = []

    async def too_late(offset: int, limits: ReadLimits) -> ReadResult:
        asked.append(offset)
        await append(broker, "e")
        log._reader.trim(offset + 1)
        return await fetch(offset, limits)

    monkeypatch.setattr(log, "fetch", too_late)
    answer = await raw.get(f"{PARTITION}/messages?{query}", headers={"accept": accept})
    assert (answer.status_code, answer.json()["code"]) == (410, "offset_trimmed")
    assert len(asked) == fetches


async def trimmed_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, number: int, cut: int
) -> None:
    """Have messages appended, and others trimmed, as that fetch of the partition begins."""
    log = await broker.partition(T, 0)
    fetch, asked = log.fetch, list[int]()

    async def late(offset: int, limits: ReadLimits) -> ReadResult:
        asked.append(offset)
        if len(asked) == number:
            for _ in range(3):
                await append(broker, "e")
            log._reader.trim(cut)
        return await fetch(offset, limits)

    monkeypatch.setattr(log, "fetch", late)


@pytest.mark.parametrize(
    ("query", "cut", "first"),
    [("from=earliest", 3, 3), ("from_time=1001", 3, 3), ("from=latest", 7, 7)],
)
async def test_a_stream_that_has_sent_nothing_begins_after_what_was_trimmed(
    broker: Broker,
    raw: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    cut: int,
    first: int,
) -> None:
    """It had its status when it waited for its turn."""
    await trimmed_later(broker, monkeypatch, 2, cut)
    url = f"{PARTITION}/messages?limit=1&{query}"
    answer = await raw.get(url, headers={"accept": "text/event-stream"})
    assert "event: problem" not in answer.text
    assert [line for line in answer.text.splitlines() if line.startswith("id: ")] == [
        f"id: {first}"
    ]
    assert f'"next_offset":{first},' in answer.text  # the position, before the message
    assert answer.text.index(f'"next_offset":{first},') < answer.text.index("id: ")


@pytest.mark.parametrize(
    ("query", "number", "ids"), [("from=0", 2, 0), ("from=earliest", 3, 6), ("from=latest", 3, 3)]
)
async def test_a_stream_ends_where_what_its_client_awaits_next_was_trimmed(
    broker: Broker,
    raw: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    number: int,
    ids: int,
) -> None:
    """The client has named the offset, or knows it from the messages before."""
    if query == "from=latest":
        await trimmed_later(broker, monkeypatch, 2, 0)
    await trimmed_later(broker, monkeypatch, number, 11 if ids == 3 else 8)
    url = f"{PARTITION}/messages?{query}"
    answer = await raw.get(url, headers={"accept": "text/event-stream"})
    assert "offset_trimmed" in answer.text.split("event: problem")[1]
    assert answer.text.count("id: ") == ids


async def test_a_stream_that_finds_no_later_start_ends(
    broker: Broker, raw: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await broker.partition(T, 0)
    fetch, asked = log.fetch, list[int]()

    async def unreadable(offset: int, limits: ReadLimits) -> ReadResult:
        asked.append(offset)
        if len(asked) == 1:
            return await fetch(offset, limits)
        raise FencelogError(ErrorCode.OFFSET_TRIMMED, "trimmed", earliest_offset=0)

    monkeypatch.setattr(log, "fetch", unreadable)
    for query in ("from=earliest", "from=latest"):
        asked.clear()
        url = f"{PARTITION}/messages?{query}"
        answer = await raw.get(url, headers={"accept": "text/event-stream"})
        assert "offset_trimmed" in answer.text.split("event: problem")[1]
        assert len(asked) == 2


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({"from_time": "1", "from": "0"}, "from_time"),
        ({"from_time": "-1"}, "from_time"),
        ({"from_time": "now"}, "from_time"),
        ({"view": "other"}, "view"),
    ],
)
async def test_what_cannot_be_asked(
    raw: httpx.AsyncClient, query: dict[str, str], parameter: str
) -> None:
    answer = await raw.get(f"{PARTITION}/messages", params=query)
    assert (answer.status_code, answer.json()["parameter"]) == (400, parameter)


async def test_offsets_of_a_partition_and_of_all(
    raw: httpx.AsyncClient, client: FencelogClient
) -> None:
    answer = await raw.get(f"{PARTITION}/offsets", params={"time": 1100})
    assert answer.json() == {
        "partition": 0,
        "time": 1100,
        "offset": 2,
        "earliest_offset": 0,
        "tail_offset": 6,
    }
    assert await client.offset_for_time("ns/t", 0, 1101) == 5
    assert [o["offset"] for o in await client.offsets("ns/t", 1001)] == [2, 0]
    assert [o["tail_offset"] for o in await client.offsets("ns/t")] == [6, 0]
    with pytest.raises(FencelogError) as raised:
        await client.offset_for_time("ns/t", 7, 0)
    assert raised.value.code is ErrorCode.NOT_FOUND
    assert (await raw.get(f"{URL}/offsets", params={"time": "x"})).status_code == 400


async def test_positions_are_of_one_moment(
    broker: Broker, client: FencelogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset below the tail is that of a message that was found, whatever is appended during the
    search."""
    search = PartitionLog.offset_for_time

    async def appended_meanwhile(log: PartitionLog, time_us: int) -> int:
        found = await search(log, time_us)
        await append(broker, "e")
        return found

    monkeypatch.setattr(PartitionLog, "offset_for_time", appended_meanwhile)
    positions = await client.partition_offsets("ns/t", 0, 9999)
    assert (positions["offset"], positions["tail_offset"]) == (6, 6)


async def test_a_broker_asks_the_owners_of_the_other_partitions(
    broker: Broker, fake_broker: FakeBroker, fake_bookies: FakeBookies, serve: Serve, url: str
) -> None:
    await fake_broker.topics.create(T, TopicConfig(2))
    fake_broker.elsewhere = {(T, 0): url, (T, 1): url}
    app = app_over(fake_broker, fake_bookies)
    async with serve(app) as other, FencelogClient(other) as client:
        assert [o["offset"] for o in await client.offsets("ns/t", 1001)] == [2, 0]
        assert (await client.compact("ns/t", 0))["partition"] == 0


async def test_the_compacted_view_in_every_form(
    raw: httpx.AsyncClient, client: FencelogClient, broker: Broker
) -> None:
    before = await raw.get(f"{PARTITION}/messages", params={"view": "compacted"})
    assert offsets(before) == list(range(6))  # there is no view yet
    (state,) = await compact_now(client, "ns/t", 0)
    assert (state["state"], state["end_offset"], state["messages"]) == ("ready", 6, 4)
    await append(broker, "a")
    answer = await raw.get(f"{PARTITION}/messages", params={"view": "compacted", "limit": 3})
    assert offsets(answer) == [2, 3, 4]
    assert [m["publish_time"] for m in answer.json()["messages"]] == [1100, 1100, 1100]
    assert (answer.headers["next-offset"], answer.headers["tail-offset"]) == ("5", "7")
    answer = await raw.get(f"{PARTITION}/messages", params={"view": "compacted", "from": 4})
    assert offsets(answer) == [4, 5]
    assert (answer.json()["next_offset"], answer.json()["at_tail"]) == (6, False)
    answer = await raw.get(f"{PARTITION}/messages", params={"view": "compacted", "from": 6})
    assert (offsets(answer), answer.headers["at-tail"]) == ([6], "true")
    batches = [b async for b in client.batches("ns/t", 0, view="compacted")]
    assert [(b.base_offset, b.count, b.publish_time_us) for b in batches] == [
        (2, 3, 1100),
        (5, 1, 1200),
        (6, 1, 1200),
    ]
    values = [message.value for b in batches for message in decode_batch(b.batch)]
    assert values == [b"2", b"3", b"4", b"5", b"6"]
    lines = await raw.get(
        f"{PARTITION}/messages",
        params={"view": "compacted", "from_time": 1101},
        headers={"accept": "application/x-ndjson"},
    )
    assert [line.count('"offset":5') for line in lines.text.splitlines()] == [1]
    events = await raw.get(
        f"{PARTITION}/messages",
        params={"view": "compacted", "limit": 5},
        headers={"accept": "text/event-stream"},
    )
    ids = [line for line in events.text.splitlines() if line.startswith("id: ")]
    assert ids == ["id: 2", "id: 3", "id: 4", "id: 5", "id: 6"]


async def test_the_policy_switches_compaction_on(
    broker: Broker, clock: Clock, raw: httpx.AsyncClient, client: FencelogClient
) -> None:
    log = await broker.partition(T, 0)
    assert (await client.compaction("ns/t", 0))["state"] == "none"
    log.policy = log.policy.with_overrides({"compaction_ms": 1000})
    clock.clock_us = 10_000_000
    broker.compaction._wakeup.set()  # it need not wait for the next look
    await until(lambda: log.compaction.horizon >= 6)
    assert (await raw.get(f"{PARTITION}/compaction")).json()["state"] == "ready"
    assert (await raw.get(f"{PARTITION}/internal")).json()["compaction"]["end_offset"] == 6


async def test_a_compaction_that_failed_is_told(client: FencelogClient, broker: Broker) -> None:
    log = await broker.partition(T, 0)
    error = FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "two are gone")
    ledgers: Any = log.compaction._factory.ledgers
    ledgers.create_errors = [error]
    with pytest.raises(FencelogError) as raised:
        await compact_now(client, "ns/t", None)
    assert "two are gone" in raised.value.detail


@pytest.mark.parametrize("view", ["log", "compacted"])
async def test_another_topic_of_that_name_is_not_the_one_that_is_meant(
    broker: Broker, serve: Serve, view: str
) -> None:
    topic_id = (await broker.topics.get(T)).topic_id
    async with (
        serve(app_over(broker, FakeBookies())) as url,
        FencelogClient(url) as client,
    ):
        page = await client.read(str(T), 0, "earliest", view=view, topic_id=topic_id)
        assert page.batches
        await broker.topics.delete(T)
        await broker.topics.create(T, TopicConfig(2))
        await append(broker, "abcdefgh")
        assert (await client.read(str(T), 0, "earliest", view=view)).tail_offset == 8
        with pytest.raises(FencelogError, match=topic_id) as raised:
            await client.read(str(T), 0, "earliest", view=view, topic_id=topic_id)
        assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
