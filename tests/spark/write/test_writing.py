"""Tables and streams into topics, by a real Spark session to a real service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from fencelog.api.client import FencelogClient
from fencelog.api.client.commits import PartitionCommits
from fencelog.api.routing.partitioner import partition_of_key
from fencelog.ledgers.record_batch import Message, decode_batch, encode_batch
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.write import segments
from fencelog.spark_connector.write.limits import TARGET_BYTES
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions
from fencelog.spark_connector.write.segments import TaskLedgers, write_ledgers
from fencelog.spark_connector.write.target import Job, WriteTarget, reached
from tests.run_suite import thorough_but
from tests.spark.support.copies import Copy
from tests.spark.support.streams import HAS_LIMITS, batches, forget_last_commit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = 30_000
MODES = ("none", "segments")


async def messages_of(
    client: FencelogClient, topic: str, partition: int = 0
) -> list[tuple[int, Message]]:
    """Return all messages of a partition with their offsets, which are dense."""
    found: list[tuple[int, Message]] = []
    while not (page := await client.read(topic, partition, len(found))).at_tail or page.batches:
        for batch in page.batches:
            assert batch.base_offset == len(found)
            found += enumerate(decode_batch(batch.batch), len(found))
    return found


def table(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(rows).selectExpr(
        "IF(id % 3 = 0, NULL, CAST(id % 100 AS STRING)) AS key",
        "CAST(id AS STRING) AS value",
        "timestamp_micros(1600000000000000 + id) AS event_time",
        "IF(id % 2 = 0, array(named_struct('name', 'h', 'value', CAST('v' AS BINARY))), NULL)"
        " AS headers",
    )


def expected(number: int) -> Message:
    key = None if number % 3 == 0 else b"%d" % (number % 100)
    headers = (("h", b"v"),) if number % 2 == 0 else ()
    return Message(b"%d" % number, key, 1_600_000_000_000_000 + number, headers)


def save(frame: DataFrame, server: str, topic: str, **options: str) -> None:
    given = {"server": server, "topic": topic} | options
    frame.write.format("fencelog").mode("append").options(**given).save()


@pytest.mark.parametrize("mode", MODES)
async def test_every_row_is_a_message_in_the_partition_of_its_key(
    spark: SparkSession, server: str, client: FencelogClient, mode: str
) -> None:
    topic = f"write/table-{mode}"
    await client.create_topic(topic, partitions=3)
    save(table(spark), server, topic, exactlyOnce=mode)
    values: Counter[int] = Counter()
    for partition in range(3):
        for _, message in await messages_of(client, topic, partition):
            number = int(message.value)
            values[number] += 1
            assert message == expected(number)
            if message.key is not None:
                assert partition == partition_of_key(message.key, 3)
    assert values == dict.fromkeys(range(ROWS), 1)


@pytest.mark.parametrize("mode", MODES)
async def test_a_named_partition_and_text_alone_are_enough(
    spark: SparkSession, server: str, client: FencelogClient, mode: str
) -> None:
    topic = f"write/named-{mode}"
    await client.create_topic(topic, partitions=2)
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value", "INT(id % 2) AS partition")
    save(rows, server, topic, exactlyOnce=mode)
    for partition in range(2):
        found = await messages_of(client, topic, partition)
        assert sorted(int(m.value) for _, m in found) == list(range(partition, 100, 2))


@pytest.mark.parametrize(
    ("rows", "options", "named"),
    [
        ("id AS value", {}, "column value bigint"),
        ("CAST(id AS STRING) AS text", {}, "column text string"),
        ("CAST(id AS STRING) AS value", {"exactlyOnce": "dedup"}, "for streams"),
        ("CAST(id AS STRING) AS value", {"exactly": "x"}, "unknown option 'exactly'"),
        ("CAST(id AS STRING) AS value", {"topic": "write/absent"}, "topic_not_found"),
        ("CAST(id AS STRING) AS value, INT(7) AS partition", {}, "has 1 partitions, no 7"),
        ("CAST(NULL AS STRING) AS value", {}, "NULL cannot be stored"),
    ],
)
async def test_what_cannot_be_written_is_named(
    spark: SparkSession,
    server: str,
    client: FencelogClient,
    rows: str,
    options: dict[str, str],
    named: str,
) -> None:
    await client.create_topic("write/wrong")
    frame = spark.range(1).selectExpr(*[part.strip() for part in rows.split(",")])
    with pytest.raises(PySparkException, match=named):
        save(frame, server, **{"topic": "write/wrong"} | options)


@pytest.mark.parametrize("mode", MODES)
async def test_a_table_is_written_while_its_topic_grows(
    spark: SparkSession, server: str, client: FencelogClient, mode: str
) -> None:
    topic = f"write/growing-{mode}"
    await client.create_topic(topic)

    def grow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import asyncio

        from pyspark import TaskContext

        async def add_partition(partitions: int) -> None:
            async with FencelogClient(server) as admin:
                await admin.update_topic(topic, {}, partitions=partitions)

        context = TaskContext.get()
        if context is not None and context.partitionId() in (2, 5):
            asyncio.run(add_partition(context.partitionId()))
        yield from batches

    rows = spark.range(0, 800, 1, 8).selectExpr("CAST(id AS STRING) AS key")
    rows = rows.selectExpr("key", "key AS value").mapInArrow(grow, "key STRING, value STRING")
    save(rows, server, topic, exactlyOnce=mode)
    assert (await client.topic(topic))["partitions"] == 5
    assert await values_of(client, topic, 5) == list(range(800))


async def test_overwriting_is_refused(
    spark: SparkSession, server: str, client: FencelogClient
) -> None:
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    writer = frame.write.format("fencelog").options(server=server, topic="write/wrong")
    with pytest.raises(PySparkException, match="never overwritten"):
        writer.mode("overwrite").save()


# -- streams ---------------------------------------------------------------------------------------


async def fill(client: FencelogClient, topic: str, start: int, count: int) -> None:
    for partition in range(2):
        batch = encode_batch(
            [Message(b"%d/%d" % (partition, n), b"%d" % n) for n in range(start, start + count)]
        )
        await client.append_batch(topic, batch, partition=partition)


@pytest.mark.parametrize("mode", thorough_but(["segments"], ["segments", "dedup"]))
async def test_a_batch_that_a_stream_writes_again_is_there_once(
    spark: SparkSession, server: str, client: FencelogClient, mode: str, tmp_path: Path
) -> None:
    source, sink = f"write/from-{mode}", f"write/to-{mode}"
    await client.create_topic(source, partitions=2)
    await client.create_topic(sink, partitions=3)
    limits = {"maxOffsetsPerTrigger": "700"} if HAS_LIMITS else {}
    copy = Copy(spark, tmp_path, server, source, sink, limits)
    await fill(client, source, 0, 1_000)
    copy.run(exactlyOnce=mode)
    forget_last_commit(copy.checkpoint)
    again = copy.run(exactlyOnce=mode)
    assert batches(again) == ([600] if HAS_LIMITS else [2_000])
    await fill(client, source, 1_000, 500)
    copy.run(exactlyOnce=mode)
    values: Counter[bytes] = Counter()
    for partition in range(3):
        values.update(m.value for _, m in await messages_of(client, sink, partition))
    assert values == {b"%d/%d" % (p, n): 1 for p in range(2) for n in range(1_500)}


# -- what a driver may meet ------------------------------------------------------------------------


def rows_of(*values: bytes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    keys = [b"%d" % number for number in range(len(values))]
    return iter([pa.RecordBatch.from_pydict({"key": keys, "value": list(values)})])


async def attempt(
    options: WriteOptions,
    batch: int,
    numbers: range = range(30),
    *,
    target: WriteTarget | None = None,
) -> TaskLedgers:
    """Write these numbers as one task of the batch. ``target``: that of its driver, if it has begun
    before."""
    values = [b"%d" % number for number in numbers]
    found = target or await reached(options)
    return await write_ledgers(rows_of(*values), found, Job("spark-query", batch))


async def values_of(client: FencelogClient, topic: str, partitions: int) -> list[int]:
    values: list[int] = []
    for partition in range(partitions):
        found = await messages_of(client, topic, partition)
        values += [int(message.value) for _, message in found]
    return sorted(values)


async def test_a_batch_that_was_committed_to_one_partition_is_completed(
    server: str, client: FencelogClient
) -> None:
    topic = "write/half"
    await client.create_topic(topic, partitions=3)
    options = WriteOptions((server,), topic, ExactlyOnce.SEGMENTS)
    first = await attempt(options, 4)
    commits = PartitionCommits(client, topic, 0, "spark-query")
    here = [(each.ledger_id, each.messages) for each in first.ledgers if each.partition == 0]
    await commits.commit(4, here, partitions=3)  # then the driver dies, and the topic grows
    await client.update_topic(topic, {}, partitions=5)
    second = await attempt(options, 4)
    assert second.partitions == 3
    await segments.commit([second], options)
    await segments.abort([first], options)
    assert await values_of(client, topic, 5) == list(range(30))
    third = await attempt(options, 5)
    assert third.partitions == 5
    await segments.commit([third], options)
    assert await values_of(client, topic, 5) == sorted([*range(30)] * 2)


async def test_a_topic_that_grows_while_tasks_write(server: str, client: FencelogClient) -> None:
    """Those that begin later spread their rows as the first ones do: as the driver has found it."""
    topic = "write/grows"
    await client.create_topic(topic, partitions=2)
    options = WriteOptions((server,), topic, ExactlyOnce.SEGMENTS)
    target = await reached(options)
    tasks = []
    for number in range(6):
        numbers = range(number * 30, (number + 1) * 30)
        tasks.append(await attempt(options, 1, numbers, target=target))
        await client.update_topic(topic, {}, partitions=3 + number)
    assert {task.partitions for task in tasks} == {2}
    await segments.commit(tasks, options)
    assert await values_of(client, topic, 8) == list(range(180))


async def test_bookies_know_the_last_entry_of_a_task(server: str, client: FencelogClient) -> None:
    """Else the recovery at the commit copies all that was in flight together at the end."""
    topic = "write/known"
    await client.create_topic(topic)
    target = await reached(WriteOptions((server,), topic, ExactlyOnce.SEGMENTS))
    values = [b"x" * TARGET_BYTES] * 20  # each makes an entry
    task = await write_ledgers(rows_of(*values), target, Job("spark-query"))
    bookies = BookieTable(
        (await PartitionCommits(client, topic, 0, "another").create_ledger())["bookies"]
    )
    try:
        lacs = [
            await bookies.client(name).read_lac(task.ledgers[0].ledger_id)
            for name in bookies.available()
        ]
    finally:
        await bookies.close()
    assert lacs.count(len(values) - 1) >= 2


async def test_an_aborted_attempt_does_not_come_back(server: str, client: FencelogClient) -> None:
    topic = "write/aborted"
    await client.create_topic(topic, partitions=2)
    options = WriteOptions((server,), topic, ExactlyOnce.SEGMENTS)
    gone: Any = await attempt(options, 1)
    await segments.abort([gone], options)
    with pytest.raises(Exception, match="ledger_not_found"):
        await segments.commit([gone], options)
    again = await attempt(options, 2)
    await segments.commit([again], options)
    await segments.commit([again], options)
    await segments.abort([again], options)
    assert await values_of(client, topic, 2) == list(range(30))


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_committer_ends_with_its_table_and_not_with_a_batch(
    server: str, client: FencelogClient, is_stream: bool
) -> None:
    """A partition forgets those that have ended first: a query may repeat its batch next month."""
    topic = f"write/ends-{is_stream}".lower()
    await client.create_topic(topic)
    options = WriteOptions((server,), topic, ExactlyOnce.SEGMENTS)
    await segments.commit([await attempt(options, 1)], options, is_stream=is_stream)
    last = await PartitionCommits(client, topic, 0, "spark-query").last()
    assert last is not None
    assert last["ends"] is not is_stream
