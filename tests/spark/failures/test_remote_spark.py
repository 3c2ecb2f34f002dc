"""Spark that is not local: a standalone cluster whose executors are processes of their own, and a
client of Spark Connect."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from fencelog.api.client import FencelogClient
from tests.spark.support.accounts import FILLER, fill
from tests.spark.support.remote_driver import CONNECT
from tests.spark.support.spark_cluster import environment_of, spark_cluster
from tests.spark.support.streams import HAS_LIMITS
from tests.support.house import ROOT

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.0 reads all at once"),
]

ROWS = 20_000
"""In each of two partitions: a task has several batches, and dies after the first."""

LONGEST_S = 400

_ONCE = {"1": 2 * ROWS}
ALL_ONCE = {"read": _ONCE, "sink": _ONCE, "table": _ONCE, "died": True}


async def outcome(
    client: FencelogClient, place: Path, environment: dict[str, str], **given: str
) -> dict[str, Any]:
    """Fill a topic, and return what a driver of its own found in this and in two others."""
    topics = {name: f"{place.name}/{name}" for name in ("source", "sink", "table")}
    for topic in topics.values():
        await client.create_topic(topic, partitions=2)
    for partition in range(2):
        numbers = range(partition * ROWS, (partition + 1) * ROWS)
        await fill(client, topics["source"], partition, numbers, filler=FILLER)
    options = given | topics | {"place": str(place)}
    command = [sys.executable, "-m", "tests.spark.support.remote_driver"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with anyio.fail_after(LONGEST_S):
        done = await anyio.run_process(command, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def test_a_cluster_whose_executor_dies_reads_streams_and_writes_the_same(
    server: str, client: FencelogClient, shim: Path, tmp_path: Path
) -> None:
    environment = environment_of(f"{shim}{os.pathsep}{ROOT}")
    place = tmp_path / "spark-cluster"
    place.mkdir()
    async with spark_cluster(tmp_path / "processes", 2, environment) as master:
        given = {"master": master, "server": server, "failure": "executor dies"}
        assert await outcome(client, place, environment, **given) == ALL_ONCE


async def test_a_client_of_spark_connect_reads_streams_and_writes_the_same(
    server: str, client: FencelogClient, shim: Path, tmp_path: Path
) -> None:
    environment = environment_of(f"{shim}{os.pathsep}{ROOT}")
    place = tmp_path / "spark-connect"
    place.mkdir()
    given = {"master": CONNECT, "server": server, "failure": "task dies"}
    assert await outcome(client, place, environment, **given) == ALL_ONCE
