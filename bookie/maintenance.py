"""What goes on in a bookie besides its requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fencelog.bookie.bookie import Bookie
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk import Disk
from fencelog.bookie.garbage import Garbage
from fencelog.bookie.garbage_config import GarbageConfig
from fencelog.bookie.garbage_files import OnDamage
from fencelog.bookie.garbage_ledgers import ClusterMetadata

_log = logging.getLogger(__name__)

_PAUSE_S = 10.0
"""Before a service that died is started again."""

Service = Callable[[], Awaitable[None]]
"""Runs until it is cancelled."""


@asynccontextmanager
async def maintenance(
    bookie: Bookie,
    config: BookieConfig,
    disk: Disk,
    metadata: ClusterMetadata,
    *,
    garbage: GarbageConfig,
    on_damage: OnDamage,
) -> AsyncIterator[None]:
    """Run the services of an open bookie; none outlives this, and the bookie has to."""
    lane = disk.lane("bookie-garbage")
    collector = Garbage(
        bookie,
        lane,
        metadata,
        garbage,
        entry_log_bytes=config.entry_log_bytes,
        on_damage=on_damage,
    )
    services: dict[str, Service] = {"garbage": collector.run}
    try:
        async with running(bookie.bookie_id, services):
            yield
    finally:
        await lane.close()
        collector.close()


@asynccontextmanager
async def running(bookie_id: str, services: dict[str, Service]) -> AsyncIterator[None]:
    """Run services, by name. One that dies is reported, and started again after a pause."""
    tasks = [
        asyncio.get_running_loop().create_task(_keep(bookie_id, name, service), name=name)
        for name, service in services.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep(bookie_id: str, name: str, service: Service) -> None:
    while True:
        try:
            await service()
        except Exception:  # whatever it was: a bookie without this service must not go unnoticed
            _log.exception("bookie %s: its service %s died", bookie_id, name)
        else:
            _log.error("bookie %s: its service %s ended", bookie_id, name)
        await asyncio.sleep(_PAUSE_S)
