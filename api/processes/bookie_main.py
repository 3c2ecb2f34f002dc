"""Composition root of a storage node: a bookie, its TCP server, its registration."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fencelog.api.http.addresses import (
    BOOKIE_RISK,
    check_advertised,
    check_listener,
    parse_address,
)
from fencelog.api.processes.autorecovery import serving_autorecovery
from fencelog.api.processes.bookie_health import REGISTRATION, BookieHealth
from fencelog.api.processes.descriptors import connection_limits
from fencelog.api.processes.health_listener import listening_for_health
from fencelog.api.processes.lifecycle import Running
from fencelog.api.processes.traces.options import process_spans
from fencelog.api.server.health import Health
from fencelog.bookie.auditor.decommission import Decommissions, check_not_removed
from fencelog.bookie.auditor.decommission_core import Phase
from fencelog.bookie.disk.port import Disk
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.disk.space import BY_DISK, smallest_disk_bytes
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.engine.boot import fence_before_serving
from fencelog.bookie.identity.cookie_registry import COOKIES_PATH, CookieRegistry
from fencelog.bookie.maintenance.disk_watch import DiskWatch
from fencelog.bookie.maintenance.maintenance import MaintenanceConfig, maintenance
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.bookie.server.server import BookieServer
from fencelog.broker.limits import MAX_NAME_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host, SystemHost
from fencelog.ledgers.limits import BOOKIE_MAX_CONNECTIONS, FREE_BYTES_REFRESH_MS
from fencelog.ledgers.metastore.instance import create_instance, read_instance
from fencelog.ledgers.metastore.open import certificates_of, open_metadata_store
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.registration import BOOKIES_PATH, Registration
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies, bookie_registration
from fencelog.ledgers.rpc.bookie_port import DEFAULT_RACK, BookieInfo
from fencelog.ledgers.rpc.secret_file import secret_from

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0
"""Pause before a cookie that could not be read is read again."""


@dataclass(frozen=True, slots=True)
class BookieProcessConfig:
    """The configuration of a bookie process. ``metadata``: URL of the store. ``storage``: its
    directories and their limits. ``advertise``: the ``host:port`` that clients connect to, where it
    differs from ``listen`` (None: it does not). ``rack``: a unit that fails together; writers
    spread the copies of an entry over racks. ``secret_file``: the secret that clients have to know
    (None: all clients are accepted). ``insecure``: without one, others than this machine may reach
    it all the same. ``autorecovery``: self-healing runs in this process, too. ``health``: the
    ``host:port`` at which health and metrics can be asked over HTTP (None: nowhere).
    ``accepted_secret_file``: another secret that clients may know instead, while it is changed."""

    metadata: str
    storage: BookieConfig
    listen: str = "127.0.0.1:3181"
    advertise: str | None = None
    rack: str = DEFAULT_RACK
    secret_file: Path | None = None
    insecure: bool = False
    autorecovery: bool = False
    health: str | None = None
    accepted_secret_file: Path | None = None


@contextlib.asynccontextmanager
async def bookie_process(config: BookieProcessConfig) -> AsyncIterator[Running]:
    """Run a bookie process over a shared metadata store.

    Raises FencelogError: METADATA_UNAVAILABLE within METADATA_TIMEOUT_MS, METADATA_NOT_FOUND (a
    store that belongs to no cluster), DATA_DIRECTORY_IN_USE, BAD_REQUEST (addresses, rack, secret,
    directories of another bookie), CORRUPT (a directory that was lost, a damaged file).
    """
    check_advertised(config.listen, config.advertise)
    is_meant = config.insecure or config.secret_file is not None
    check_listener(config.listen, insecure=is_meant, risk=BOOKIE_RISK)
    host = SystemHost()
    secret = secret_from(config.secret_file, host=host, accepted=config.accepted_secret_file)
    limits = connection_limits([config.storage.shard_count], http=False)
    async with contextlib.AsyncExitStack() as stack:
        store = open_metadata_store(config.metadata, host=host)
        await store.start()
        stack.push_async_callback(store.close)
        if config.metadata == "memory:":  # new each time, and used by this process alone
            await create_instance(store, host)
        bookie, address = await stack.enter_async_context(
            serving_bookie(
                store,
                config.storage,
                host=host,
                listen=config.listen,
                advertise=config.advertise,
                rack=config.rack,
                secret=secret,
                decommissions=Decommissions(store),
                max_connections=limits.bookie,
            )
        )
        removed = await stack.enter_async_context(noticing_removal(store, bookie))
        announcement = {
            "role": "bookie",
            "id": bookie.bookie_id,
            "incarnation": bookie.incarnation,
            "address": address,
        }
        if config.autorecovery:
            healing = serving_autorecovery(
                store,
                {bookie.bookie_id: LocalBookieClient(bookie)},
                process_id=bookie.bookie_id,
                host=host,
                secret=secret,
            )
            await stack.enter_async_context(healing)
        if config.health is not None:
            checks = BookieHealth(bookie)
            health = Health(checks.check_ready, checks.check_live)
            listening = listening_for_health(
                health, config.health, metrics=partial(_metrics, bookie)
            )
            url = await stack.enter_async_context(listening)
            announcement["health"] = url
        yield Running(announcement, (bookie.failure, removed))


async def _metrics(bookie: Bookie) -> bytes:
    """Return the metrics of a bookie process. Raises FencelogError(STORAGE_FAILED)."""
    from fencelog.api.metrics.bookies import bookie_metrics, measure_bookies
    from fencelog.api.metrics.exposition import exposition

    return exposition(bookie_metrics(await measure_bookies([bookie])))


@contextlib.asynccontextmanager
async def noticing_removal(
    store: MetadataStore, bookie: Bookie
) -> AsyncIterator[asyncio.Future[FencelogError]]:
    """Yield what is resolved once the bookie has been taken out of the cluster while it ran: it was
    away for longer than its session lives, so its decommission could end, and it would register
    again and take adds without a cookie. Raises FencelogError: METADATA_UNAVAILABLE,
    METADATA_UNKNOWN."""
    loop = asyncio.get_running_loop()
    instance = await read_instance(store)
    changed, removed = asyncio.Event(), loop.create_future()
    path = f"{COOKIES_PATH}/{bookie.bookie_id}"
    watch = store.watch_value(path, lambda node: changed.set())

    async def look() -> None:
        while not removed.done():
            await changed.wait()
            changed.clear()
            try:
                if await read_instance(store) == instance:  # else it was emptied, and says nothing
                    await check_not_removed(store, bookie.bookie_id, bookie.incarnation)
            except FencelogError as error:
                if error.code is ErrorCode.BAD_REQUEST:
                    removed.set_result(error)
                else:  # not known: the watch says nothing more where the store is still away
                    await asyncio.sleep(_LOOK_AGAIN_S)
                    changed.set()

    task = loop.create_task(look(), name="noticing-removal")
    try:
        yield removed
    finally:
        watch.close()
        await cancel_all((task,))


@contextlib.asynccontextmanager
async def serving_bookie(
    store: MetadataStore,
    config: BookieConfig,
    *,
    host: Host,
    listen: str,
    advertise: str | None = None,
    rack: str = DEFAULT_RACK,
    disk: Disk | None = None,
    secret: SharedSecret | None = None,
    settings: MaintenanceConfig | None = None,
    decommissions: Decommissions | None = None,
    max_connections: int = BOOKIE_MAX_CONNECTIONS,
) -> AsyncIterator[tuple[Bookie, str]]:
    """Run a bookie that listens and is registered, and yield it with its registered address.
    ``disk``: None for that of this machine. ``secret``: the secret of clients and of its peers.
    ``decommissions``: those of the cluster, None where no bookie ever leaves.

    A bookie that may have lost entries fences its ledgers before it listens and registers. One that
    is being decommissioned is read-only from its start. Leaving removes the registration first, so
    that writers stop choosing this bookie, then closes the connections, then the storage.
    """
    _check_rack(rack)
    listen_host, listen_port = parse_address(listen)
    disk = disk or PosixDisk()
    config = await _fitted(config, disk)
    async with contextlib.AsyncExitStack() as stack:
        bookie = await Bookie.open(config, disk=disk, host=host, cookies=CookieRegistry(store))
        stack.push_async_callback(bookie.close)
        if (traced := process_spans.get()) is not None:
            bookie.metrics.spans = traced.spans
        await fence_before_serving(bookie, store)
        await _make_read_only_if_leaving(bookie, decommissions)
        watch = DiskWatch(bookie, config)
        await watch.check()  # before it announces that it takes adds
        server = await BookieServer.start(
            bookie,
            listen_host,
            listen_port,
            authenticator=secret,
            max_connections=max_connections,
        )
        stack.push_async_callback(server.close)
        bookies = await _peers(store, bookie, secret, stack)
        services = maintenance(
            bookie,
            store,
            bookies,
            watch=watch,
            config=config,
            settings=settings or MaintenanceConfig(),
            disk=disk,
            host=host,
        )
        await stack.enter_async_context(services)
        address = advertise or server.address
        await stack.enter_async_context(_registered(store, bookie, address, rack, host=host))
        if decommissions is not None:
            await check_not_removed(store, bookie.bookie_id, bookie.incarnation)
        yield bookie, address


def _needed_for(store: MetadataStore) -> dict[str, Any]:
    """Return what the connection to a store depends on, as JSON-compatible values."""
    return {"certificates": msgspec.to_builtins(certificates_of(store))}


def _check_rack(rack: str) -> None:
    if not 0 < len(rack.encode()) <= MAX_NAME_BYTES:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"the name of a rack has 1 to {MAX_NAME_BYTES} bytes"
        )


async def _make_read_only_if_leaving(bookie: Bookie, decommissions: Decommissions | None) -> None:
    """Make a bookie read-only before it listens, if it is leaving: until its auditor sees it,
    writers would choose it."""
    found = None if decommissions is None else await decommissions.get(bookie.bookie_id)
    if found is not None and found[0].phase is not Phase.CANCELLING:
        bookie.is_read_only = True


async def _fitted(config: BookieConfig, disk: Disk) -> BookieConfig:
    """Return the configuration with sizes that suit the smallest disk."""
    io_thread = disk.io_thread("bookie-fit")
    try:
        return config.fitted(await io_thread.run(lambda: smallest_disk_bytes(disk, config)))
    finally:
        await io_thread.close()


async def _peers(
    store: MetadataStore,
    bookie: Bookie,
    secret: SharedSecret | None,
    stack: contextlib.AsyncExitStack,
) -> RegisteredBookies:
    """Return all bookies, as this one reaches them for repairs."""

    def connect(address: str, bookie_id: str) -> TcpBookieClient:
        return TcpBookieClient(bookie_id, address, credentials=secret)

    local = {bookie.bookie_id: LocalBookieClient(bookie)}
    bookies = RegisteredBookies(store, local=local, connect=connect)
    await bookies.start()
    stack.push_async_callback(bookies.close)
    return bookies


@contextlib.asynccontextmanager
async def _registered(
    store: MetadataStore, bookie: Bookie, address: str, rack: str, *, host: Host
) -> AsyncIterator[None]:
    """Register the bookie, keep its registration up to date, and show it in the bookie's status,
    with what the connection to the store depends on."""
    started_us = host.now_us()
    look_again = asyncio.Event()

    async def value() -> bytes:
        space = await bookie.space()
        info = BookieInfo(
            bookie.bookie_id,
            bookie.incarnation,
            rack,
            space.free_bytes,
            bookie.is_read_only,
            BY_DISK in bookie.read_only_for,
            space.total_bytes,
            started_us,
        )
        return bookie_registration(address, info)

    async def refresh() -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FREE_BYTES_REFRESH_MS / 1000):
                    await look_again.wait()
            look_again.clear()
            try:
                registration.update(await value())
            except FencelogError as error:
                _log.warning("bookie %s: %s", bookie.bookie_id, error)

    path = f"{BOOKIES_PATH}/{bookie.bookie_id}"
    bookie.on_read_only[look_again.set] = None  # before it is said whether it is
    try:
        registration = await Registration.start(store, path, await value())
        bookie.status_parts[REGISTRATION] = lambda: {
            "registered": registration.is_registered,
            "address": address,
            "rack": rack,
        }
        bookie.status_parts["metadata"] = lambda: _needed_for(store)
        task = asyncio.create_task(refresh(), name="bookie-registration")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await registration.close()
    finally:
        bookie.on_read_only.pop(look_again.set, None)
