"""The rate in rows a second at which Spark reads from a running service, as one JSON object.

python -m fencelog.spark_connector.bench SERVER [MESSAGES]

Appends MESSAGES messages of 100 bytes to a topic of its own once (2,000,000 if not given), then
reads all of them several times on two cores and prints the best rates: ``count`` and ``noop`` (a
sink that drops its rows) over all columns, ``value`` is ``count`` over that column alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from fencelog.api.client import FencelogClient
from fencelog.ledgers.record_batch import encode_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGE_BYTES = 100
BATCH_MESSAGES = 10_000
PARTITIONS = 2
PASSES = 4
"""The number of passes. The first of them also starts Spark's workers."""


def main() -> None:
    server = sys.argv[1]
    batches = max(1, int(sys.argv[2] if len(sys.argv) > 2 else 2_000_000) // BATCH_MESSAGES)
    topic = f"default/spark-bench-{batches}"
    asyncio.run(_fill(server, topic, batches))
    spark = _session()
    try:
        everything = _frame(spark, server, topic)
        value = _frame(spark, server, topic, schema="value BINARY")
        rows = everything.count()
        metrics = {
            "count_rows_per_s": rows / _best_s(everything.count),
            "noop_rows_per_s": rows / _best_s(lambda: _drop(everything)),
            "value_rows_per_s": rows / _best_s(value.count),
        }
    finally:
        spark.stop()
    sys.stdout.write(json.dumps({name: round(rate) for name, rate in metrics.items()}) + "\n")


async def _fill(server: str, topic: str, batches: int) -> None:
    """Append everything, unless a previous run did."""
    batch = encode_values([b"x" * MESSAGE_BYTES] * BATCH_MESSAGES)
    async with FencelogClient(server) as client:
        await client.create_topic(topic, partitions=PARTITIONS)
        stored = [await client.segments(topic, partition) for partition in range(PARTITIONS)]
        if sum(answer["end_offset"] for answer in stored) == batches * BATCH_MESSAGES:
            return
        for number in range(batches):
            await client.append_batch(topic, batch, partition=number % PARTITIONS)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from fencelog.spark_connector.source import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    return spark


def _frame(spark: SparkSession, server: str, topic: str, *, schema: str | None = None) -> DataFrame:
    reader = spark.read.format("fencelog").options(server=server, topic=topic)
    return (reader.schema(schema) if schema else reader).load()


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _best_s(work: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds."""

    def once() -> float:
        begin = perf_counter()
        work()
        return perf_counter() - begin

    return min(once() for _ in range(PASSES))


if __name__ == "__main__":
    main()
