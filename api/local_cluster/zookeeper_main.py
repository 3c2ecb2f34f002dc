"""Composition root of the development ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fencelog.api.local_cluster.zookeeper import TICK_MS, DevelopmentZooKeeper
from fencelog.api.processes.lifecycle import Running


@contextlib.asynccontextmanager
async def zookeeper_process(
    data_dir: Path, *, host: str = "127.0.0.1", port: int, tick_ms: int = TICK_MS
) -> AsyncIterator[Running]:
    """Run a ZooKeeper server for as long as this lasts; port 0 takes a free one.

    Raises FencelogError: METADATA_UNAVAILABLE (no Java, port in use), DATA_DIRECTORY_IN_USE.
    """
    server = await DevelopmentZooKeeper.start(data_dir, host=host, port=port, tick_ms=tick_ms)
    try:
        yield Running({"role": "zookeeper", "address": server.address})
    finally:
        await server.stop()
