"""The recipes of ``examples/spark`` do what they say, on the lines of real logs where there are
some."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from fencelog.api.client import FencelogClient
from fencelog.ledgers.record_batch import Message, encode_batch
from tests.spark.support.recipes import RECIPES, log_lines, recipe
from tests.spark.support.streams import HAS_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = 4000
PARTITIONS = 2


class Filled(Protocol):
    server: str


async def fill(client: FencelogClient, topic: str, lines: list[bytes]) -> None:
    await client.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        part = [Message(line) for line in lines[partition::PARTITIONS]]
        for first in range(0, len(part), 500):
            batch = encode_batch(part[first : first + 500])
            await client.append_batch(topic, batch, partition=partition)


async def test_a_backfill_is_complete(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    topic, copy = "recipes/lines", str(tmp_path / "copy")
    lines = log_lines(LINES)
    async with FencelogClient(filled.server) as client:
        await fill(client, topic, lines)
    backfill, verify = recipe("backfill"), recipe("verify")
    assert backfill.backfill(spark, server=filled.server, topic=topic, out=copy) == len(lines)
    assert verify.verify(spark, server=filled.server, topic=topic) == []
    assert verify.verify(spark, server=filled.server, topic=topic, copy=copy) == []
    values = Counter(bytes(row.value) for row in spark.read.parquet(copy).select("value").collect())
    assert values == Counter(lines)
    short = str(tmp_path / "short")
    backfill.backfill(
        spark, server=filled.server, topic=topic, out=short, options='endingOffsets={"0":9}'
    )
    lacking = len(lines[::PARTITIONS]) - 9
    found = verify.verify(spark, server=filled.server, topic=topic, copy=short)
    assert found == [f"{lacking} rows of the topic are not in the copy"]


def test_gaps_and_duplicates_are_found(spark: SparkSession) -> None:
    rows = [(0, 5), (0, 6), (0, 9), (1, 0), (1, 1), (1, 1), (2, 7)]
    frame = spark.createDataFrame(rows, "partition INT, offset BIGINT")
    assert recipe("verify").problems(frame) == [
        "partition 0, offsets 5 to 9: 2 are missing",
        "partition 1, offsets 0 to 1: 1 rows are there twice",
    ]


async def test_json_becomes_columns_and_other_text_is_set_aside(
    spark: SparkSession, filled: Filled
) -> None:
    topic = "recipes/json"
    orders = [{"id": n, "total": n / 4} for n in range(100)]
    bad = [b"no JSON", b'{"id": "seven"}', b"\xff\xfe"]
    async with FencelogClient(filled.server) as client:
        await fill(client, topic, [*(json.dumps(order).encode() for order in orders), *bad])
    messages = spark.read.format("fencelog").options(server=filled.server, topic=topic).load()
    good, rest = recipe("parse_json").parsed(messages, "id BIGINT, total DOUBLE")
    rows = sorted(good.collect(), key=lambda row: row.id)
    assert [{"id": row.id, "total": row.total} for row in rows] == orders
    assert {row.text for row in rest.collect()} == {value.decode(errors="replace") for value in bad}


async def test_sql_runs_statement_by_statement(spark: SparkSession, filled: Filled) -> None:
    topic = "recipes/sql"
    async with FencelogClient(filled.server) as client:
        await fill(client, topic, [b"the end of the line"] * 10)
    spark.conf.set("server", filled.server)
    spark.conf.set("topic", topic)
    statements = (RECIPES / "sql.sql").read_text("utf-8").split(";\n\n")
    try:
        *_, counts, words = [spark.sql(statement).collect() for statement in statements]
    finally:
        spark.catalog.dropTempView("lines")
        spark.catalog.dropTempView("messages")
        spark.conf.unset("server")
        spark.conf.unset("topic")
    assert [(row.messages, row.last_offset) for row in counts] == [(5, 4), (5, 4)]
    assert [(row.word, row.times) for row in words] == [
        ("the", 20),
        ("end", 10),
        ("line", 10),
        ("of", 10),
    ]


@pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.0 reads all at once")
async def test_windows_are_counted_once_each(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    source, target = "recipes/orders", "recipes/orders-per-minute"
    stream_agg = recipe("stream_agg")

    async def count(client: FencelogClient, seconds: range) -> list[dict[str, Any]]:
        """Append a message for each of these seconds, run once, and return the whole target."""
        batch = encode_batch([Message(b"x", b"%d" % (s % 2), s * 1_000_000) for s in seconds])
        await client.append_batch(source, batch, partition=seconds.start % PARTITIONS)
        query = stream_agg.start(
            spark,
            server=filled.server,
            source=source,
            target=target,
            checkpoint=str(tmp_path / "checkpoint"),
            lateness="30 seconds",
            available_now=True,
        )
        query.awaitTermination()
        written = spark.read.format("fencelog").options(server=filled.server, topic=target)
        return [json.loads(bytes(row.value)) for row in written.load().select("value").collect()]

    async with FencelogClient(filled.server) as client:
        await client.create_topic(source, partitions=PARTITIONS)
        await client.create_topic(target, partitions=PARTITIONS)
        first = await count(client, range(240))
        second = await count(client, range(241, 400))
        stats = await client.subscription_stats(source, target.replace("/", "-"))
    assert {each["count"] for each in first} == {30}
    assert len(first) == len({(each["start"], each["key"]) for each in first}) == 6
    assert second[: len(first)] == first or len(second) == 12
    assert len(second) == len({(each["start"], each["key"]) for each in second}) == 12
    assert sum(each["count"] for each in second) == 359
    assert [each["backlog_messages"] for each in stats] == [0] * PARTITIONS


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.py")))
def test_every_recipe_tells_how_it_is_called(name: str) -> None:
    module = recipe(name)
    assert f"examples/spark/{name}.py --" in (module.__doc__ or "")
    assert callable(module.main)
