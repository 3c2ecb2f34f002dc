"""Topics as streams, in a real Spark session over a real service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from pyspark.errors import StreamingQueryException

from fencelog.api.client import FencelogClient
from tests.spark.support.copies import Copy
from tests.spark.support.streams import (
    HAS_LIMITS,
    Stream,
    append,
    batches,
    forget_last_commit,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Open = Callable[..., Stream]


async def test_a_run_reads_what_there_is_within_its_limits(
    client: FencelogClient, stream: Open
) -> None:
    """Then a later run goes on, with the partition that was added meanwhile."""
    topic = "stream/limits"
    await client.create_topic(topic, partitions=2)
    rows = await append(client, topic, 0, 3000) + await append(client, topic, 1, 1000)
    limit = {"maxOffsetsPerTrigger": "1600"}
    if HAS_LIMITS:
        follower = stream(topic=topic, subscription="etl", **limit)
        query = follower.run()
        assert batches(query) == [1600, 1600, 800]
        sizes = [json.loads(p.sources[0].latestOffset) for p in query.recentProgress]
        assert [size["messagesBehind"] for size in sizes[:3]] == [2400, 800, 0]
    else:
        follower = stream(topic=topic, subscription="etl")
        with pytest.raises(StreamingQueryException, match="does not support limits"):
            follower.run(**limit)
        assert batches(follower.run()) == [4000]
    assert follower.rows() == sorted(rows)
    stats = await client.subscription_stats(topic, "etl")
    # Spark before 4.2 does not say when the last micro-batch of a run has been processed.
    assert [each["backlog_messages"] for each in stats] == ([0, 0] if HAS_LIMITS else [3000, 1000])
    await client.update_topic(topic, {}, partitions=3)
    rows += await append(client, topic, 2, 500) + await append(client, topic, 0, 10)
    assert batches(follower.run(readMode="broker")) == [510]
    assert follower.rows() == sorted(rows)


async def test_a_running_query_follows_topics_of_a_pattern(
    client: FencelogClient, stream: Open
) -> None:
    """Messages, partitions and topics that come while it runs, and nothing twice."""
    await client.create_topic("stream/a1", partitions=1)
    rows = await append(client, "stream/a1", 0, 100)
    limits = {"maxBytesPerTrigger": "5000"} if HAS_LIMITS else {}
    follower = stream(topicsPattern="stream/a.*", **limits)
    query = follower.writer().start()
    try:
        query.processAllAvailable()
        rows += await append(client, "stream/a1", 0, 2000)
        await client.update_topic("stream/a1", {}, partitions=2)
        rows += await append(client, "stream/a1", 1, 300)
        await client.create_topic("stream/a2", partitions=2)
        rows += await append(client, "stream/a2", 1, 50)
        with anyio.fail_after(60):
            while len(follower.rows()) < len(rows):
                await anyio.sleep(0.2)
                assert query.exception() is None
    finally:
        query.stop()
    assert follower.rows() == sorted(rows)
    assert len(batches(query)) > 3 or not HAS_LIMITS


async def test_a_query_without_a_start_begins_at_the_end(
    client: FencelogClient, stream: Open
) -> None:
    topic = "stream/latest"
    await client.create_topic(topic, partitions=1)
    await append(client, topic, 0, 20)
    follower = stream(topic=topic, startingOffsets="latest")
    follower.run()
    rows = await append(client, topic, 0, 5)
    follower.run()
    assert [row[2] for row in follower.rows()] == [row[2] for row in rows] == [*range(20, 25)]


async def test_trimmed_messages_end_the_query_unless_their_loss_is_accepted(
    client: FencelogClient, stream: Open
) -> None:
    """A subscription would have kept them."""
    topic = "stream/trimmed"
    await client.create_topic(topic, partitions=1)
    rows = await append(client, topic, 0, 100)
    follower = stream(topic=topic)
    follower.run()
    rows += await append(client, topic, 0, 100)
    assert (await client.trim(topic, 0, 150))["held_back"] is False
    with pytest.raises(StreamingQueryException, match="messages 100 to 149 of partition 0 of"):
        follower.run()
    follower.run(failOnDataLoss="false", subscription="keeper")
    assert follower.rows() == rows[:100] + rows[150:]
    await append(client, topic, 0, 10)
    trimmed = await client.trim(topic, 0, 205)
    assert trimmed["held_back"] is True
    assert trimmed["earliest_offset"] == (200 if HAS_LIMITS else 150)  # one micro-batch behind


@pytest.mark.thorough
async def test_a_first_batch_is_repeated_after_its_topic_has_grown(
    spark: SparkSession, client: FencelogClient, server: str, tmp_path: Path
) -> None:
    """Spark asks where the query begins, which includes the new partition, unlike the batch."""
    source, sink = "stream/grown", "stream/grown-copy"
    for topic in (source, sink):
        await client.create_topic(topic, partitions=1)
    await append(client, source, 0, 100)
    copy = Copy(spark, tmp_path, server, source, sink)
    assert batches(copy.run(exactlyOnce="segments")) == [100]
    forget_last_commit(copy.checkpoint)
    await client.update_topic(source, {}, partitions=2)
    await append(client, source, 1, 10)
    found = batches(copy.run(exactlyOnce="segments"))
    if not HAS_LIMITS:  # after a failed batch only that
        found += batches(copy.run(exactlyOnce="segments"))
    assert found == [100, 10]
    assert (await client.offsets(sink))[0]["tail_offset"] == 110


async def test_a_topic_that_was_created_again_is_another_topic(
    client: FencelogClient, stream: Open
) -> None:
    topic = "stream/again"
    first = await client.create_topic(topic, partitions=1)
    rows = await append(client, topic, 0, 10)
    follower = stream(topic=topic)
    follower.run()
    await client.delete_topic(topic)
    second = await client.create_topic(topic, partitions=1)
    await append(client, topic, 0, 30)
    with pytest.raises(StreamingQueryException) as raised:
        follower.run(failOnDataLoss="false")
    assert f"with id {first['topic_id']}, now its id is {second['topic_id']}" in str(raised.value)
    assert follower.rows() == rows


async def test_what_is_wrong_is_named(client: FencelogClient, stream: Open) -> None:
    topic = "stream/right"
    await client.create_topic(topic, partitions=1)
    await client.create_topic("stream/wrong", partitions=1)
    follower = stream(topic=topic)
    follower.run()
    with pytest.raises(StreamingQueryException, match=f"checkpoint is of topic {topic}, the query"):
        follower.run(topic="stream/wrong")
    with pytest.raises(StreamingQueryException, match=r"cannot reach http://127\.0\.0\.1:1"):
        follower.run(server="http://127.0.0.1:1")
    with pytest.raises(StreamingQueryException, match="'endingOffsets' is for batch reads"):
        follower.run(endingOffsets="latest")
    await client.create_subscription(topic, "loose", durable=False)
    await append(client, topic, 0, 1)
    with pytest.raises(StreamingQueryException, match="'loose' of topic stream/right is not dur"):
        follower.run(subscription="loose")
