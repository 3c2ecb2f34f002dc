"""Rates of batch reads, and the time that planning takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fencelog.spark_connector.bench.pipe import SCHEMA, TASKS
from fencelog.spark_connector.bench.rounds import best_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def measure_reads(
    spark: SparkSession, server: str, topic: str, rows: int, directory: Path
) -> dict[str, float]:
    """Return the metrics of reading the first ``rows`` messages of a topic with as many partitions
    as there are tasks: all columns, into ``noop``, a sink that drops its rows.

    Beside it the same without reads from the bookies' files, the same rows as Parquet, and batches
    like its own that are made once and given to Spark again and again.
    """
    name = topic.rpartition("/")[2]
    end = json.dumps({str(partition): rows // TASKS for partition in range(TASKS)})
    reader = spark.read.format("fencelog").options(server=server, topic=topic, endingOffsets=end)
    frame = reader.schema(SCHEMA).load()
    through_sockets = reader.option("localReads", "false").schema(SCHEMA).load()
    found, size = frame.selectExpr("count(*)", "sum(length(value))").collect()[0]
    parquet = str(directory / name)
    frame.write.option("compression", "none").parquet(parquet)
    copy = spark.read.parquet(parquet)
    pipe = spark.read.format("fencelog-bench-pipe").options(rows=found, bytes=size // found).load()
    took = best_s(
        {
            "read": lambda: drop(frame),
            "sockets": lambda: drop(through_sockets),
            "pipe": lambda: drop(pipe),
            "parquet": lambda: drop(copy),
        }
    )
    return {
        f"{name}_rows": found,
        f"{name}_rows_per_s": found / took["read"],
        f"{name}_mb_per_s": size / took["read"] / 1e6,
        f"{name}_of_pipe": took["pipe"] / took["read"],
        f"{name}_of_parquet": took["parquet"] / took["read"],
        f"{name}_socket_rows_per_s": found / took["sockets"],
        f"{name}_pipe_rows_per_s": found / took["pipe"],
        f"{name}_parquet_rows_per_s": found / took["parquet"],
    }


def measure_planning(spark: SparkSession, server: str, topic: str) -> dict[str, float]:
    """Return how long Spark takes until it knows the tasks that read a whole topic."""

    def plan() -> int:
        reader = spark.read.format("fencelog").options(server=server, topic=topic)
        return reader.load().rdd.getNumPartitions()

    return {"planning_s": best_s({"plan": plan})["plan"]}


def drop(frame: DataFrame) -> None:
    """Read all rows and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()
