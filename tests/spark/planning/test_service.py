"""The requests of a query: topics, segments, and the offsets of times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient, ReadPage
from fencelog.api.client.retry import retry_idempotent
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, encode_batch
from fencelog.spark_connector.planning import service
from fencelog.spark_connector.planning.bounds import TimeOffset
from fencelog.spark_connector.planning.options import parse_batch_options
from fencelog.spark_connector.planning.service import fetch, fetch_with
from fencelog.spark_connector.source import FencelogReader
from tests.support.virtual_time import VirtualTimeLoop

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    place: Path = tmp_path_factory.mktemp("planning")
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    process = await ChildProcess.start("standalone", command, log=place / "log")
    yield process.announcement["http"]
    await process.stop()


class Owners:
    """The client of a service whose partition ends at offset 100, as its owner has confirmed; the
    answers to requests by time come in turn from brokers with these tails. Offsets below ``found``
    are of earlier messages."""

    def __init__(self, *tails: int, found: int = 95) -> None:
        self.tails = list(tails)
        self.denials: list[ErrorCode] = []
        self._found = found

    async def topic(self, topic: str, *, confirmed: bool) -> dict[str, Any]:
        assert confirmed, "a partition that a lagging server does not know would be left out"
        return {"partitions": 1}

    async def segments(self, topic: str, partition: int, **_: Any) -> dict[str, Any]:
        if self.denials:
            raise FencelogError(self.denials.pop(), "not there")
        ends = {"earliest_offset": 100, "end_offset": 100}
        return {"topic_id": "id", "partition": 0, "segments": [], "bookies": {}, **ends}

    async def partition_offsets(self, topic: str, partition: int, time_us: int) -> dict[str, Any]:
        tail = self.tails.pop(0)
        return {"offset": min(self._found, tail), "tail_offset": tail}

    async def read(self, topic: str, partition: int, start: int, **_: Any) -> ReadPage:
        tail = self.tails.pop(0)
        return ReadPage(tail, tail, True, [], start_offset=min(self._found, tail))


@pytest.mark.parametrize("code", [ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND])
async def test_what_is_listed_and_not_known_to_its_owner_is_asked_for_again(
    code: ErrorCode,
) -> None:
    options = parse_batch_options({"server": "http://127.0.0.1:1", "topic": "t"})
    brokers = Owners()
    brokers.denials = [code]
    found = await retry_idempotent(lambda: fetch_with(cast("Any", brokers), options))
    assert [answer.end_offset for answer in found.partitions] == [100]


@pytest.mark.parametrize("view", ["log", "compacted"])
async def test_a_broker_that_was_replaced_does_not_tell_the_offset_of_a_time(view: str) -> None:
    """It does not know the messages that may be the first ones, and is asked again."""
    given = {"server": "http://127.0.0.1:1", "topic": "t", "view": view}
    options = parse_batch_options(given | {"startingTimestamp": "1"})
    brokers = Owners(90, 90, 100)
    with pytest.raises(FencelogError, match="knows those up to 90") as raised:
        await fetch_with(cast("Any", brokers), options)
    assert raised.value.code is ErrorCode.READ_UNKNOWN
    found = await retry_idempotent(lambda: fetch_with(cast("Any", brokers), options))
    assert found.times == {("default/t", 0, 1000): TimeOffset(95, is_found=True)}
    assert brokers.tails == []
    for tail, offset in ((90, 80), (100, 100), (120, 120)):
        found = await fetch_with(cast("Any", Owners(tail, found=offset)), options)
        expected = TimeOffset(offset, is_found=offset < tail)
        assert found.times == {("default/t", 0, 1000): expected}


async def test_a_broker_that_was_replaced_has_time_to_notice_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notices_s = 35

    class Replaced(Owners):
        def __init__(self, _: object) -> None:
            super().__init__()

        async def __aenter__(self) -> Replaced:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def partition_offsets(self, *_: Any) -> dict[str, Any]:
            tail = 90 if anyio.current_time() < notices_s else 100
            return {"offset": tail, "tail_offset": tail}

    def query() -> None:
        given = {"server": "http://127.0.0.1:1", "topic": "t", "startingTimestamp": "1"}
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            found = runner.run(fetch(parse_batch_options(given)))
        assert found.times == {("default/t", 0, 1000): TimeOffset(100, is_found=False)}

    monkeypatch.setattr(service, "FencelogClient", Replaced)
    await anyio.to_thread.run_sync(query)


async def rows(server: str, topic: str, **options: str) -> list[tuple[int, bytes]]:
    """The offsets and values of a query of the compacted view, without Spark around it."""
    given = {"server": server, "topic": topic, "view": "compacted"} | options
    reader = FencelogReader(parse_batch_options(given), ["offset", "value"])

    def read() -> list[tuple[int, bytes]]:
        return [
            (row["offset"], row["value"])
            for task in reader.partitions()
            for batch in reader.read(task)
            for row in batch.to_pylist()
        ]

    return await anyio.to_thread.run_sync(read)


@pytest.mark.processes
async def test_times_bound_the_compacted_view_also_where_the_log_was_trimmed(server: str) -> None:
    """Its first message is older than every message of the log."""
    topic = "default/prices"
    async with FencelogClient(server) as client:
        await client.create_topic(topic, compaction_ms=3_600_000)
        for version in range(3):
            prices = [Message(b"%d" % version, key) for key in (b"a", b"b")]
            await client.append_batch(topic, encode_batch(prices), partition=0)
        await client.compact(topic, 0)
        while (state := await client.compaction(topic, 0))["state"] != "ready":
            assert state["state"] != "failed", state
            await anyio.sleep(0.05)
        await client.append_batch(topic, encode_batch([Message(b"3", b"b")]), partition=0)
        (newest,) = (await client.read(topic, 0, 6)).batches
        assert (await client.trim(topic, 0, 6))["earliest_offset"] == 6
    published = (EPOCH + timedelta(microseconds=newest.publish_time_us)).isoformat()
    old, new = [(4, b"2"), (5, b"2")], [(6, b"3")]
    assert await rows(server, topic) == old + new
    assert await rows(server, topic, startingTimestamp="1") == old + new
    assert await rows(server, topic, startingTimestamp=published) == new
    assert await rows(server, topic, endingTimestamp=published) == old
    assert await rows(server, topic, endingTimestamp="1") == []
    assert await rows(server, topic, startingTimestamp="9999-01-01T00:00:00Z") == []
