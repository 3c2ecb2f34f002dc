"""A cluster of this process that commands about self-healing are run over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.healing.healing_stage import Run, commands_over, register
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
    return commands_over(cluster, monkeypatch, within_s=30)
