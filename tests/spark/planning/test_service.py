"""The requests of a query: topics, segments, and the offsets of times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio.to_thread
import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.record_batch import Message, encode_batch
from fencelog.spark_connector.planning.options import parse_batch_options
from fencelog.spark_connector.source import FencelogReader

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    place: Path = tmp_path_factory.mktemp("planning")
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    process = await ChildProcess.start("standalone", command, log=place / "log")
    yield process.announcement["http"]
    await process.stop()


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
