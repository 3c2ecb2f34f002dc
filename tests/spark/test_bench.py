"""``fencelog bench spark``: every metric is measured, over all rows of the topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fencelog.ledgers.record_batch import Message
from fencelog.spark_connector.bench import measure
from fencelog.spark_connector.bench_pipe import PipeDataSource
from fencelog.spark_connector.source import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Filled(Protocol):
    server: str
    messages: dict[tuple[int, int], Message]


def test_a_topic_is_measured_beside_parquet_and_the_pipe(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    spark.dataSource.register(PipeDataSource)
    metrics = measure(spark, filled.server, "spark/events", tmp_path)
    assert metrics.pop("events_rows") == len(filled.messages)
    assert {name.removeprefix("events_") for name in metrics} == {
        "rows_per_s",
        "mb_per_s",
        "of_pipe",
        "of_parquet",
        "pipe_rows_per_s",
        "parquet_rows_per_s",
    }
    assert all(metric > 0 for metric in metrics.values())
    stored = spark.read.parquet(str(tmp_path / "events"))
    assert stored.count() == len(filled.messages)
    assert stored.columns == [name for name in COLUMNS if name != "topic"]


def test_the_pipe_yields_as_many_rows_as_it_should(spark: SparkSession) -> None:
    spark.dataSource.register(PipeDataSource)
    pipe = spark.read.format("fencelog-bench-pipe").options(rows=30_010, bytes=100).load()
    row = pipe.selectExpr("count(*) AS rows", "min(length(value)) AS least").first()
    assert row is not None
    assert (row.rows, row.least) == (30_010, 100)
