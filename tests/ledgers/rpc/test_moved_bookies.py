"""A bookie that comes back at another address: writers and readers that stand find it at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.until import PATIENCE_S, until

HOST = SystemHost()

SILENCE_MS = round(10 * PATIENCE_S * 1000)
"""The time-outs of clients. Whoever goes on waiting at a bookie's old address, rather than at the
one that it has registered, is not done within ``PATIENCE_S``."""


class Machines:
    """Bookies b1, b2 and b3 on loopback, and a client of them with a session of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory = MemoryCluster()
        self._running: dict[str, contextlib.AsyncExitStack] = {}
        self._taken = contextlib.AsyncExitStack()
        self.store = MemoryMetadataStore(self._memory)
        connect = partial(TcpBookieClient, timeout_ms=SILENCE_MS)
        self.bookies = RegisteredBookies(self.store, connect=lambda a, b: connect(b, a))
        self.client = LedgerClient(self.store, self.bookies, host=HOST)
        self.opened: dict[str, Bookie] = {}

    async def start(self) -> None:
        await self.store.start()
        await create_instance(self.store, HOST)
        for name in ("b1", "b2", "b3"):
            await self.start_bookie(name)
        await self.bookies.start()

    async def close(self) -> None:
        await self.bookies.close()
        for name in list(self._running):
            await self.stop_bookie(name)
        await self.store.close()
        await self._taken.aclose()

    async def start_bookie(self, name: str) -> None:
        stack = self._running[name] = contextlib.AsyncExitStack()
        session = MemoryMetadataStore(self._memory)
        await session.start()
        stack.push_async_callback(session.close)
        config = BookieConfig(self._path / name, bookie_id=name)
        bookie, _ = await stack.enter_async_context(
            serving_bookie(session, config, host=HOST, listen="127.0.0.1:0")
        )
        self.opened[name] = bookie

    async def stop_bookie(self, name: str) -> None:
        await self._running.pop(name).aclose()

    async def move_bookie(self, name: str) -> None:
        """Start a bookie anew elsewhere. Something else that says nothing takes its address."""
        port = int(self.bookies.addresses()[name].rpartition(":")[2])
        await self.stop_bookie(name)
        silent = await asyncio.start_server(_say_nothing, "127.0.0.1", port)
        self._taken.push_async_callback(silent.wait_closed)
        self._taken.callback(silent.close)
        await self.start_bookie(name)

    def has(self, name: str, ledger_id: int, *, above: int) -> bool:
        """Tell whether a bookie has got an entry after this one."""
        state = self.opened[name].shard(ledger_id).states.get(ledger_id)
        return state is not None and state.last_entry > above


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest_asyncio.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    machines = Machines(tmp_path)
    await machines.start()
    yield machines
    await machines.close()


async def test_a_standing_writer_and_reader_reach_it_within_no_time_out(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.ledgers.rpc.bookie_connection.CONNECT_TIMEOUT_MS", SILENCE_MS)
    monkeypatch.setattr("fencelog.ledgers.writer.writer.REPLACE_RETRY_S", SILENCE_MS / 1000)
    acked: list[int] = []
    failures: list[FencelogError] = []
    writer: LedgerWriter = await machines.client.create(
        Replication(), on_ack=acked.append, on_failure=failures.append
    )
    reader: LedgerReader = await machines.client.open(writer.ledger_id)

    async def append(payload: bytes) -> int:
        entry = writer.append(payload)
        await until(lambda: acked[-1:] == [entry])
        return entry

    for name in ("b1", "b2", "b3"):
        last = await append(b"before")
        await machines.move_bookie(name)
        async with asyncio.timeout(PATIENCE_S):
            while not machines.has(name, writer.ledger_id, above=last):
                await append(b"after")
    # Every bookie is at another address than when the reader was opened.
    last = writer.last_add_confirmed
    reader.confirm(last)
    payloads: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(payloads) <= last:
            payloads += [bytes(entry.payload) for entry in await reader.read(len(payloads), last)]
    assert set(payloads) == {b"before", b"after"}
    assert payloads.count(b"before") == 3
    assert not failures
    await writer.close()
