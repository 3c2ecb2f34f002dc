"""Tasks that end in the middle of their work, in an error or with their process, and are tried
again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import Cluster
from tests.spark.support.accounts import FILLER, fill, times_found
from tests.spark.support.copies import Copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="session"),
]

SOURCE = "tasks/source"
ROWS = 15_000
"""In each of two partitions and tasks: Spark hands them over in batches of up to 10,000."""

ALL = dict.fromkeys(range(2 * ROWS), 1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def source(cluster: Cluster) -> str:
    async with FencelogClient(cluster.urls) as client:
        await client.create_topic(SOURCE, partitions=2)
        for partition in range(2):
            numbers = range(partition * ROWS, (partition + 1) * ROWS)
            await fill(client, SOURCE, partition, numbers, filler=FILLER)
    return SOURCE


@pytest.mark.parametrize(
    ("mode", "failure"),
    [
        pytest.param("none", "task dies", marks=pytest.mark.thorough),
        pytest.param("dedup", "task dies", marks=pytest.mark.thorough),
        ("segments", "task dies"),
        pytest.param("none", "task raises", marks=pytest.mark.thorough),
        pytest.param("dedup", "task raises", marks=pytest.mark.thorough),
        pytest.param("segments", "task raises", marks=pytest.mark.thorough),
    ],
)
async def test_a_stream_whose_task_is_tried_again(
    spark: SparkSession,
    server: str,
    client: FencelogClient,
    source: str,
    failing: str,
    mode: str,
    failure: str,
    tmp_path: Path,
) -> None:
    sink = f"tasks/stream-{mode}-{failure.replace(' ', '-')}"
    await client.create_topic(sink, partitions=2)
    copy = Copy(spark, tmp_path, server, source, sink, {"minPartitions": "2"})
    mark = tmp_path / "failed"
    copy.run(failing, exactlyOnce=mode, failure=failure, mark=str(mark))
    assert mark.exists()
    found = times_found(spark, server, sink)
    if mode == "none":
        assert found.keys() == ALL.keys()
        assert set(found.values()) == {1, 2}  # it failed after some of its rows were written
    else:
        assert found == ALL


@pytest.mark.parametrize("mode", [pytest.param("none", marks=pytest.mark.thorough), "segments"])
async def test_a_table_whose_task_is_tried_again(
    spark: SparkSession,
    server: str,
    client: FencelogClient,
    source: str,
    failing: str,
    mode: str,
    tmp_path: Path,
) -> None:
    sink, mark = f"tasks/table-{mode}", tmp_path / "failed"
    await client.create_topic(sink, partitions=2)
    rows = spark.read.format("fencelog").options(server=server, topic=source, minPartitions="2")
    writer = rows.schema("key BINARY, value BINARY").load().write.format(failing).mode("append")
    options = {"server": server, "topic": sink, "exactlyOnce": mode, "mark": str(mark)}
    writer.options(**options, failure="task dies").save()
    assert mark.exists()
    found = times_found(spark, server, sink)
    assert found.keys() == ALL.keys()
    assert set(found.values()) == ({1, 2} if mode == "none" else {1})


@pytest.mark.parametrize(
    "failure", ["task raises", pytest.param("task dies", marks=pytest.mark.thorough)]
)
async def test_a_read_whose_task_is_tried_again(
    spark: SparkSession, server: str, source: str, failing: str, failure: str, tmp_path: Path
) -> None:
    mark = tmp_path / "failed"
    options = {"server": server, "topic": source, "failure": failure, "mark": str(mark)}
    rows = spark.read.format(failing).options(**options).schema("partition INT, offset BIGINT")
    found = sorted((row.partition, row.offset) for row in rows.load().collect())
    assert mark.exists()
    assert found == [(partition, offset) for partition in range(2) for offset in range(ROWS)]


@pytest.mark.thorough
async def test_a_stream_whose_reading_task_is_tried_again(
    spark: SparkSession,
    server: str,
    client: FencelogClient,
    source: str,
    failing: str,
    tmp_path: Path,
) -> None:
    sink, mark = "tasks/read-again", tmp_path / "failed"
    await client.create_topic(sink, partitions=2)
    options = {"minPartitions": "2", "failure": "task dies", "mark": str(mark)}
    copy = Copy(spark, tmp_path, server, source, sink, options, source_format=failing)
    copy.run(exactlyOnce="dedup")  # which takes the same rows in the same order
    assert mark.exists()
    assert times_found(spark, server, sink) == ALL
