"""A command's access to a cluster: its metadata, and the bookies registered there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fencelog.api.processes.lifecycle import run_on_uvloop
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import require_instance
from fencelog.ledgers.metastore.open import check_metadata_file, open_metadata_store
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies
from fencelog.ledgers.rpc.secret_file import secret_from

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    store: MetadataStore
    ledgers: LedgerStore
    bookies: RegisteredBookies


def with_cluster(
    metadata: str, secret_file: Path | None, request: Callable[[ClusterAccess], Awaitable[T]]
) -> T:
    """Send a request to a cluster, on an event loop of its own. ``metadata``: URL of the store.
    Raises FencelogError: METADATA_UNAVAILABLE, METADATA_NOT_FOUND (a store that belongs to no
    cluster, in which everything would look well), BAD_REQUEST (URL, file, secret), or as the
    request."""

    async def main() -> T:
        async with cluster_access(metadata, secret_file) as cluster:
            return await request(cluster)

    return run_on_uvloop(main())


@contextlib.asynccontextmanager
async def cluster_access(
    metadata: str, secret_file: Path | None, *, needs_instance: bool = True
) -> AsyncIterator[ClusterAccess]:
    """Open the access of ``with_cluster``, on a running loop; not ``needs_instance``: also where
    the store belongs to no cluster. Raises FencelogError as ``with_cluster``."""
    check_metadata_file(metadata)
    host = SystemHost()
    secret = secret_from(secret_file, host=host)

    def connect(address: str, bookie_id: str) -> TcpBookieClient:
        return TcpBookieClient(bookie_id, address, credentials=secret)

    async with contextlib.AsyncExitStack() as stack:
        store = open_metadata_store(metadata, host=host)
        await store.start()
        stack.push_async_callback(store.close)
        if needs_instance:
            await require_instance(store, metadata)
        bookies = RegisteredBookies(store, connect=connect)
        await bookies.start()
        stack.push_async_callback(bookies.close)
        yield ClusterAccess(store, LedgerStore(store), bookies)
