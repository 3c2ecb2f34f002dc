"""The replication worker: repairs the ledgers that lack copies, the most endangered ones first.

Every REPLICATION_CHECK_MS it lists the marks, and repairs LEDGERS_AT_ONCE ledgers at a
time:

    lock ──► mark ──► ``repair`` until nothing of it is missing ──► mark removed, by its version
        ──► lock released

The marks are listed again at the latest after REPLICATION_ROUND_MS, however many ledgers are left:
one that has lost another copy meanwhile comes next.

Ledgers that are marked for a better balance alone come after all others: while any other is marked,
none of them is copied.

Any number of workers share the marks. A ledger that cannot be repaired now is tried again after a
pause, which doubles, and when a bookie registers; ``status`` tells those that wait for a bookie or
a writer from those of which entries are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.repair.backoff import (
    PostponedLedger,
    WaitingLedgers,
    registered_processes,
)
from fencelog.bookie.repair.copier import EntryCopier
from fencelog.bookie.repair.copies import Copies, PutOff
from fencelog.bookie.replication.core import urgency
from fencelog.bookie.replication.locks import ReplicationLock, ReplicationLocks
from fencelog.bookie.replication.moves import LedgerMoves
from fencelog.bookie.replication.open_ledgers import OpenLedgers
from fencelog.bookie.replication.progress import ReplicationProgress
from fencelog.bookie.replication.repair import LedgerRepair, RepairTools
from fencelog.bookie.replication.settings import AutorecoverySettings, watch_settings
from fencelog.bookie.replication.store import UnderReplicatedLedger, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.limits import (
    COPY_BYTES_PER_S,
    LEDGERS_AT_ONCE,
    OPEN_LEDGER_GRACE_MS,
    REPLICATION_CHECK_MS,
    REPLICATION_ROUND_MS,
)
from fencelog.ledgers.metastore.port import MetadataStore, Watch
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_log = logging.getLogger(__name__)

_KIND = "replication"


class ReplicationWorker:
    """One worker; ``run`` it. ``key``: the key of the ledgers, where they have one;
    ``copy_bytes_per_s`` None: no limit, unless the settings of the cluster give one."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        *,
        worker_id: str,
        host: Host,
        key: bytes = b"",
        copy_bytes_per_s: int | None = COPY_BYTES_PER_S,
        ledgers_at_once: int = LEDGERS_AT_ONCE,
        check_ms: int = REPLICATION_CHECK_MS,
        open_ledger_grace_ms: int = OPEN_LEDGER_GRACE_MS,
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._worker_id = worker_id
        self._loop = asyncio.get_running_loop()
        self._check_s = check_ms / 1000
        self._at_once = ledgers_at_once
        self._usual_bytes_per_s = copy_bytes_per_s
        self._pace = Pace(copy_bytes_per_s)
        self._locks = ReplicationLocks(store, worker_id=worker_id, token=host.random_bytes(8).hex())
        self._marks = UnderReplicatedLedgers(store)
        self._copies = Copies(bookies, key=key, pace=self._pace)
        self._copier = EntryCopier(self._copies)
        ledgers = LedgerStore(store)
        placement = Placement(bookies, host=host)
        self._open = OpenLedgers(
            ledgers=ledgers,
            bookies=bookies,
            placement=placement,
            key=key,
            grace_ms=open_ledger_grace_ms,
        )
        self._tools = RepairTools(
            ledgers=ledgers,
            marks=self._marks,
            bookies=bookies,
            placement=placement,
            copies=self._copies,
            copier=self._copier,
            close=self._open.close,
            host=host,
        )
        self._moves = LedgerMoves(self._tools, key=key)
        self._moving: list[asyncio.Task[None]] = []
        self._repairing: list[asyncio.Task[None]] = []
        self._waiting = WaitingLedgers()
        self._progress = ReplicationProgress(self._loop.time())
        self._wake = asyncio.Event()
        self._is_disabled = True  # until the settings are known
        self._watch: Watch | None = None
        self._marked = 0
        self._unreadable = 0
        self._marked_for_balance = 0
        self._at: set[int] = set()
        self._last_error: str | None = None

    async def run(self) -> None:
        """Repair marked ledgers, for ever."""
        self._watch = watch_settings(self._store, self._on_settings)
        try:
            while True:
                try:
                    await self.check()
                except FencelogError as error:
                    self._last_error = error.detail
                    _log.warning("replication worker %s: %s", self._worker_id, error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._check_s):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            self._watch.close()
            self._watch = None
            repairing, self._repairing = self._repairing, []
            await cancel_all(repairing)
            await self._stop_moves()

    async def check(self) -> None:
        """Try each marked ledger once, except those that failed a short while ago, while the
        settings allow it. Repairs that take longer than a round, and moves for a better balance, go
        on after this call. Raises FencelogError where marks cannot be written or listed."""
        if self._is_disabled:
            await self._stop_moves()
            return
        await self._tools.mark_unproven()
        busy = {*self._at}
        found = await self._read_marks()
        ids = {mark.ledger_id for mark in found}
        self._waiting.keep(_KIND, ids)
        self._open.keep(ids)
        if self._waiting.notice_arrivals(registered_processes(self._bookies), self._loop.time()):
            self._copies.wake_all()
        marks = [mark for mark in found if not mark.is_for_balance]
        moves = [mark for mark in found if mark.is_for_balance]
        self._marked, self._marked_for_balance = len(marks) + self._unreadable, len(moves)
        if marks or not self._moves.is_on:
            await self._stop_moves()
        if moves and not marks and all(task.done() for task in self._moving):
            self._moving = [self._loop.create_task(self._take_turns(self._due(moves)))]
        ended = busy - self._at  # their marks may be older than the end of their repair
        busy |= self._at
        due = [ledger_id for ledger_id in self._due(marks) if ledger_id not in busy]
        await self._repair_for_a_round(due)
        self._progress.sample(self._loop.time(), self._copier.copied_bytes)
        if due or ended:
            self._wake.set()

    async def _repair_for_a_round(self, due: list[int]) -> None:
        """Repair these ledgers, the last one first, until all are tried or the marks are to be
        listed again. A repair that takes longer goes on beside the next rounds."""
        until = self._loop.time() + REPLICATION_ROUND_MS / 1000
        self._repairing = [task for task in self._repairing if not task.done()]
        free = self._at_once - len(self._repairing)
        self._repairing += [
            self._loop.create_task(self._take_turns(due, until=until))
            for _ in range(min(free, len(due)))
        ]
        if self._repairing:
            left_s = until - self._loop.time()
            done, _ = await asyncio.wait(self._repairing, timeout=left_s)
            for task in done:
                task.result()

    async def _read_marks(self) -> list[UnderReplicatedLedger]:
        """Return all marks that can be read, the most urgent one first."""
        unreadable: list[FencelogError] = []
        marks = self._marks.list(unreadable.append)
        found = sorted([mark async for mark in marks], key=urgency)
        error = unreadable[0].detail if unreadable else None
        if error is not None and error != self._last_error:
            _log.error("replication worker %s: %s", self._worker_id, error)
        self._last_error, self._unreadable = error, len(unreadable)
        return found

    def _due(self, marks: list[UnderReplicatedLedger]) -> list[int]:
        """Return the ledgers that are to be tried now, the most urgent one last."""
        now = self._loop.time()
        return [
            m.ledger_id for m in reversed(marks) if self._waiting.is_due(_KIND, m.ledger_id, now)
        ]

    async def _stop_moves(self) -> None:
        """Stop copying for balance; what was copied by then is found when it goes on."""
        moving, self._moving = self._moving, []
        await cancel_all(moving)

    def hurry(self) -> None:
        """Look for marks now, including repairs that wait, on an operator's request."""
        self._waiting.hurry()
        self._copies.wake_all()
        self._wake.set()

    def status(self) -> dict[str, Any]:
        """Return what it does, what it has done since its start, how long the rest takes, and why
        ledgers wait or cannot be repaired."""
        waiting = self._waiting.status()
        left = max(0, self._marked - int(waiting["ledgers_waiting"]))
        return {
            "worker_id": self._worker_id,
            "is_disabled": self._is_disabled,
            "at_ledgers": sorted(self._at),
            "underreplicated_ledgers": self._marked,
            "ledgers_to_move": self._marked_for_balance,
            **self._moves.status(),
            "repaired_ledgers": self._progress.repaired_ledgers,
            "copied_entries": self._copier.copied_entries,
            "copied_bytes": self._copier.copied_bytes,
            "bytes_per_s": round(self._progress.bytes_per_s),
            "seconds_left": self._progress.seconds_left(left),
            "last_error": self._last_error,
            **waiting,
        }

    # -- one ledger ----------------------------------------------------------------------------

    async def _take_turns(self, due: list[int], *, until: float | None = None) -> None:
        """Repair the ledgers of a list that several tasks share, the last one first. ``until``: the
        time from which on, or from a ``hurry`` on, the rest waits for another look at the marks."""
        while due and not self._is_disabled:
            await self._attempt(due.pop())
            if until is not None and (self._wake.is_set() or self._loop.time() >= until):
                return

    async def _attempt(self, ledger_id: int) -> None:
        self._at.add(ledger_id)
        try:
            lock = await self._locks.acquire(ledger_id)
            if lock is None:
                return  # another worker repairs it
            try:
                await self._repair(ledger_id, lock)
            finally:
                with contextlib.suppress(FencelogError):  # the end of the session gives it up
                    await self._locks.release(lock)
        except FencelogError as error:
            self._put_off(ledger_id, error)
        except Exception as error:  # a bug; the others are still to be repaired
            _log.exception("ledger %d", ledger_id)
            self._put_off(ledger_id, FencelogError(ErrorCode.INTERNAL, repr(error)))
        else:
            self._waiting.done(_KIND, ledger_id)
        finally:
            self._at.discard(ledger_id)
            self._progress.sample(self._loop.time(), self._copier.copied_bytes)

    async def _repair(self, ledger_id: int, lock: ReplicationLock) -> None:
        """Repair a ledger, and remove its mark. Raises FencelogError."""
        mark = await self._marks.get(ledger_id)
        if mark is None:
            return
        if mark.is_for_balance:
            await self._moves.make(mark, check=lambda: self._check_allowed(lock))
            await self._marks.unmark(ledger_id, mark.version)
            return
        repair = LedgerRepair(
            self._tools,
            mark,
            attempts=self._waiting.counted(_KIND, ledger_id),
            check=lambda: self._check_allowed(lock),
        )
        try:
            await repair.run()
        finally:
            if repair.leaves_time:
                self._waiting.count(_KIND, ledger_id, self._loop.time())
        if await self._marks.unmark(ledger_id, mark.version):
            self._progress.repaired_ledgers += 1
            _log.info("replication worker %s: ledger %d is repaired", self._worker_id, ledger_id)

    def _check_allowed(self, lock: ReplicationLock) -> None:
        """Check that this worker may go on with a ledger. Raises PutOff."""
        if self._is_disabled:
            raise PutOff("disabled", "self-healing was turned off")
        try:
            self._locks.check(lock)
        except FencelogError as error:
            raise PutOff("lock_lost", error.detail) from error

    def _put_off(self, ledger_id: int, error: FencelogError) -> None:
        waiting = PostponedLedger.for_reason(error)
        if self._waiting.put_off(_KIND, ledger_id, waiting, self._loop.time()):
            _log.warning(
                "replication worker %s cannot repair ledger %d now (%s): %s",
                self._worker_id,
                ledger_id,
                waiting.why,
                error.detail,
            )

    def _on_settings(self, settings: AutorecoverySettings) -> None:
        self._is_disabled = settings.is_disabled
        self._pace.bytes_per_s = settings.copy_bytes_per_s or self._usual_bytes_per_s
        self._moves.set_rate(settings, self._pace.bytes_per_s)
        self._wake.set()
