"""The liveness phase: all is healed, so all must converge, and what was promised must be there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Entry, read_run_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.reader.reader import LedgerReader
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.ledgers.ghosts import Ghosts
from tests.sim.ledgers.storage_ending import StorageEnding
from tests.sim.ledgers.workload import Workload, check_entry
from tests.sim.oracle.history import NOES, History, WrittenLedger, write_set_of
from tests.sim.plan.plan import Plan

CLIENTS_S = 90.0
"""The time for writers, readers and recoverers to end by themselves."""

BOOKIES_S = 60.0
RECOVERY_S = 60.0
STEP_S = 0.25
COPIES_READ = 64


class Ending:
    """Runs in the world, with a client of its own on the machine "z1"."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        plan: Plan,
        workload: Workload,
        clients: list[Process],
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._plan = plan
        self._workload = workload
        self._clients = clients

    async def run(self) -> None:
        await self._history.within(BOOKIES_S, "bookies serve again", self._bookies_serve)
        await self._history.within(
            CLIENTS_S,
            "clients come to an end",
            lambda: not any(p.is_alive and p.live_tasks() for p in self._clients),
        )
        await self._let_ghosts_in()
        checked = self._cluster.client_process("z1", self._check_ledgers)
        await self._history.within(
            RECOVERY_S * 3, "all ledgers are closed and read", lambda: not checked.live_tasks()
        )
        checked.kill()
        await self._after_reading()
        storage = StorageEnding(
            self._cluster,
            self._history,
            self._plan,
            within=self._history.within,
            serve=self._bookies_serve,
            haunt=self._let_ghosts_in,
        )
        await storage.run()
        for machine in self._cluster.bookies.values():
            await machine.shut_down()
        self._cluster.is_over = True
        if self._plan.ends_storage:
            storage.check_disks()

    async def _after_reading(self) -> None:
        """Do nothing more: a place for the endings of other histories."""

    def _bookies_serve(self) -> bool:
        give_new_disks(self._cluster)
        return all(machine.bookie is not None for machine in self._cluster.bookies.values())

    async def _let_ghosts_in(self) -> None:
        """Every bookie gets adds for what it has fenced, whatever it went through since."""

        async def haunt(session: Session) -> None:
            ghosts = Ghosts(self._history, self._cluster.engine.random("ghosts"), asyncio.Event())
            for bookie in sorted(self._history.bookies) * 2:
                ghosts.add(session, bookie)
                await ghosts.ask(session, bookie)
                await ghosts.ask_for_lost(session, bookie)
            await asyncio.sleep(STEP_S)

        process = self._cluster.client_process("g2", haunt)
        await self._history.within(BOOKIES_S, "ghosts go", lambda: not process.live_tasks())
        process.kill()

    # -- ledgers ---------------------------------------------------------------------------------

    async def _check_ledgers(self, session: Session) -> None:
        for ledger_id in sorted(self._history.metadata):
            ledger = self._history.ledgers.get(ledger_id)
            if ledger is not None and ledger.is_being_deleted:
                continue
            metadata = await self._recover(session, ledger_id)
            if metadata is None:
                continue
            self._history.told_closed("the last recoverer", metadata)
            if ledger is not None:
                await self._read_back(session, ledger, metadata)
                await self._count_copies(session, metadata)
                await self._list_copies(session, metadata)

    async def _recover(self, session: Session, ledger_id: int) -> LedgerMetadata | None:
        error: FencelogError | None = None
        for _ in range(int(RECOVERY_S / STEP_S)):
            try:
                return await session.ledgers.recover(ledger_id)
            except FencelogError as refusal:
                error = refusal
                await asyncio.sleep(STEP_S)
        self._history.violate(22, f"ledger {ledger_id} cannot be closed: {error}")
        return None

    async def _read_back(
        self, session: Session, ledger: WrittenLedger, metadata: LedgerMetadata
    ) -> None:
        reader = session.ledgers.reader(metadata)
        entry_id = 0
        while entry_id <= metadata.last_entry_id:
            try:
                entries = await self._read(reader, entry_id, metadata.last_entry_id)
            except FencelogError as error:
                self._history.violate(
                    1, f"ledger {ledger.ledger_id}: entry {entry_id} is lost: {error}"
                )
                return
            for entry in entries:
                check_entry(self._history, ledger, entry_id, entry.entry_id, entry.payload)
                entry_id += 1
            if not entries:
                self._history.violate(8, f"read of {ledger.ledger_id} at {entry_id} gave nothing")
                return
            self._history.counts["entries read back"] += len(entries)

    async def _read(self, reader: LedgerReader, first: int, last: int) -> list[Entry]:
        for attempt in range(4):
            try:
                return list(await reader.read(first, last))
            except FencelogError as error:
                if not error.code.retryable or attempt == 3:
                    raise
            await asyncio.sleep(1.0)
        raise AssertionError("unreachable")

    async def _count_copies(self, session: Session, metadata: LedgerMetadata) -> None:
        """Qa copies of each entry on bookies that have not lost data for good (invariant 11). Where
        a move for balance changes the metadata meanwhile, they are counted again."""
        ledger_id = metadata.ledger_id
        members = [write_set_of(metadata, entry) for entry in range(metadata.last_entry_id + 1)]
        held = {
            bookie: await self._held(session, bookie, metadata, members)
            for bookie in sorted({bookie for some in members for bookie in some})
        }
        now = self._history.latest(ledger_id)
        if now is not None and now.fragments != metadata.fragments:
            await self._count_copies(session, now)
            return
        for entry_id, some in enumerate(members):
            damaged = [bookie for bookie in some if self._history.bookie(bookie).is_damaged]
            copies = [b for b in some if b not in damaged and entry_id in held[b]]
            if len(copies) < metadata.ack_quorum - len(damaged):
                self._history.violate(
                    11,
                    f"ledger {ledger_id}: entry {entry_id} has copies on {copies} of {some}, "
                    f"damaged: {damaged}",
                )
                return

    async def _list_copies(self, session: Session, metadata: LedgerMetadata) -> None:
        """Each bookie says which entries it has; whether it leaves one out, its own observer
        says (invariant 10)."""
        for bookie in sorted({b for fragment in metadata.fragments for b in fragment.bookies}):
            with contextlib.suppress(FencelogError):
                await session.directory.client(bookie).list_entries(metadata.ledger_id)

    async def _held(
        self,
        session: Session,
        bookie: str,
        metadata: LedgerMetadata,
        members: Sequence[Sequence[str]],
    ) -> set[int]:
        """Return what the bookie gives of the entries of which it should have a copy. It is waited
        for so long in all: one that is lost gives none of them."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + (STEP_S if self._history.bookie(bookie).is_damaged else BOOKIES_S)
        held = set[int]()
        for entry_id, some in enumerate(members):
            if bookie in some and entry_id not in held:
                timeout_s = max(STEP_S, until_s - now_s())
                held.update(await self._copies(session, bookie, metadata, entry_id, timeout_s))
        return held

    async def _copies(
        self,
        session: Session,
        bookie: str,
        metadata: LedgerMetadata,
        entry_id: int,
        timeout_s: float,
    ) -> range:
        """The entries from this one on that the bookie gives at once (a false "no" is noted where
        it is said). One that is on its way back is asked again."""
        for _ in range(int(timeout_s / STEP_S)):
            client = session.directory.client(bookie)
            try:
                reply = await client.read(
                    metadata.ledger_id, entry_id, max_entries=COPIES_READ, max_bytes=1 << 20
                )
            except FencelogError as error:
                if error.code in NOES or error.code is ErrorCode.CORRUPT:
                    break
            else:
                return range(entry_id, read_run_header(reply.run).last_entry_id + 1)
            await asyncio.sleep(STEP_S)
        return range(0)


def give_new_disks(cluster: Cluster) -> None:
    """All bookies are started; and the operator's part: one that lost data for good gets a new
    disk."""
    for machine in cluster.bookies.values():
        damaged = cluster.history.bookie(machine.name).is_damaged
        if machine.refused is ErrorCode.CORRUPT and damaged:
            machine.replace_disk()
            machine.refused = None
        machine.start()
