"""A cluster of real processes: it serves, it ends what it started, and no child outlives it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from fencelog.api.local_cluster.child_process import ChildProcess
from tests.support.fencelog_cli import complaint, fencelog

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

NO_ZOOKEEPER = "zk://127.0.0.1:9/fencelog"


async def start(place: Path) -> tuple[ChildProcess, list[psutil.Process]]:
    """A cluster, and all processes below it, the JVM included."""
    command = ["cluster", "--http-port", "0", "--data", str(place / "data")]
    cluster = await ChildProcess.start("cluster", command, log=place / "log")
    return cluster, psutil.Process(cluster.pid).children(recursive=True)


def survivors(processes: list[psutil.Process], *, timeout_s: float) -> list[psutil.Process]:
    """Return the processes that still run after a while."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return list(alive)


async def test_a_cluster_serves_and_ends_what_it_started(tmp_path: Path) -> None:
    cluster, below = await start(tmp_path)
    processes: list[dict[str, Any]] = cluster.announcement["processes"]
    names = [process["name"] for process in processes]
    bookies = ["bookie-1", "bookie-2", "bookie-3"]
    assert names == ["zookeeper", *bookies, "broker-1", "broker-2", "autorecovery-1"]
    assert {process["pid"] for process in processes} <= {process.pid for process in below}
    one, other = (process["http"] for process in processes if "http" in process)
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    assert fencelog("topic", "create", "t", "--server", one).returncode == 0
    assert fencelog("append", "t", "--server", other, stdin=lines).returncode == 0
    for server in (one, other):
        assert fencelog("read", "t", "--server", server).stdout == lines
    await cluster.stop()
    assert survivors(below, timeout_s=5) == []
    logs = sorted((tmp_path / "data" / "log").iterdir())
    logged = [line for log in logs for line in log.read_text().splitlines()]
    assert len(logs) == 7
    assert [line for line in logged if line.split()[1] != "INFO"] == []


async def test_no_child_outlives_a_cluster_that_is_killed(tmp_path: Path) -> None:
    cluster, below = await start(tmp_path)
    assert len(below) >= 7
    await cluster.kill()
    assert survivors(below, timeout_s=30) == []


def test_no_zookeeper_at_the_start_is_a_clear_error_soon(tmp_path: Path) -> None:
    commands = (
        ("broker", "--metadata", NO_ZOOKEEPER, "--http", "127.0.0.1:0"),
        ("bookie", "--metadata", NO_ZOOKEEPER, "--listen", "127.0.0.1:0", "--data", str(tmp_path)),
    )
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda command: fencelog(*command), commands):
            assert done.returncode == 1
            assert "no ZooKeeper answers at 127.0.0.1:9" in complaint(done)
    # 10 s, and two interpreters that start on a busy machine.
    assert time.monotonic() - began < 40
