"""Composition root of a storage node: a bookie, its TCP server, its registration."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from fencelog.api.addresses import check_advertised, parse_address
from fencelog.api.lifecycle import Running
from fencelog.bookie.bookie import Bookie, BookieConfig
from fencelog.bookie.disk_posix import PosixDisk
from fencelog.bookie.server import BookieServer
from fencelog.ledgers.bookie_directory import bookie_registration
from fencelog.ledgers.bookie_port import BookieInfo
from fencelog.ledgers.host import Host, SystemHost
from fencelog.ledgers.metadata_open import open_metadata_store
from fencelog.ledgers.metadata_store import MetadataStore
from fencelog.ledgers.registration import Registration


@dataclass(frozen=True, slots=True)
class BookieProcessConfig:
    """``metadata``: URL of the store. ``advertise``: the ``host:port`` that clients connect to,
    where it differs from ``listen`` (None: it does not). ``bookie_id``: None takes the one the
    data directory was given at its first start."""

    metadata: str
    data_dir: Path
    listen: str = "127.0.0.1:3181"
    advertise: str | None = None
    bookie_id: str | None = None


@contextlib.asynccontextmanager
async def bookie_process(config: BookieProcessConfig) -> AsyncIterator[Running]:
    """A bookie process over a shared metadata store.

    Raises FencelogError: METADATA_UNAVAILABLE within METADATA_TIMEOUT_MS,
    DATA_DIRECTORY_IN_USE, BAD_REQUEST (addresses), CORRUPT (its journal).
    """
    check_advertised(config.listen, config.advertise)
    host = SystemHost()
    async with contextlib.AsyncExitStack() as stack:
        store = open_metadata_store(config.metadata, host=host)
        await store.start()
        stack.push_async_callback(store.close)
        bookie, address = await stack.enter_async_context(
            serving_bookie(
                store,
                BookieConfig(data_dir=config.data_dir, bookie_id=config.bookie_id),
                host=host,
                listen=config.listen,
                advertise=config.advertise,
            )
        )
        yield Running(
            {
                "role": "bookie",
                "id": bookie.bookie_id,
                "incarnation": bookie.incarnation,
                "address": address,
            },
            (bookie.failure,),
        )


@contextlib.asynccontextmanager
async def serving_bookie(
    store: MetadataStore,
    config: BookieConfig,
    *,
    host: Host,
    listen: str,
    advertise: str | None = None,
) -> AsyncIterator[tuple[Bookie, str]]:
    """A bookie that listens and is registered, and the address it is registered with.

    Leaving takes the registration away first, so that writers stop choosing this bookie, then
    the connections, then closes the storage.
    """
    listen_host, listen_port = parse_address(listen)
    async with contextlib.AsyncExitStack() as stack:
        bookie = await Bookie.open(config, disk=PosixDisk(), host=host)
        stack.push_async_callback(bookie.close)
        server = await BookieServer.start(bookie, listen_host, listen_port)
        stack.push_async_callback(server.close)
        address = advertise or server.address
        registration = await Registration.start(
            store,
            f"/bookies/{bookie.bookie_id}",
            bookie_registration(
                address,
                BookieInfo(bookie.bookie_id, bookie.incarnation),
                started_us=host.now_us(),
            ),
        )
        stack.push_async_callback(registration.close)
        yield bookie, address
