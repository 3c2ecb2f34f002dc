"""A bookie that was taken out of the cluster while it ran."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencelog.api.processes import bookie_main
from fencelog.api.processes.bookie_main import BookieProcessConfig, bookie_process
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.identity.cookie_registry import COOKIES_PATH
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import INSTANCE_PATH, create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.port import MetadataStore
from tests.support.metadata_nodes import overwrite_now, remove_now


@dataclass(slots=True)
class Stage:
    """A bookie process, the metadata that it sees, and the task that ends when it fails."""

    cluster: MemoryCluster
    failing: asyncio.Task[None]


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    cluster = MemoryCluster()

    def opened(url: str, *, host: SystemHost) -> MetadataStore:
        return MemoryMetadataStore(cluster)

    monkeypatch.setattr(bookie_main, "open_metadata_store", opened)
    store = MemoryMetadataStore(cluster)
    await store.start()
    await create_instance(store, SystemHost())
    config = BookieProcessConfig(
        "zk://elsewhere:2181", BookieConfig(tmp_path / "bookie", bookie_id="b1"), "127.0.0.1:0"
    )
    async with bookie_process(config) as running:
        failing = asyncio.create_task(running.wait_failed())
        await asyncio.sleep(0.1)
        assert not failing.done()
        yield Stage(cluster, failing)
        failing.cancel()
        await asyncio.wait([failing])
    await store.close()


async def test_a_bookie_whose_cookie_has_gone_stops(stage: Stage) -> None:
    """It was away for longer than its session lives, and its decommission has ended. Its
    registration comes back by itself, so it would take adds without a cookie."""
    remove_now(stage.cluster, f"{COOKIES_PATH}/b1")
    with pytest.raises(FencelogError, match="was taken out of the cluster") as caught:
        await asyncio.wait_for(stage.failing, 10)
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_bookie_goes_on_where_the_store_was_emptied(stage: Stage) -> None:
    """A store of another instance says nothing about it."""
    value = json.dumps({"instance": "01" * 16, "created_us": 1}).encode()
    overwrite_now(stage.cluster, INSTANCE_PATH, value)
    remove_now(stage.cluster, f"{COOKIES_PATH}/b1")
    await asyncio.sleep(0.3)
    assert not stage.failing.done()
