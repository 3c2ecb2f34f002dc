"""A streaming query while the processes of a real cluster are killed, and after its own end.

Whatever dies, its rows are the topic's messages: dense offsets from 0 on, none twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.client.producer import ExactlyOnceProducer
from fencelog.api.local_cluster.cluster import Cluster
from tests.spark.support.streams import HAS_LIMITS, Stream, batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="session"),
]

TOPIC = "default/followed"
PARTITIONS = 2
CATCH_UP_S = 90
"""A generous time for a takeover and some micro-batches on a busy machine."""


async def produce(client: FencelogClient, until: int) -> None:
    """Append to every partition up to this offset: message n of each is the text n."""
    for partition in range(PARTITIONS):
        producer = ExactlyOnceProducer(client, TOPIC, f"p-{partition}", partition=partition)
        number = await producer.resume()
        while number < until:
            values = [b"%d" % n for n in range(number, min(until, number + 50))]
            await producer.append(values)
            number += len(values)


async def owner(client: FencelogClient, partition: int) -> str:
    return next(
        str(each["url"]) for each in await client.owners(TOPIC) if each["partition"] == partition
    )


async def caught_up(stream: Stream, query: StreamingQuery, count: int) -> None:
    with anyio.fail_after(CATCH_UP_S):
        while len(stream.rows()) < count * PARTITIONS:
            assert query.exception() is None
            await anyio.sleep(0.3)


@pytest.mark.thorough
async def test_rows_are_the_messages_whatever_is_killed(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    options = {"server": ",".join(cluster.urls), "topic": TOPIC, "startingOffsets": "earliest"}
    stream = Stream(spark, tmp_path, options | {"subscription": "etl", "minPartitions": "3"})
    async with FencelogClient(cluster.urls) as client:
        await client.create_topic(TOPIC, partitions=PARTITIONS)
        await produce(client, 300)
        query = stream.writer().start()
        try:
            await caught_up(stream, query, 300)

            killed = cluster.broker_at(await owner(client, 0))
            await killed.kill()
            await produce(client, 600)
            await caught_up(stream, query, 600)
            await cluster.restart(killed)

            await cluster.bookies[0].kill()
            await produce(client, 900)
            await caught_up(stream, query, 900)
        finally:
            query.stop()  # at any point of a micro-batch

        await cluster.restart(cluster.bookies[0])
        killed = cluster.bookies[1]
        await killed.kill()
        stream.run()
        await produce(client, 1000)
        assert batches(stream.run()) == [100 * PARTITIONS]
        stats = await client.subscription_stats(TOPIC, "etl")
        await cluster.restart(killed)
    # Spark before 4.2 does not say when the last micro-batch of a run has been processed.
    behind = 0 if HAS_LIMITS else 100
    assert [each["backlog_messages"] for each in stats] == [behind] * PARTITIONS
    assert stream.rows() == [
        (TOPIC, partition, n, b"%d" % n) for partition in range(PARTITIONS) for n in range(1000)
    ]
