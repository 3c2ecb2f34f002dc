"""A cluster as the auditor sees it: registrations, cookies and ledgers in a metadata store in
memory, and scripted bookies that list what they have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from fencelog.bookie.auditor.auditor import Auditor, AuditorConfig
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.identity.cookie_registry import CookieRegistry, StoredCookie
from fencelog.bookie.identity.cookies import Cookie
from fencelog.bookie.identity.cookies_core import RegisteredCookie
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.ledgers.format.run import build_run, slice_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.quorum import write_set
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from fencelog.ledgers.rpc.bookie_port import BookieInfo
from tests.support.scripted_cluster import ScriptedBookie


class LoopHost(SystemHost):
    """A host whose clock is that of the event loop."""

    def now_us(self) -> int:
        return round(asyncio.get_running_loop().time() * 1_000_000) + 1_000_000_000_000_000

    def fraction(self) -> float:
        return 0.5


class AuditStage:
    """The cluster. Implements ``BookieDirectory``; a bookie that is down is still registered."""

    def __init__(self, size: int) -> None:
        self.host = LoopHost()
        self.memory = MemoryCluster()
        self.store = MemoryMetadataStore(self.memory)
        self.ledgers = LedgerStore(self.store)
        self.marks = UnderReplicatedLedgers(self.store)
        self.bookies = {f"b{n}": ScriptedBookie(f"b{n}") for n in range(1, size + 1)}
        self._infos: dict[str, BookieInfo] = {}
        self._sessions: dict[str, MemoryMetadataStore] = {}

    async def __aenter__(self) -> Self:
        await self.store.start()
        instance, _ = await create_instance(self.store, self.host)
        for name in self.bookies:
            cookie = Cookie(name, instance, "01" * 16, "01" * 16)
            await CookieRegistry(self.store).register(
                cookie, StoredCookie(RegisteredCookie(instance))
            )
            await self.register(name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            await session.close()
        await self.store.close()

    # -- bookies ---------------------------------------------------------------------------------

    async def register(self, name: str, *, rack: str = "r1", read_only: bool = False) -> None:
        """Register a bookie, or change what its registration states."""
        await self.deregister(name)
        info = BookieInfo(name, "1", rack, 1 << 30, read_only)
        session = self._sessions[name] = MemoryMetadataStore(self.memory)
        await session.start()
        value = bookie_registration(f"{name}:1", info)
        await session.create(f"{BOOKIES_PATH}/{name}", value, ephemeral=True)
        self._infos[name] = info

    async def deregister(self, name: str) -> None:
        if (session := self._sessions.pop(name, None)) is not None:
            await session.close()
        if (info := self._infos.get(name)) is not None:
            self._infos[name] = replace(info)

    async def lose(self, name: str) -> None:
        """Let a bookie die: it answers nothing, and its session expires."""
        self.bookies[name].go_down()
        await self.deregister(name)

    async def give_up(self, name: str) -> None:
        """Delete the cookie of a bookie that is lost."""
        await self.lose(name)
        cookies = CookieRegistry(self.store)
        version = (await cookies.read(name)).version
        assert version is not None
        await cookies.delete(name, version)

    def client(self, bookie_id: str) -> ScriptedBookie:
        return self.bookies[bookie_id]

    def available(self) -> list[str]:
        return sorted(b for b in self._sessions if not self._infos[b].is_read_only)

    def read_only(self) -> list[str]:
        return sorted(b for b in self._sessions if self._infos[b].is_read_only)

    def describe(self, bookie_id: str) -> BookieInfo:
        return self._infos.get(bookie_id) or BookieInfo(bookie_id)

    # -- ledgers ---------------------------------------------------------------------------------

    async def ledger(
        self,
        ledger_id: int,
        ensemble: str = "b1 b2 b3",
        *,
        write_quorum: int = 3,
        qa: int = 2,
        last: int = 9,
        then: Iterable[tuple[int, str]] = (),
        is_closed: bool = True,
    ) -> LedgerMetadata:
        """Create a ledger with all its copies; ``then``: further fragments."""
        metadata = new_metadata(
            ledger_id,
            ensemble=tuple(ensemble.split()),
            write_quorum=write_quorum,
            ack_quorum=qa,
            token=f"token-{ledger_id}",
        )
        for first, bookies in then:
            metadata = metadata.with_ensemble(first, tuple(bookies.split()))
        run = build_run(ledger_id, 0, [b"%d" % n for n in range(last + 1)], lac=-1, length_before=0)
        for entry_id in range(last + 1):
            for bookie in self.holders(metadata, entry_id):
                held = self.bookies[bookie].entries.setdefault(ledger_id, {})
                held[entry_id] = slice_run(run, entry_id, entry_id)
        if is_closed:
            metadata = metadata.closed(last_entry_id=last, length=0)
        await self.ledgers.create(metadata)
        return metadata

    @staticmethod
    def holders(metadata: LedgerMetadata, entry_id: int) -> list[str]:
        ensemble = metadata.fragment_of(entry_id).bookies
        members = write_set(
            entry_id, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
        )
        return [ensemble[index] for index in members]

    async def change(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Replace the metadata of a ledger."""
        _, version = await self.ledgers.get(ledger_id)
        await self.ledgers.update(metadata, version)

    def drop(self, name: str, ledger_id: int, *entries: int) -> None:
        """Let a bookie lose entries that it should have."""
        for entry_id in entries:
            del self.bookies[name].entries[ledger_id][entry_id]


NEVER = dict.fromkeys(CheckName, 0)


@asynccontextmanager
async def auditing(stage: AuditStage, **settings: Any) -> AsyncIterator[Auditor]:
    settings = {"intervals_ms": NEVER, "lost_bookie_grace_ms": 600_000, **settings}
    auditor = Auditor(stage.store, stage, host=stage.host, config=AuditorConfig(**settings))
    task = asyncio.create_task(auditor.run())
    await asyncio.sleep(1)
    yield auditor
    task.cancel()
    await asyncio.wait([task])


async def marked(stage: AuditStage) -> list[int]:
    return [ledger_id async for ledger_id in stage.marks.list_ids()]
