"""The Spark part of ``fencelog bench spark``: every metric is measured, over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from fencelog.api.client import FencelogClient
from fencelog.ledgers.record_batch import Message, encode_values
from fencelog.spark_connector.bench import rounds, triggers
from fencelog.spark_connector.bench.main import measure
from fencelog.spark_connector.bench.pipe import PipeDataSource
from fencelog.spark_connector.bench.rounds import ROUNDS, best_s
from fencelog.spark_connector.bench.triggers import ROWS, TRIGGERS
from fencelog.spark_connector.source import COLUMNS
from tests.spark.support.streams import HAS_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ, WRITTEN, STREAMED = "bench/read", "bench/written", "bench/streamed"


class Filled(Protocol):
    server: str
    messages: dict[tuple[int, int], Message]


@pytest.fixture
async def client(
    filled: Filled, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> FencelogClient:
    """A client of the service, in a session that is prepared for a quick measurement."""
    monkeypatch.setattr(rounds, "ROUNDS", 1)
    monkeypatch.setattr(triggers, "ROUNDS", 1)
    spark.dataSource.register(PipeDataSource)
    return FencelogClient(filled.server)


@pytest.mark.thorough
@pytest.mark.timeout(400)  # a dozen jobs of Spark, and its start
async def test_the_first_rows_of_a_topic_are_measured_beside_parquet_and_the_pipe(
    spark: SparkSession, filled: Filled, client: FencelogClient, tmp_path: Path
) -> None:
    async with client:
        await client.create_topic(READ, partitions=2)
        for partition in range(2):
            batch = encode_values([bytes(100)] * 700)
            await client.append_batch(READ, batch, partition=partition)
    work = {"reads": {READ: 1_000}, "planned": READ}
    metrics = measure(spark, filled.server, work, tmp_path)
    assert metrics.pop("read_rows") == 1_000
    assert set(metrics) == {
        "read_rows_per_s",
        "read_mb_per_s",
        "read_of_pipe",
        "read_of_parquet",
        "read_socket_rows_per_s",
        "read_pipe_rows_per_s",
        "read_parquet_rows_per_s",
        "planning_s",
    }
    assert all(metric > 0 for metric in metrics.values())
    stored = spark.read.parquet(str(tmp_path / "read"))
    assert stored.count() == 1_000
    assert stored.columns == [name for name in COLUMNS if name != "topic"]


async def test_every_row_is_written_in_every_round(
    spark: SparkSession, filled: Filled, client: FencelogClient, tmp_path: Path
) -> None:
    async with client:
        await client.create_topic(WRITTEN, partitions=2)
        work = {"written": {"topic": WRITTEN, "rows": 500, "value_bytes": 100}}
        metrics = measure(spark, filled.server, work, tmp_path)
        offsets = await client.offsets(WRITTEN)
    assert sum(each["tail_offset"] for each in offsets) == 500 * 2 * 2
    assert set(metrics) == {
        "null_sink_rows_per_s",
        *(
            f"{name}_{unit}"
            for name in ("sink", "segments_sink")
            for unit in ("rows_per_s", "mb_per_s", "of_null_sink")
        ),
    }
    assert all(metric > 0 for metric in metrics.values())


@pytest.mark.thorough
@pytest.mark.skipif(not HAS_LIMITS, reason="PySpark before 4.2 reads a topic in one trigger")
async def test_triggers_are_measured_beside_those_of_a_source_that_does_nothing(
    spark: SparkSession, filled: Filled, client: FencelogClient, tmp_path: Path
) -> None:
    async with client:
        await client.create_topic(STREAMED)
        batch = encode_values([bytes(100)] * (ROWS * (TRIGGERS + 10)))
        await client.append_batch(STREAMED, batch, partition=0)
    metrics = measure(spark, filled.server, {"triggers": STREAMED}, tmp_path)
    over = metrics["trigger_p50_ms"] - metrics["trivial_trigger_p50_ms"]
    assert metrics["trivial_trigger_p50_ms"] > 0
    assert metrics["trigger_overhead_ms"] == over


def test_the_pipe_yields_as_many_rows_as_it_should(spark: SparkSession) -> None:
    spark.dataSource.register(PipeDataSource)
    pipe = spark.read.format("fencelog-bench-pipe").options(rows=30_010, bytes=100).load()
    row = pipe.selectExpr("count(*) AS rows", "min(length(value)) AS least").first()
    assert row is not None
    assert (row.rows, row.least) == (30_010, 100)


def test_works_are_timed_in_turn_after_one_round() -> None:
    done: list[str] = []
    times = best_s({"a": lambda: done.append("a"), "b": lambda: done.append("b")})
    assert done == ["a", "b"] * (ROUNDS + 1)
    assert set(times) == {"a", "b"}
    assert all(time >= 0 for time in times.values())
