"""A cluster of this process that commands about self-healing are run over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.cli import main as cli
from tests.cli.healing.healing_stage import Run, register
from tests.support.local_cluster import LocalCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 4) as cluster:
        for name in cluster.bookies:
            await register(cluster, name)
        yield cluster


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelog.api.processes.autorecovery.STATUS_MS", 20)
    monkeypatch.setattr("fencelog.bookie.auditor.auditor.DECOMMISSION_SCAN_SHARE", 0)
    monkeypatch.setattr("fencelog.api.cli.healing.under_replicated.POLL_S", 0.02)
    monkeypatch.setattr("fencelog.api.cli.healing.bookie_removal.POLL_S", 0.02)


@pytest.fixture
def run(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command over the cluster of this process; gives the exit code."""
    loop: asyncio.AbstractEventLoop

    class Access:
        store = cluster.store
        ledgers = cluster.ledgers
        bookies = cluster

    @contextlib.asynccontextmanager
    async def access(_url: str, _secret_file: Path | None) -> AsyncIterator[Any]:
        yield Access

    def run_here(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    monkeypatch.setattr("fencelog.api.local_cluster.cluster_access.cluster_access", access)
    for module in ("processes.lifecycle", "local_cluster.cluster_access"):
        monkeypatch.setattr(f"fencelog.api.{module}.run_on_uvloop", run_here)

    async def run(*arguments: str) -> int:
        nonlocal loop
        loop = asyncio.get_running_loop()
        line = [*arguments, "--metadata", "zk://somewhere:1"]
        return await loop.run_in_executor(None, cli.run, line)

    return run
