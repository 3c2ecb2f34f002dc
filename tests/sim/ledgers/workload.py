"""The work of clients in a history: write, recover, read and delete ledgers, each in its own
process.

Each role runs real client code and notes what it was told. They give up nothing silently: an error
that is not a ``FencelogError`` is a bug, and the process' own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerState
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.writer.core import WriterCore
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.ledgers.faults import Moments
from tests.sim.oracle.history import NOES, History, WrittenLedger
from tests.sim.plan.plan import Burst, LedgerPlan, Visit

POLL_MS = 400
RETRY_PAUSE_S = 0.3
WATCH_S = 0.01
"""Between two looks at writers that may wait for nothing."""


class Workload:
    """The roles of one plan. ``ledgers`` holds what each plan's writer has created, by index."""

    def __init__(self, cluster: Cluster, history: History, moments: Moments) -> None:
        self._cluster = cluster
        self._history = history
        self._moments = moments
        self.ledgers: dict[int, WrittenLedger] = {}
        self._writers: list[tuple[Process, WriterCore]] = []
        self.is_over = asyncio.Event()
        """The safety phase has ended: readers and idle writers go."""

    # -- writers ---------------------------------------------------------------------------------

    async def write(self, index: int, plan: LedgerPlan, session: Session) -> None:
        await asyncio.sleep(plan.starts_ms / 1000)
        ledger, writer = await self._create(index, plan, session)
        for burst in plan.bursts:
            await asyncio.sleep(burst.pause_ms / 1000)
            if writer.failure is not None or not self._append(ledger, writer, burst):
                break
        if plan.ending == "close":
            await self._close(ledger, writer)
        elif plan.ending == "leave":
            await self.is_over.wait()
        await writer.abandon()

    async def _create(
        self, index: int, plan: LedgerPlan, session: Session
    ) -> tuple[WrittenLedger, LedgerWriter]:
        ledger = WrittenLedger(0, plan.replication)
        while True:
            try:
                writer = await session.ledgers.create(
                    plan.replication,
                    on_ack=lambda lac: self._history.acknowledged(ledger, lac),
                    on_failure=lambda error: setattr(ledger, "failure", error.code.slug),
                )
            except FencelogError as error:
                if not error.code.retryable:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                break
        ledger.ledger_id = writer.ledger_id
        if self._history.ledgers.setdefault(writer.ledger_id, ledger) is not ledger:
            self._history.violate(3, f"ledger id {writer.ledger_id} was given twice")
        self.ledgers[index] = ledger
        self._writers.append((session.process, writer._core))
        return ledger, writer

    def watch_writers(self) -> None:
        """An entry that has its quorum is acknowledged then, not at the next event (BK#4261).
        Looks now and then until all is over; no task, as there are hundreds of looks."""
        if self._cluster.is_over:
            return
        for process, core in self._writers:
            if process.is_alive and not process.is_paused and _is_overdue(core):
                ledger_id = core.metadata.ledger_id
                self._history.violate(22, f"ledger {ledger_id}: entries wait for nothing")
        loop = asyncio.get_running_loop()
        loop.call_later(WATCH_S, loop.call_soon, self.watch_writers)

    def _append(self, ledger: WrittenLedger, writer: LedgerWriter, burst: Burst) -> bool:
        for size in burst.sizes:
            name = f"{ledger.ledger_id}/{len(ledger.payloads)}|".encode()
            payload = name.ljust(size, b".")
            try:
                entry_id = writer.append(payload)
            except FencelogError:
                return False
            self._history.appended(ledger, entry_id, payload)
        return True

    async def _close(self, ledger: WrittenLedger, writer: LedgerWriter) -> None:
        ledger.is_closing = True
        try:
            metadata = await writer.close()
        except FencelogError as error:
            self._history.counts[f"close: {error.code.slug}"] += 1
            self._check_nothing_happened(ledger, error)
            return
        if writer.failure is not None:
            self._history.violate(2, f"ledger {ledger.ledger_id} was closed by a failed writer")
        ledger.closed_by_writer = metadata.last_entry_id
        if metadata.last_entry_id != ledger.acknowledged:
            self._history.violate(
                2,
                f"ledger {ledger.ledger_id}: close said {metadata.last_entry_id}, "
                f"acknowledged was {ledger.acknowledged}",
            )
        self._history.told_closed("its writer", metadata)

    def _check_nothing_happened(self, ledger: WrittenLedger, error: FencelogError) -> None:
        """Check that a ledger is open after an error without effect, unless another client has
        closed it."""
        states = [version.state for version in self._history.metadata.get(ledger.ledger_id, ())]
        if error.code.effects is Effects.NONE and states[-2:] == [
            LedgerState.OPEN,
            LedgerState.CLOSED,
        ]:
            self._history.violate(2, f"ledger {ledger.ledger_id} is closed, its writer got {error}")

    # -- recoverers and deleters -----------------------------------------------------------------

    async def recover(self, visit: Visit, session: Session) -> None:
        ledger = await self._visited(visit)
        if ledger is None:
            return
        for _ in range(4):
            try:
                metadata = await session.ledgers.recover(ledger.ledger_id)
            except FencelogError as error:
                self._history.counts[f"recover: {error.code.slug}"] += 1
                if not error.code.retryable or self.is_over.is_set():
                    return
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                self._history.told_closed(visit.machine, metadata)
                return

    async def delete(self, visit: Visit, session: Session) -> None:
        ledger = await self._visited(visit)
        if ledger is None:
            return
        ledger.is_being_deleted = True
        with suppress(FencelogError):
            await session.ledgers.delete(ledger.ledger_id)
            ledger.deleted_at = len(ledger.payloads)
            self._history.counts["deletes"] += 1

    async def _visited(self, visit: Visit) -> WrittenLedger | None:
        """The ledger, at the moment of the visit; None where it was never created."""
        await self._moments.wait(visit.moment)
        while visit.ledger not in self.ledgers:
            if self.is_over.is_set():
                return None
            await asyncio.sleep(0.05)
        return self.ledgers[visit.ledger]

    # -- readers ---------------------------------------------------------------------------------

    async def read(self, visit: Visit, session: Session) -> None:
        """Follow a ledger to its end, and read it again and again until the safety phase ends."""
        ledger = await self._visited(visit)
        if ledger is None:
            return
        ledger_id = ledger.ledger_id
        reader = await self._open(ledger_id, session)
        next_entry, lac = 0, -1
        while reader is not None and not self.is_over.is_set():
            try:
                told = await reader.wait_lac(next_entry - 1, timeout_ms=POLL_MS)
                if told < lac:
                    self._history.violate(6, f"reader of {ledger_id}: LAC {told} after {lac}")
                lac = told
                if next_entry <= lac:
                    next_entry = await self._read_some(ledger, reader, next_entry, lac)
                elif reader.metadata.is_closed:
                    await asyncio.sleep(RETRY_PAUSE_S)
                    next_entry = 0  # and once more: what is closed stays as it is
            except FencelogError as error:
                self._history.counts[f"read: {error.code.slug}"] += 1
                self._check_absence(ledger, error, next_entry)
                if error.code is ErrorCode.LEDGER_NOT_FOUND:
                    break
                await asyncio.sleep(RETRY_PAUSE_S)
        if reader is not None:
            await reader.close()

    async def _open(self, ledger_id: int, session: Session) -> LedgerReader | None:
        while not self.is_over.is_set():
            try:
                return await session.ledgers.open(ledger_id)
            except FencelogError as error:
                if error.code is ErrorCode.LEDGER_NOT_FOUND:
                    return None
                await asyncio.sleep(RETRY_PAUSE_S)
        return None

    async def _read_some(
        self, ledger: WrittenLedger, reader: LedgerReader, first: int, last: int
    ) -> int:
        """Check the entries that come, return the next one to read."""
        entries = await reader.read(first, last)
        self._history.counts["reads"] += 1
        for position, entry in enumerate(entries):
            check_entry(self._history, ledger, first + position, entry.entry_id, entry.payload)
        if not entries:
            self._history.violate(8, f"read of {ledger.ledger_id} from {first} gave nothing")
        metadata = self._history.latest(ledger.ledger_id)
        end = metadata.last_entry_id if metadata is not None and metadata.is_closed else -1
        if metadata is not None and first + len(entries) - 1 > max(ledger.confirmed, end):
            self._history.violate(
                7,
                f"ledger {ledger.ledger_id}: read up to {first + len(entries) - 1}, "
                f"LAC is {ledger.confirmed}",
            )
        return first + len(entries)

    def _check_absence(self, ledger: WrittenLedger, error: FencelogError, entry_id: int) -> None:
        """Report a loss where an entry that must be there is said to be absent."""
        latest = self._history.latest(ledger.ledger_id)
        end = latest.last_entry_id if latest is not None and latest.is_closed else -1
        must_be = entry_id <= max(ledger.acknowledged, end)
        if error.code in NOES and must_be and not ledger.is_being_deleted:
            self._history.violate(1, f"ledger {ledger.ledger_id}: entry {entry_id}: {error}")


def check_entry(
    history: History, ledger: WrittenLedger, wanted: int, got: int, payload: memoryview
) -> None:
    """An entry that was read is the one that was written."""
    if got != wanted:
        history.violate(8, f"ledger {ledger.ledger_id}: entry {got} where {wanted} was next")
    elif wanted >= len(ledger.payloads):
        history.violate(5, f"ledger {ledger.ledger_id} has entry {wanted}, never written")
    elif bytes(payload) != ledger.payloads[wanted]:
        history.violate(5, f"ledger {ledger.ledger_id}: entry {wanted} has other bytes")


def _is_overdue(core: WriterCore) -> bool:
    """The first entry that waits has its quorum, and nothing holds it up."""
    held_up = core.changing or core.finished is not None or not core._pending
    return not held_up and len(core._pending[0].acks) >= core.metadata.ack_quorum
