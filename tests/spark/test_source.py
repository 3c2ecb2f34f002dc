"""Topics as tables, in a real Spark session over a real service."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from fencelog.api.client import FencelogClient
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, encode_values
from fencelog.spark_connector.source import COLUMNS, FencelogDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "spark/events"

HEADER = [StructField("name", StringType()), StructField("value", BinaryType())]
NOT_NULL_VALUE = StructField("value", BinaryType(), nullable=False)
NULLABLE = {"key": BinaryType(), "headers": ArrayType(StructType(HEADER))}

Read = Callable[..., "DataFrame"]


class Filled(Protocol):
    server: str
    messages: dict[tuple[int, int], Message]


def collected(frame: DataFrame) -> dict[tuple[int, int], Message]:
    rows = frame.selectExpr(
        "partition", "offset", "value", "key", "headers", "unix_micros(event_time) AS event_us"
    ).collect()
    messages = {
        (row.partition, row.offset): Message(
            bytes(row.value),
            None if row.key is None else bytes(row.key),
            row.event_us,
            tuple((header.name, bytes(header.value)) for header in row.headers),
        )
        for row in rows
    }
    assert len(messages) == len(rows), "an offset was read twice"
    return messages


def test_the_format_is_found_without_registration(read: Read) -> None:
    schema = read().schema
    assert {field.name: field.dataType.simpleString() for field in schema} == {
        name: kind for name, kind in COLUMNS.items() if name != "topic"
    }
    assert all(field.nullable for field in schema)


def test_workers_run_this_python(spark: SparkSession) -> None:
    versions = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable)
    assert versions.collect() == [sys.executable]


def test_rows_are_what_was_appended(read: Read, filled: Filled) -> None:
    assert collected(read()) == filled.messages


async def test_every_partition_lies_in_ledgers_of_every_kind(filled: Filled) -> None:
    async with FencelogClient(filled.server) as client:
        answers = [await client.segments(EVENTS, partition) for partition in range(3)]
    for answer in answers:
        states = [segment["ledger"]["state"] for segment in answer["segments"]]
        assert states == ["closed", "closed", "open"]
        assert [segment["bytes"] > 900_000 for segment in answer["segments"]] == [
            False,
            True,
            False,
        ]
        assert all(segment["bytes"] > 10_000 for segment in answer["segments"])


def test_count(read: Read, filled: Filled) -> None:
    assert read().count() == len(filled.messages)


@pytest.mark.parametrize(
    "options", [{"minPartitions": "7"}, {"targetPartitionBytes": "600000"}, {"minPartitions": "1"}]
)
def test_rows_are_the_same_however_they_are_split(
    read: Read, filled: Filled, options: dict[str, str]
) -> None:
    frame = read(**options)
    tasks = frame.rdd.getNumPartitions()
    assert tasks == 1 if options == {"minPartitions": "1"} else 4 <= tasks <= 7
    assert collected(frame) == filled.messages


@pytest.mark.parametrize("tasks", [1, 6])
def test_rows_are_the_same_through_brokers(read: Read, filled: Filled, tasks: int) -> None:
    frame = read(readMode="broker", minPartitions=str(tasks))
    assert tasks <= frame.rdd.getNumPartitions() <= tasks + 1
    assert collected(frame) == filled.messages


def test_the_compacted_view_has_the_newest_message_of_every_key(read: Read) -> None:
    prices = read("spark/prices", view="compacted").selectExpr(
        "CAST(key AS STRING) AS key", "CAST(CAST(value AS STRING) AS INT) AS price", "offset"
    )
    assert sorted(map(tuple, prices.collect())) == [
        ("a", 9, 27),
        ("b", 9, 28),
        ("b", 10, 30),
        ("c", 9, 29),
    ]
    assert read("spark/prices").count() == 31


def test_publish_times_rise_with_offsets(read: Read) -> None:
    row = (
        read()
        .selectExpr(
            "publish_time",
            "lag(publish_time) OVER (PARTITION BY partition ORDER BY offset) AS before",
        )
        .selectExpr(
            "min(publish_time) > current_timestamp() - INTERVAL 1 HOUR AS recent",
            "count_if(before > publish_time) AS falls",
        )
        .first()
    )
    assert row is not None
    assert row.recent
    assert row.falls == 0


def test_offsets_bound_what_is_read(read: Read, filled: Filled) -> None:
    starting, ending = {0: 100, 2: 9260}, {0: 9300, 1: 70}
    frame = read(
        startingOffsets='{"0": 100, "2": 9260}',
        endingOffsets='{"0": 9300, "1": 70}',
        minPartitions="5",
    )
    wanted = {
        (partition, offset): message
        for (partition, offset), message in filled.messages.items()
        if starting.get(partition, 0) <= offset < ending.get(partition, offset + 1)
    }
    assert collected(frame) == wanted


@pytest.mark.parametrize(
    "options", [{"topics": "spark/empty,spark/events"}, {"topicsPattern": "spark/e.*"}]
)
def test_several_topics_are_one_table(read: Read, filled: Filled, options: dict[str, str]) -> None:
    frame = read("", **options)
    assert frame.columns[0] == "topic"
    counts = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {EVENTS: len(filled.messages)}


def test_times_bound_what_is_read(read: Read) -> None:
    times = [row.us for row in read().selectExpr("unix_micros(publish_time) AS us").collect()]
    middle_ms = sorted(times)[len(times) // 2] // 1000
    before = read(endingTimestamp=str(middle_ms)).count()
    after = read(startingTimestamp=str(middle_ms)).count()
    assert before == sum(time < middle_ms * 1000 for time in times)
    assert before + after == len(times)
    assert read(startingTimestamp="9999-01-01T00:00:00Z").count() == 0


def test_lost_offsets_are_skipped_where_they_may_be(read: Read, filled: Filled) -> None:
    beyond = {"startingOffsets": '{"0": 0}', "endingOffsets": '{"0": 99999999}'}
    assert read(failOnDataLoss="false", **beyond).count() == len(filled.messages)


def test_nothing_is_read_from_the_end_or_an_empty_topic(read: Read) -> None:
    assert read(startingOffsets="latest").count() == 0
    assert read("spark/empty").count() == 0
    assert read("spark/empty").collect() == []


def test_few_rows_end_a_read_early(read: Read, filled: Filled) -> None:
    rows = read(minPartitions="1").limit(3).collect()
    assert [(row.partition, row.offset) for row in rows] == [(0, 0), (0, 1), (0, 2)]
    assert read().count() == len(filled.messages)


def test_sql_view_and_word_count(spark: SparkSession, filled: Filled) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW events USING fencelog "
        f"OPTIONS (server '{filled.server}', topic '{EVENTS}', includeHeaders 'false')"
    )
    rows = spark.sql(
        "SELECT word, count(*) AS n FROM (SELECT explode(split(CAST(value AS STRING), ' ')) AS word"
        " FROM events WHERE value LIKE '%the%') GROUP BY word ORDER BY n DESC, word LIMIT 3"
    ).collect()
    counted = Counter(
        word
        for message in filled.messages.values()
        if b"the" in message.value
        for word in message.value.decode().split(" ")
    )
    expected = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:3]
    assert [(row.word, row.n) for row in rows] == expected
    assert "headers" not in spark.table("events").columns


def test_a_schema_chooses_columns(read: Read, filled: Filled) -> None:
    rows = read(schema="value BINARY, offset BIGINT").collect()
    assert rows[0].__fields__ == ["value", "offset"]
    assert Counter(row.offset for row in rows) == Counter(o for _, o in filled.messages)
    with pytest.raises(PySparkException, match="no column size int; it has topic string"):
        read(schema="size INT").collect()


@pytest.mark.parametrize(
    "wrong",
    [
        StructField("key", BinaryType(), nullable=False),
        StructField("headers", ArrayType(StructType(HEADER), containsNull=False)),
        StructField("headers", ArrayType(StructType([HEADER[0], NOT_NULL_VALUE]))),
    ],
)
@pytest.mark.parametrize("opened", [FencelogDataSource.reader, FencelogDataSource.streamReader])
def test_a_column_that_is_not_null_is_refused_by_name(
    wrong: StructField, opened: Callable[[FencelogDataSource, StructType], object]
) -> None:
    """Spark would answer ``key IS NULL`` without a look at the rows."""
    source = FencelogDataSource({"server": "http://127.0.0.1:1", "topic": "t"})
    opened(source, StructType([StructField(wrong.name, NULLABLE[wrong.name])]))
    with pytest.raises(FencelogError, match=f"column {wrong.name} .* is NOT NULL") as raised:
        opened(source, StructType([StructField("offset", LongType()), wrong]))
    assert raised.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize(
    ("topic", "options", "named"),
    [
        (EVENTS, {"startOffset": "0"}, "unknown option 'startoffset'; did you mean startingOffset"),
        ("", {}, "option 'topic' is missing"),
        ("spark/none", {}, "topic_not_found: reading topic spark/none from http://"),
        (EVENTS, {"server": "http://127.0.0.1:1"}, "cannot reach http://127.0.0.1:1"),
        (EVENTS, {"startingOffsets": '{"0": 99999999}'}, "offset_beyond_tail: partition 0 of"),
        (EVENTS, {"endingOffsets": '{"9": 1}'}, "has 3 partitions"),
        (EVENTS, {"secretFile": "/none/secret"}, "cannot read the secret in /none/secret"),
        ("", {"topicsPattern": "none/.*"}, "topic_not_found: reading topics like none/.* from"),
        (EVENTS, {"endingOffsets": '{"0"'}, "option 'endingOffsets' is not earliest, latest or"),
    ],
)
def test_errors_say_what_is_wrong(
    read: Read, topic: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(topic, **options).count()
    assert named in str(raised.value)


def test_a_session_can_also_be_told_of_the_format(spark: SparkSession, filled: Filled) -> None:
    from fencelog.spark_connector.source import register

    session = spark.newSession()
    register(session)
    frame = session.read.format("fencelog").options(server=filled.server, topic="spark/empty")
    assert frame.load().count() == 0


def test_a_table_of_the_catalog_keeps_its_options(spark: SparkSession, filled: Filled) -> None:
    given = f"server '{filled.server}', topic '{EVENTS}', includeHeaders 'false'"
    spark.sql(f"CREATE TABLE kept USING fencelog OPTIONS ({given})")
    try:
        table = spark.newSession().table("kept")
        assert table.count() == len(filled.messages)
        assert "headers" not in table.columns
        few = spark.sql('SELECT offset FROM kept WITH (endingOffsets \'{"0":3,"1":0,"2":0}\')')
        assert [row.offset for row in few.collect()] == [0, 1, 2]
        with pytest.raises(PySparkException, match="a table of the catalog is for reading"):
            spark.sql("INSERT INTO kept SELECT * FROM kept")
    finally:
        spark.sql("DROP TABLE kept")
    with pytest.raises(PySparkException, match="option 'topic' is missing"):
        spark.sql(f"CREATE TABLE kept USING fencelog OPTIONS (server '{filled.server}')")


async def test_a_table_is_read_anew_by_each_query_and_a_frame_by_its_first(
    spark: SparkSession, filled: Filled
) -> None:
    """As SPARK.md says: from 4.1 on, Spark plans a Python source once for each ``load()`` or
    view."""
    kept = 6 if spark.version.startswith("4.0.") else 3
    topic, loop = "spark/growing", asyncio.get_running_loop()

    def counts() -> list[int]:
        names = ("growing", "growing_view")
        return [frame.count(), *(spark.sql(f"SELECT * FROM {name}").count() for name in names)]

    async with FencelogClient(filled.server) as client:
        await client.create_topic(topic, partitions=1)
        given = f"USING fencelog OPTIONS (server '{filled.server}', topic '{topic}')"
        spark.sql(f"CREATE TABLE growing {given}")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW growing_view {given}")
        reader = spark.read.format("fencelog").options(server=filled.server, topic=topic)
        frame = reader.load()
        try:
            for expected in ([3, 3, 3], [kept, 6, kept]):
                await client.append_batch(topic, encode_values([b"x"] * 3), partition=0)
                assert await loop.run_in_executor(None, counts) == expected
            assert await loop.run_in_executor(None, reader.load().count) == 6
        finally:
            spark.sql("DROP TABLE growing")
