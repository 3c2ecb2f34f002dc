"""A real cluster in one process, with bookies over TCP and brokers over HTTP, of which any part can
be broken and mended."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from fencelog.api.processes.autorecovery import AutorecoveryConfig, serving_autorecovery
from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.api.processes.broker_main import serving_broker
from fencelog.bookie.auditor.auditor import AuditorConfig
from fencelog.bookie.auditor.cluster_check import CheckConfig
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.engine.bookie import Bookie
from fencelog.broker.broker import Broker
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore

BOOKIES = ("b1", "b2", "b3", "b4")
TIMEOUT_S = 10


class SkewedHost(SystemHost):
    """A machine whose clock is wrong."""

    def __init__(self, ahead_us: int) -> None:
        self.ahead_us = ahead_us

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us


class SickCluster:
    """The cluster; use it with ``sick_cluster``. ``brokers``: the brokers in it, by id."""

    def __init__(self, path: Path, *, record_events: bool) -> None:
        self.path = path
        self._record_events = record_events
        self.tree = MemoryCluster()
        self.store = MemoryMetadataStore(self.tree)
        self.bookies: dict[str, Bookie] = {}
        self.brokers: dict[str, Broker] = {}
        self.urls: dict[str, str] = {}
        self._contexts: dict[str, contextlib.AsyncExitStack] = {}

    async def begin(self) -> None:
        await self.store.start()
        await create_instance(self.store, SystemHost())
        for bookie_id in BOOKIES:
            await self.start_bookie(bookie_id)
        await self.start_healing()
        await self.start_broker("r1")

    async def end(self) -> None:
        for name in reversed(list(self._contexts)):
            await self.stop(name)
        await self.store.close()

    async def start_bookie(
        self, bookie_id: str, *, ahead_us: int = 0, repair_cookie: bool = False
    ) -> Bookie:
        config = BookieConfig(
            self.path / bookie_id,
            bookie_id=bookie_id,
            repair_cookie=repair_cookie,
            read_only_at=1.0,
            writable_at=1.0,
        )
        stack = self._contexts[bookie_id] = contextlib.AsyncExitStack()
        serving = serving_bookie(
            await self._session(stack), config, host=SkewedHost(ahead_us), listen="127.0.0.1:0"
        )
        bookie, _ = await stack.enter_async_context(serving)
        self.bookies[bookie_id] = bookie
        return bookie

    async def lose_disk(self, bookie_id: str) -> Bookie:
        """Start a bookie again with an empty disk."""
        await self.stop(bookie_id)
        shutil.rmtree(self.path / bookie_id)
        return await self.start_bookie(bookie_id, repair_cookie=True)

    async def start_healing(self) -> None:
        settings = AutorecoveryConfig(
            AuditorConfig(
                lost_bookie_grace_ms=10_000_000,
                first_check_delay_ms=10_000_000,
                check=CheckConfig(repeats=0),
            ),
            check_ms=100,
        )
        stack = self._contexts["healing"] = contextlib.AsyncExitStack()
        healing = serving_autorecovery(
            await self._session(stack), {}, process_id="h1", host=SystemHost(), settings=settings
        )
        await stack.enter_async_context(healing)

    async def start_broker(self, broker_id: str) -> str:
        stack = self._contexts[broker_id] = contextlib.AsyncExitStack()
        serving = serving_broker(
            await self._session(stack),
            {},
            host=SystemHost(),
            http="127.0.0.1:0",
            broker_id=broker_id,
            record_events=self._record_events,
        )
        url = self.urls[broker_id] = await stack.enter_async_context(serving)
        return url

    async def stop(self, name: str) -> None:
        self.bookies.pop(name, None)
        self.urls.pop(name, None)
        await self._contexts.pop(name).aclose()

    def slot(self, broker: Broker, topic: str) -> PartitionSlot:
        """Return the only partition of a topic that is open at a broker."""
        (slot,) = (slot for slot in broker.open_slots() if str(slot.info.name) == topic)
        return slot

    async def _session(self, stack: contextlib.AsyncExitStack) -> MemoryMetadataStore:
        store = MemoryMetadataStore(self.tree)
        await store.start()
        stack.push_async_callback(store.close)
        return store


@contextlib.asynccontextmanager
async def sick_cluster(path: Path, *, record_events: bool = False) -> AsyncIterator[SickCluster]:
    """Run a cluster that is healthy; it has no topic but those of a test, unless it records
    events."""
    cluster = SickCluster(path, record_events=record_events)
    await cluster.begin()
    try:
        yield cluster
    finally:
        await cluster.end()


async def put_topic(http: httpx.AsyncClient, name: str, **settings: Any) -> None:
    """Create a topic with one message."""
    (await http.put(f"/v1/topics/{name}", json=settings)).raise_for_status()
    (await http.post(f"/v1/topics/{name}/messages", content=b"x")).raise_for_status()
