"""The whole service in one process: an embedded metadata store, bookies, a broker, HTTP.

The broker calls the bookies directly, the same code that a bookie process runs; each also listens
on loopback, for Spark. One directory holds all of it:

    DATA/lock               held by the process that uses the directory
    DATA/reserve            space that is released when the disk is full
    DATA/metadata.sqlite    topics, lists of ledgers, ledgers
    DATA/bookie-1 …         one storage node each
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fencelog.api.http.addresses import check_listener
from fencelog.api.processes.autorecovery import serving_autorecovery
from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.api.processes.broker_main import serving_broker
from fencelog.api.processes.browser_access import NO_OTHERS, BrowserAccess
from fencelog.api.processes.descriptors import connection_limits
from fencelog.api.processes.disk_reserve import kept_reserve
from fencelog.api.processes.lifecycle import Running
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.identity.cookie_registry import initialise_cluster
from fencelog.bookie.maintenance.maintenance import MaintenanceConfig
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.ledgers.client import DEFAULT_COPIES, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host, SystemHost
from fencelog.ledgers.ledger_metadata.ids import last_given_id
from fencelog.ledgers.metastore.instance import read_instance
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.rpc.bookie_directory import EmbeddedBookie

_SPARE_IDS = 10_000
"""More than were given to writers whose ledgers have no entry yet, so that no bookie knows them."""
_MOST_LOST_IDS = 1_000_000_000_000
"""More than were ever given: an id beyond that is of no ledger that there ever was."""


@dataclass(frozen=True, slots=True)
class StandaloneConfig:
    """The configuration of the process. ``http``: the address to listen on. ``bookies``: storage
    nodes in the process, each with a copy of what its ledgers ask for; fewer than 3 make fewer
    copies unless a topic says otherwise. ``browsers``: who may ask over HTTP. ``record_events``: in
    the timeline."""

    data_dir: Path
    http: str = "127.0.0.1:8080"
    bookies: int = 3
    browsers: BrowserAccess = NO_OTHERS
    record_events: bool = True


@contextlib.asynccontextmanager
async def standalone(config: StandaloneConfig) -> AsyncIterator[Running]:
    """Run the service in one process, over an embedded store.

    Raises FencelogError: DATA_DIRECTORY_IN_USE, BAD_REQUEST (address, directory), CORRUPT.
    """
    check_listener(config.http, insecure=config.browsers.insecure)
    host = SystemHost()
    limits = connection_limits([1] * config.bookies, http=True)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(locked_directory(config.data_dir))
        await stack.enter_async_context(kept_reserve(config.data_dir))
        metadata = config.data_dir / "metadata.sqlite"
        store = await stack.enter_async_context(opened_metadata(metadata, host))
        await initialise_new(store, bookie_directories(config.data_dir), host)
        bookies: list[Bookie] = []
        local: dict[str, EmbeddedBookie] = {}
        settings = MaintenanceConfig(compacting=asyncio.Lock())
        for number in range(1, config.bookies + 1):
            bookie, _ = await stack.enter_async_context(
                serving_bookie(
                    store,
                    BookieConfig(
                        data_dir=config.data_dir / f"bookie-{number}",
                        bookie_id=f"bookie-{number}",
                        # The disk is a person's own, and may be full to any degree.
                        read_only_at=1.0,
                        writable_at=1.0,
                        sharers=config.bookies,
                    ),
                    host=host,
                    listen="127.0.0.1:0",
                    settings=settings,
                    decommissions=Decommissions(store),
                    max_connections=limits.bookie,
                )
            )
            bookies.append(bookie)
            local[bookie.bookie_id] = LocalBookieClient(bookie)
        states = (shard.states for bookie in bookies for shard in bookie.shards)
        known = chain.from_iterable(each.ids() for each in states)
        await check_knows_ids(store, metadata, known)
        healing = serving_autorecovery(store, local, process_id="standalone", host=host)
        await stack.enter_async_context(healing)
        url = await stack.enter_async_context(
            serving_broker(
                store,
                local,
                host=host,
                http=config.http,
                replication=Replication.of_copies(min(DEFAULT_COPIES, config.bookies)),
                browsers=config.browsers,
                measured=bookies,
                record_events=config.record_events,
                max_connections=limits.http,
            )
        )
        yield Running(
            {"role": "standalone", "http": url, "data": str(config.data_dir)},
            (store.failure, *(bookie.failure for bookie in bookies)),
        )


@contextlib.asynccontextmanager
async def opened_metadata(path: Path, host: Host) -> AsyncIterator[SqliteMetadataStore]:
    """Open the metadata store. Where its file fails, that is the error, whatever failed with it."""
    store = SqliteMetadataStore(path, host=host)
    await store.start()
    try:
        try:
            yield store
        finally:
            await store.close()
    except FencelogError as error:
        if store.failure.done():
            raise store.failure.result() from error
        raise


def bookie_directories(data_dir: Path) -> list[Path]:
    """Return the directories that bookies have begun already."""
    return sorted(data_dir.glob("bookie-*"))


async def initialise_new(store: MetadataStore, bookies: list[Path], host: Host) -> None:
    """Create the cluster of a store, unless bookies already have data of one.

    Raises FencelogError: BAD_REQUEST, METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT.
    """
    if bookies and await read_instance(store) is None:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{bookies[0]} holds the data of a bookie, but the metadata beside it belongs to no "
            "cluster: it was lost, or all of it is of a version before 0.1.0. Bring it back; if "
            f"everything may go, remove the directory {bookies[0].parent}",
        )
    await initialise_cluster(store, host)


async def check_knows_ids(store: MetadataStore, file: Path, known: Iterable[int]) -> None:
    """Check that a store, of this file, has given the ids of the ledgers that bookies have,
    ``known``. One that went back to an older state would give them again, and bookies take an entry
    that they have already for a repetition, and keep the old one.

    Raises FencelogError: BAD_REQUEST, METADATA_UNAVAILABLE, CORRUPT.
    """
    given = await last_given_id(store)
    highest = max((i for i in known if i <= given + _MOST_LOST_IDS), default=0)
    if highest > given:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{file} is older than the bookies beside it: it has given ledger ids up to {given}, "
            f"they have ledgers up to {highest}. Bring the newest one back. To go on without the "
            "messages in ledgers that this one does not name: fencelog metadata skip-ledger-ids "
            f"--metadata {shlex.quote(f'sqlite:{file}')} --count {highest - given + _SPARE_IDS}",
        )


@contextlib.contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """Hold a directory for this process; the kernel releases it however the process ends.

    Raises FencelogError: DATA_DIRECTORY_IN_USE, BAD_REQUEST (it cannot be made or written).
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"cannot use the data directory {path}: {error.strerror}"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FencelogError(
            ErrorCode.DATA_DIRECTORY_IN_USE, f"another process uses the data directory {path}"
        ) from None
    try:
        yield
    finally:
        os.close(lock)
