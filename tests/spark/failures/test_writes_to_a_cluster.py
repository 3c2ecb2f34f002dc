"""A query from topic to topic with ``exactlyOnce=segments``, while processes of a real cluster are
killed, partitions are added on both sides and the source is trimmed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from pyspark.errors import StreamingQueryException

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import Cluster
from tests.spark.support.accounts import fill, tails, times_found
from tests.spark.support.copies import Copy
from tests.spark.support.streams import HAS_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.0 reads all at once"),
]

SOURCE, SINK = "writes/source", "writes/sink"
STEP = 2_000
"""The numbers that each step of the test appends, in several micro-batches."""

CATCH_UP_S = 90
"""A generous time for a takeover and some micro-batches on a busy machine."""


async def reached(client: FencelogClient, query: StreamingQuery, count: int) -> None:
    """Wait until the sink has so many rows."""
    with anyio.fail_after(CATCH_UP_S):
        while sum(await tails(client, SINK)) < count:
            assert (failure := query.exception()) is None, str(failure)
            await anyio.sleep(0.1)


async def append(client: FencelogClient, partition: int, step: int) -> None:
    await fill(client, SOURCE, partition, range(step * STEP, (step + 1) * STEP))


async def test_rows_are_written_once_whatever_is_killed(
    cluster: Cluster, client: FencelogClient, spark: SparkSession, server: str, tmp_path: Path
) -> None:
    await client.create_topic(SOURCE, partitions=2)
    await client.create_topic(SINK, partitions=2)
    copy = Copy(spark, tmp_path, server, SOURCE, SINK, {"maxOffsetsPerTrigger": "500"})
    await append(client, 0, 0)
    query = copy.writer(exactlyOnce="segments").start()
    try:
        await reached(client, query, 500)
        owners = {each["partition"]: str(each["url"]) for each in await client.owners(SINK)}
        killed = cluster.broker_at(owners[0])
        await killed.kill()  # while it commits, or a task asks it for a ledger
        await append(client, 1, 1)
        await reached(client, query, 2 * STEP)
        await cluster.restart(killed)

        await append(client, 0, 2)
        await reached(client, query, 2 * STEP + 500)
        await cluster.bookies[2].kill()  # while tasks write to it and read from it
        await reached(client, query, 3 * STEP)
        await cluster.restart(cluster.bookies[2])

        await append(client, 1, 3)
        await client.update_topic(SOURCE, {}, partitions=3)
        await client.update_topic(SINK, {}, partitions=4)
        await append(client, 2, 4)
        await client.trim(SOURCE, 0, STEP)  # what has been copied
        await reached(client, query, 5 * STEP)
        assert all(tail > 0 for tail in await tails(client, SINK))
    finally:
        query.stop()
    copy.run(exactlyOnce="segments")
    assert times_found(spark, server, SINK) == dict.fromkeys(range(5 * STEP), 1)


async def test_messages_that_are_trimmed_before_a_running_query_takes_them(
    client: FencelogClient, spark: SparkSession, server: str, tmp_path: Path
) -> None:
    source, sink = "writes/trimmed", "writes/trimmed-sink"
    await client.create_topic(source)
    await client.create_topic(sink)
    rare = {"minOffsetsPerTrigger": "100", "maxTriggerDelay": "1h"}
    copy = Copy(spark, tmp_path, server, source, sink, rare)
    await fill(client, source, 0, range(100))
    query = copy.writer(exactlyOnce="segments").start()
    try:
        query.processAllAvailable()
        await fill(client, source, 0, range(100, 150))
        await client.trim(source, 0, 120)
        with pytest.raises(StreamingQueryException, match="messages 100 to 119 of partition 0 of"):
            await anyio.to_thread.run_sync(query.awaitTermination, CATCH_UP_S)
    finally:
        query.stop()
    copy.options["failOnDataLoss"] = "false"
    copy.run(exactlyOnce="segments")
    kept = [*range(100), *range(120, 150)]
    assert times_found(spark, server, sink) == dict.fromkeys(kept, 1)
