"""Rates of writing a table of values into a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencelog.spark_connector.bench.pipe import TASKS
from fencelog.spark_connector.bench.rounds import best_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure_writes(
    spark: SparkSession, server: str, topic: str, rows: int, value_bytes: int
) -> dict[str, float]:
    """Return the metrics of writing ``rows`` values into a topic, appended through the brokers and
    as ledgers that are committed. Beside it a sink that drops what Spark hands to it."""
    value = f"CAST(repeat('v', {value_bytes}) AS BINARY) AS value"
    table = spark.range(0, rows, 1, TASKS).selectExpr(value)

    def write(kind: str, **options: str) -> None:
        table.write.format(kind).mode("append").options(**options).save()

    to_topic = {"server": server, "topic": topic}
    took = best_s(
        {
            "sink": lambda: write("fencelog", **to_topic),
            "segments_sink": lambda: write("fencelog", exactlyOnce="segments", **to_topic),
            "null_sink": lambda: write("fencelog-bench-pipe"),
        }
    )
    metrics = {f"{name}_rows_per_s": rows / seconds for name, seconds in took.items()}
    for name in ("sink", "segments_sink"):
        metrics[f"{name}_mb_per_s"] = rows * value_bytes / took[name] / 1e6
        metrics[f"{name}_of_null_sink"] = took["null_sink"] / took[name]
    return metrics
