"""The Spark part of ``fencelog bench spark``, a process of its own: rates of reading topics.

python -m fencelog.spark_connector.bench SERVER RESULT.json TOPIC…

Each topic is read on two cores into ``noop``, a sink that drops its rows, all columns; beside it
the same rows as Parquet, and batches like its own that are made once and given to Spark again and
again: the limit of the pipe between Python and the JVM. Each rate is the best of three.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from fencelog.spark_connector.bench_pipe import SCHEMA, TASKS, PipeDataSource
from fencelog.spark_connector.source import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PASSES = 3


def main() -> None:
    """Measure all topics and write one JSON object of metrics."""
    server, result, *topics = sys.argv[1:]
    spark = _session()
    try:
        metrics: dict[str, float] = {}
        for topic in topics:
            metrics |= measure(spark, server, topic, Path(result).parent)
        Path(result).write_text(json.dumps(metrics))
    finally:
        spark.stop()


def measure(spark: SparkSession, server: str, topic: str, directory: Path) -> dict[str, float]:
    """Return the metrics of one topic. The session knows both sources."""
    name = topic.rpartition("/")[2]
    reader = spark.read.format("fencelog").options(server=server, topic=topic)
    frame = reader.schema(SCHEMA).load()
    rows, size = frame.selectExpr("count(*)", "sum(length(value))").collect()[0]
    parquet = str(directory / name)
    frame.write.option("compression", "none").parquet(parquet)
    pipe = spark.read.format("fencelog-bench-pipe").options(rows=rows, bytes=size // rows).load()
    read_s, pipe_s = _best_s(lambda: _drop(frame)), _best_s(lambda: _drop(pipe))
    parquet_s = _best_s(lambda: _drop(spark.read.parquet(parquet)))
    return {
        f"{name}_rows": rows,
        f"{name}_rows_per_s": rows / read_s,
        f"{name}_mb_per_s": size / read_s / 1e6,
        f"{name}_of_pipe": pipe_s / read_s,
        f"{name}_of_parquet": parquet_s / read_s,
        f"{name}_pipe_rows_per_s": rows / pipe_s,
        f"{name}_parquet_rows_per_s": rows / parquet_s,
    }


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    spark.dataSource.register(PipeDataSource)
    return spark


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _best_s(work: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds; one before them is not counted."""

    def once() -> float:
        begin = perf_counter()
        work()
        return perf_counter() - begin

    once()
    return min(once() for _ in range(PASSES))


if __name__ == "__main__":
    main()
