"""The background services of a bookie: garbage collection, scrubbing, repair, and the disk
watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.gc.collector import Garbage
from fencelog.bookie.gc.config import GarbageConfig
from fencelog.bookie.gc.ledgers import ClusterMetadata
from fencelog.bookie.maintenance.disk_watch import DiskWatch
from fencelog.bookie.repair.integrity import Integrity
from fencelog.bookie.repair.other_copies import OtherCopies
from fencelog.bookie.repair.scrubber import Scrubber
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.limits import COPY_BYTES_PER_S, SCRUB_BYTES_PER_S, SCRUB_INTERVAL_MS
from fencelog.ledgers.metastore.instance import read_instance
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_log = logging.getLogger(__name__)

_PAUSE_S = 10.0
"""Pause before a failed service is started again."""

Service = Callable[[], Awaitable[None]]
"""A function that runs until it is cancelled."""


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """The intervals and rates of the background services, and the lock that those of bookies on one
    disk hold while they compact."""

    garbage: GarbageConfig = field(default_factory=GarbageConfig)
    scrub_interval_ms: int = SCRUB_INTERVAL_MS
    scrub_bytes_per_s: int = SCRUB_BYTES_PER_S
    copy_bytes_per_s: int = COPY_BYTES_PER_S
    compacting: asyncio.Lock | None = None


@asynccontextmanager
async def maintenance(
    bookie: Bookie,
    store: MetadataStore,
    bookies: BookieDirectory,
    *,
    watch: DiskWatch,
    config: BookieConfig,
    settings: MaintenanceConfig,
    disk: Disk,
    host: Host,
) -> AsyncIterator[None]:
    """Run the services of an open bookie. No service runs after the context ends, and the bookie
    has to stay open until then. ``bookies`` are its peers, itself included."""
    async with AsyncExitStack() as stack:
        integrity = Integrity(
            bookie,
            ledgers=LedgerStore(store),
            bookies=bookies,
            placement=Placement(bookies, host=host),
            copy_bytes_per_s=settings.copy_bytes_per_s,
        )
        scrubber = Scrubber(
            bookie,
            disk=disk,
            on_damage=integrity.on_damage,
            bytes_per_s=settings.scrub_bytes_per_s,
            interval_ms=settings.scrub_interval_ms,
            begin_at=host.fraction(),
        )
        stack.push_async_callback(scrubber.close)
        io_thread = disk.io_thread("bookie-garbage")
        collector = Garbage(
            bookie,
            io_thread,
            ClusterMetadata(store, lambda: read_instance(store), bookie.instance),
            settings.garbage,
            doubt=OtherCopies(bookie, bookies).doubt,
            entry_log_bytes=config.entry_log_bytes,
            sharers=config.sharers,
            turn=settings.compacting,
            on_damage=integrity.on_damage,
        )
        stack.callback(collector.close)
        stack.push_async_callback(io_thread.close)
        services: dict[str, Service] = {
            "disk watch": watch.run,
            "garbage": collector.run,
            "integrity": integrity.run,
            "scrubber": scrubber.run,
        }
        await stack.enter_async_context(running(f"bookie {bookie.bookie_id}", services))
        yield


@asynccontextmanager
async def running(process: str, services: Mapping[str, Service]) -> AsyncIterator[None]:
    """Run the services of a process, by name. A service that fails is reported, and started again
    after a pause."""
    tasks = [
        asyncio.get_running_loop().create_task(_keep(process, name, service), name=name)
        for name, service in services.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep(process: str, name: str, service: Service) -> None:
    while True:
        try:
            await service()
        except Exception:  # any error: a process without this service must not go unnoticed
            _log.exception("%s: its service %s died", process, name)
        else:
            _log.error("%s: its service %s ended", process, name)
        await asyncio.sleep(_PAUSE_S)
