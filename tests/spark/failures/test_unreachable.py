"""Servers that cannot be reached, also several silent ones: every query says so within seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import datasource

from tests.spark.support.copies import Copy
from tests.spark.support.silent import silent_servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST_S = 20
"""Ten seconds, and as many for Spark's own processes on a busy machine."""

needs_arrow_streams = pytest.mark.skipif(
    not hasattr(datasource, "DataSourceStreamArrowWriter"),
    reason="streams are written with PySpark 4.1 or newer",
)

TOPIC = {"topic": "some/where"}


def read(spark: SparkSession, server: str, place: Path) -> None:
    spark.read.format("fencelog").options(server=server, **TOPIC).load().count()


def save(spark: SparkSession, server: str, place: Path) -> None:
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("fencelog").mode("append").options(server=server, **TOPIC).save()


def stream(spark: SparkSession, server: str, place: Path) -> None:
    Copy(spark, place, server, TOPIC["topic"], "some/where-else").run("noop")


def save_stream(spark: SparkSession, server: str, place: Path) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("fencelog").options(server=server, **TOPIC)
    writer.option("checkpointLocation", str(place)).start().awaitTermination()


@pytest.mark.parametrize(
    "use", [read, save, stream, pytest.param(save_stream, marks=needs_arrow_streams)]
)
def test_silent_servers_are_all_named_within_seconds(
    spark: SparkSession, tmp_path: Path, use: Callable[[SparkSession, str, Path], None]
) -> None:
    spark.range(1).count()  # Spark itself is ready
    with silent_servers(3) as silent:
        servers = [*silent, "http://127.0.0.1:1"]
        began = time.monotonic()
        with pytest.raises(PySparkException) as raised:
            use(spark, ",".join(servers), tmp_path)
        assert time.monotonic() - began < LONGEST_S
    for server in servers:
        assert server in str(raised.value)
    assert f"{silent[0]} has not answered within 5 s" in str(raised.value)
