"""The end of a batch with ``exactlyOnce=segments``: a commit that fails after it took effect, and a
driver that is killed before or between the commits to two partitions."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from fencelog.api.client import FencelogClient
from tests.spark.support.accounts import fill, tails, times_found
from tests.spark.support.copies import Copy
from tests.spark.support.jvm import JVM_OPTIONS
from tests.spark.support.streams import batches
from tests.support.house import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="session"),
]

ROWS = 500
"""In each of two partitions."""

STEP_S = 120
"""A generous time for each step of a driver on a busy machine, which it tells."""


async def create(client: FencelogClient, name: str) -> tuple[str, str]:
    """Return a source with rows in it, and a sink."""
    source, sink = f"commits/{name}-source", f"commits/{name}-sink"
    await client.create_topic(source, partitions=2)
    await client.create_topic(sink, partitions=2)
    for partition in range(2):
        await fill(client, source, partition, range(partition * ROWS, (partition + 1) * ROWS))
    return source, sink


@pytest.mark.thorough
async def test_a_commit_that_fails_after_it_took_effect(
    spark: SparkSession, server: str, client: FencelogClient, failing: str, tmp_path: Path
) -> None:
    """Spark aborts the batch, and writes it again when the query is started anew."""
    source, sink = await create(client, "raised")
    copy = Copy(spark, tmp_path, server, source, sink)
    options = {"exactlyOnce": "segments", "failure": "commit raises afterwards"}
    with pytest.raises(StreamingQueryException, match="the commit fails after it took effect"):
        copy.run(failing, **options, mark=str(tmp_path / "failed"))
    once = dict.fromkeys(range(2 * ROWS), 1)
    assert times_found(spark, server, sink) == once
    await fill(client, source, 0, range(2 * ROWS, 3 * ROWS))
    assert batches(copy.run(exactlyOnce="segments")) == [2 * ROWS, ROWS]
    assert times_found(spark, server, sink) == dict.fromkeys(range(3 * ROWS), 1)


@pytest.mark.thorough
async def test_a_table_whose_commit_fails_after_it_took_effect(
    spark: SparkSession, server: str, client: FencelogClient, failing: str, tmp_path: Path
) -> None:
    """Spark aborts the write, which takes nothing back."""
    _, sink = await create(client, "table")
    writer = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value").write.format(failing)
    writer = writer.mode("append").options(server=server, topic=sink, exactlyOnce="segments")
    with pytest.raises(PySparkException, match="the commit fails after it took effect"):
        writer.options(failure="commit raises afterwards", mark=str(tmp_path / "failed")).save()
    assert times_found(spark, server, sink) == dict.fromkeys(range(ROWS), 1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("failure", "there"),
    [("before", 0), ("halfway", 1)],
)
async def test_a_driver_that_is_killed_while_it_commits(
    spark: SparkSession,
    server: str,
    client: FencelogClient,
    failure: str,
    there: int,
    tmp_path: Path,
) -> None:
    source, sink = await create(client, failure)
    mark = tmp_path / "failed"
    await kill_driver(
        mark, server=server, source=source, sink=sink, place=str(tmp_path), failure=failure
    )
    has_rows = [tail > 0 for tail in await tails(client, sink)]
    assert has_rows == [partition < there for partition in range(2)]
    await fill(client, source, 1, range(2 * ROWS, 3 * ROWS))
    copy = Copy(spark, tmp_path, server, source, sink)
    assert batches(copy.run(exactlyOnce="segments")) == [2 * ROWS, ROWS]
    assert times_found(spark, server, sink) == dict.fromkeys(range(3 * ROWS), 1)


async def kill_driver(mark: Path, *, place: str, failure: str, **options: str) -> None:
    """Start a driver of its own that copies, and kill it with its JVM when it hangs."""
    given = options | {"place": place, "failure": f"commit hangs {failure}", "mark": str(mark)}
    command = [sys.executable, "-m", "tests.spark.support.copies", f"--java-options={JVM_OPTIONS}"]
    command += [f"--{name}={value}" for name, value in given.items()]
    log = Path(place) / "driver.log"
    with log.open("wb") as output:
        driver = await anyio.open_process(
            command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
    try:
        told, until_s = 0, anyio.current_time() + STEP_S
        while not mark.exists():
            steps = log.read_text("utf-8")
            assert driver.returncode is None, steps
            if len(steps) > told:
                told, until_s = len(steps), anyio.current_time() + STEP_S
            assert anyio.current_time() < until_s, f"no step in {STEP_S} s after:\n{steps}"
            await anyio.sleep(0.1)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        await driver.wait()
