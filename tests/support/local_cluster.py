"""Bookies on real directories in this process, over one metadata store, and clients of them."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.engine.boot import fence_before_serving
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.repair.integrity import Integrity
from fencelog.bookie.replication.worker import ReplicationWorker
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieInfo
from fencelog.ledgers.writer.writer import LedgerWriter


class LocalCluster:
    """The bookies b1, b2, …. Implements ``BookieDirectory``; use it with ``async with``."""

    def __init__(self, path: Path, size: int = 3) -> None:
        self.path = path
        self.size = size
        self.bookies: dict[str, Bookie] = {}
        self._clients: dict[str, BookieClient] = {}
        self._cut: set[str] = set()
        self._stack = AsyncExitStack()
        self.store = MemoryMetadataStore()

    async def __aenter__(self) -> LocalCluster:
        await self.store.start()
        self._stack.push_async_callback(self.store.close)
        await create_instance(self.store, SystemHost())
        self.ledgers = LedgerStore(self.store)
        self.placement = Placement(self, host=SystemHost())
        self.ledger_client = LedgerClient(self.store, self, host=SystemHost())
        for number in range(1, self.size + 1):
            await self.start(f"b{number}")
        return self

    async def __aexit__(self, *_: object) -> None:
        for bookie_id in list(self.bookies):
            await self.stop(bookie_id)
        await self._stack.aclose()

    def client(self, bookie_id: str) -> BookieClient:
        client = None if bookie_id in self._cut else self._clients.get(bookie_id)
        return client or AbsentBookie(bookie_id)

    def put(self, bookie_id: str, client: Any) -> None:
        """Replace the client by which others reach the bookie, until it is started again."""
        self._clients[bookie_id] = client

    def cut(self, *bookie_ids: str) -> None:
        """Make these bookies, and no others, unreachable."""
        self._cut = set(bookie_ids)

    def available(self) -> list[str]:
        return sorted(self.bookies)

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        bookie = self.bookies.get(bookie_id)
        return BookieInfo(bookie_id, bookie.incarnation if bookie else "")

    def directory(self, bookie_id: str) -> Path:
        return self.path / bookie_id

    async def start(self, bookie_id: str, *, disk: Disk | None = None, **settings: Any) -> Bookie:
        """Start a bookie as a process does: ledgers of which it may have lost entries are fenced
        before it serves."""
        config = BookieConfig(self.directory(bookie_id), bookie_id=bookie_id, **settings)
        bookie = await Bookie.open(
            config,
            disk=disk or PosixDisk(),
            host=SystemHost(),
            cookies=CookieRegistry(self.store),
        )
        await fence_before_serving(bookie, self.store)
        self.bookies[bookie_id] = bookie
        self._clients[bookie_id] = LocalBookieClient(bookie)
        return bookie

    async def stop(self, bookie_id: str) -> None:
        del self._clients[bookie_id]
        await self.bookies.pop(bookie_id).close()

    async def kill(self, bookie_id: str) -> None:
        """Kill a bookie as ``kill -9`` does: everything written stays, nothing more is written."""
        self.bookies[bookie_id]._fail(FencelogError(ErrorCode.STORAGE_FAILED, "killed"))
        await self.stop(bookie_id)

    async def restart(self, bookie_id: str, **settings: Any) -> Bookie:
        await self.stop(bookie_id)
        return await self.start(bookie_id, **settings)

    async def lose_disk(self, bookie_id: str) -> Bookie:
        """Start a bookie with an empty disk."""
        await self.kill(bookie_id)
        shutil.rmtree(self.directory(bookie_id))
        return await self.start(bookie_id, repair_cookie=True)

    def integrity(self, bookie_id: str, **settings: Any) -> Integrity:
        settings.setdefault("ledgers", self.ledgers)
        settings.setdefault("bookies", self)
        return Integrity(
            self.bookies[bookie_id], placement=self.placement, copy_bytes_per_s=None, **settings
        )

    def worker(self, **settings: Any) -> ReplicationWorker:
        settings.setdefault("copy_bytes_per_s", None)
        return ReplicationWorker(
            self.store, self, worker_id="w1", host=SystemHost(), check_ms=20, **settings
        )

    async def write(
        self, *payloads: bytes, ensemble: int = 3, copies: int = 3, acks: int = 2
    ) -> LedgerWriter:
        """Create a ledger with these entries, all of them acknowledged; it stays open."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def on_ack(entry_id: int) -> None:
            if entry_id == len(payloads) - 1:
                done.set_result(None)

        def on_failure(error: FencelogError) -> None:
            if not done.done():
                done.set_exception(error)

        writer = await self.ledger_client.create(
            Replication(ensemble, copies, acks), on_ack=on_ack, on_failure=on_failure
        )
        for payload in payloads:
            writer.append(payload)
        async with asyncio.timeout(20):
            await done
        return writer

    async def create(self, ensemble: int = 3, copies: int = 3, acks: int = 2) -> LedgerWriter:
        """Create a ledger without entries."""
        return await self.ledger_client.create(
            Replication(ensemble, copies, acks),
            on_ack=lambda entry_id: None,
            on_failure=lambda error: None,
        )

    async def contents(self, ledger_id: int) -> list[bytes]:
        """Return the payloads of a closed ledger, as any reader finds them."""
        reader = await self.ledger_client.open(ledger_id)
        found: list[bytes] = []
        while len(found) <= reader.metadata.last_entry_id:
            entries = await reader.read(len(found), reader.metadata.last_entry_id)
            found += [bytes(entry.payload) for entry in entries]
        return found
