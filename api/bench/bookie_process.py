"""The process that ``fencelog bench bookie`` measures: a bookie whose buffers the bench chooses."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.api.processes.lifecycle import Running
from fencelog.bookie.engine.bookie import BookieConfig
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.open import open_metadata_store


@contextlib.asynccontextmanager
async def bench_bookie_process(metadata: str, config: BookieConfig) -> AsyncIterator[Running]:
    """Run a bookie on a free port of loopback. ``metadata``: URL of its store, which is created."""
    host = SystemHost()
    async with contextlib.AsyncExitStack() as stack:
        store = open_metadata_store(metadata, host=host)
        await store.start()
        stack.push_async_callback(store.close)
        await create_instance(store, host)
        bookie, address = await stack.enter_async_context(
            serving_bookie(store, config, host=host, listen="127.0.0.1:0")
        )
        announcement = {
            "id": bookie.bookie_id,
            "incarnation": bookie.incarnation,
            "address": address,
        }
        yield Running(announcement, (bookie.failure,))
