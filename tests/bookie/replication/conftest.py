"""Five bookies on real directories, and the marks of their ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencelog.bookie.replication.store import UnderReplicatedLedgers
from tests.support.local_cluster import LocalCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, size=5) as cluster:
        yield cluster


@pytest.fixture
def marks(cluster: LocalCluster) -> UnderReplicatedLedgers:
    return UnderReplicatedLedgers(cluster.store)
