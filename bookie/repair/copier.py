"""The copying of ranges of entries from other bookies to one, as recovery adds.

A recovery add is stored though the ledger is fenced, and a stored entry stays as it is. Reads run
ahead of the adds, and adds do not wait for one another: so one sync of the journal is enough for
many of them. They are sent in the order of the entries, so that the bookie need not look up whether
it has some of them already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from operator import itemgetter

from fencelog.bookie.format.runs import CachedRun, merged
from fencelog.bookie.repair.copies import Copies, NoCopy
from fencelog.bookie.repair.core import CopyRange, MissingReason, batches, still_missing
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Availability
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import (
    COPIES_AT_ONCE,
    COPY_PENDING_BYTES,
    MAX_LOST_ENTRIES_NOTED,
)
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.rpc.bookie_port import AddCallback

_ADD_ATTEMPTS = 100
_ADD_PAUSE_S = 0.1
"""Pause after an add that was refused: a full write cache is empty again after some flushes."""

RecoveryAdd = Callable[[bytes, AddCallback], None]
"""A recovery add to the bookie that gets the copies."""


class EntryCopier:
    """A copier of entries: of each ledger COPIES_AT_ONCE reads are in flight, and adds of
    COPY_PENDING_BYTES."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._loop = asyncio.get_running_loop()
        self.copied_entries = 0
        self.copied_bytes = 0

    async def copy(
        self,
        metadata: LedgerMetadata,
        ranges: Iterator[CopyRange],
        add: RecoveryAdd,
        lost: list[NoCopy],
        *,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the ranges; on return all copies are durable. Entries of which there is no copy join
        ``lost``. ``check``: called before each read and each add; it raises where copying is to
        stop. Raises NoCopy where a bookie could not be asked, or too many entries are lost to
        continue; FencelogError where a copy could not be stored."""
        adds = _PendingAdds(add, self._stored)
        to_read = batches(ranges, self._copies.entries_at_once(metadata))
        reads: deque[tuple[Sequence[CopyRange], asyncio.Task[list[CachedRun]]]] = deque()
        try:
            while True:
                while len(reads) < COPIES_AT_ONCE and (parts := next(to_read, None)) is not None:
                    check()
                    reads.append((parts, self._loop.create_task(self._read(metadata, parts))))
                if not reads:
                    break
                batch, read = reads[0]
                copy = self._copy_range if len(batch) == 1 else self._copy_batch
                await copy(metadata, batch, read, adds, lost, check)
                reads.popleft()
            await adds.settle()
        except NoCopy:
            raise all_lost(lost, are_more=True) from None
        finally:
            await cancel_all([task for _, task in reads])

    async def _read(self, metadata: LedgerMetadata, parts: Sequence[CopyRange]) -> list[CachedRun]:
        """Read entries of the parts. Of one part alone the first entry is there, or NoCopy is
        raised; of several, entries without a copy are left out."""
        if len(parts) > 1:
            return await self._copies.runs(metadata, parts)
        run = await self._copies.run(metadata, parts[0], parts[0].first)
        return [(parts[0].first, read_run_header(run).last_entry_id, run)]

    async def _copy_batch(
        self,
        metadata: LedgerMetadata,
        parts: Sequence[CopyRange],
        read: Awaitable[list[CachedRun]],
        adds: _PendingAdds,
        lost: list[NoCopy],
        check: Callable[[], None],
    ) -> None:
        """Store several ranges, of which the first ``read`` is on its way."""
        missing, waiting, turn = [*parts], list[CachedRun](), 0
        got = await read
        while True:
            missing = still_missing(missing, [(first, last) for first, last, _ in got])
            waiting = await self._put_before(missing, [*waiting, *got], adds, check)
            turn += not got
            if len(missing) < 2 or turn == metadata.write_quorum:
                break
            check()
            got = await self._copies.runs(metadata, missing, turn=turn)
        while missing:  # one by one: each is found, or tells why there is no copy
            part = missing.pop(0)
            check()
            await self._copy_range(
                metadata, [part], self._read(metadata, [part]), adds, lost, check
            )
            waiting = await self._put_before(missing, waiting, adds, check)

    async def _put_before(
        self,
        missing: Sequence[CopyRange],
        runs: Iterable[CachedRun],
        adds: _PendingAdds,
        check: Callable[[], None],
    ) -> list[CachedRun]:
        """Store the runs that no missing entry precedes, adjacent ones together; return the
        others."""
        runs = sorted(runs, key=itemgetter(0))
        end = missing[0].first if missing else MAX_ENTRY_ID + 1
        ready = [run for run in runs if run[0] < end]
        for run in merged(ready):
            check()
            await adds.put(run)
        return runs[len(ready) :]

    async def _copy_range(
        self,
        metadata: LedgerMetadata,
        parts: Sequence[CopyRange],
        read: Awaitable[list[CachedRun]],
        adds: _PendingAdds,
        lost: list[NoCopy],
        check: Callable[[], None],
    ) -> None:
        """Store a range, of which the first ``read`` is on its way."""
        (copy_range,) = parts
        entry_id = copy_range.first
        while True:
            try:
                ((_, last, run),) = await read
            except NoCopy as missing:
                if missing.is_silent:  # so are they of the others that they should have
                    missing.entries = ((entry_id, copy_range.last),)
                lost.append(missing)
                if missing.reason is MissingReason.UNREACHED or len(lost) > MAX_LOST_ENTRIES_NOTED:
                    raise
                entry_id += 1
            else:
                check()
                await adds.put(run)
                entry_id = last + 1
            if entry_id > copy_range.last:
                return
            check()
            rest = CopyRange(entry_id, copy_range.last, copy_range.sources)
            read = self._read(metadata, [rest])

    def _stored(self, run: bytes) -> None:
        header = read_run_header(run)
        self.copied_entries += header.entries
        self.copied_bytes += header.size


class _PendingAdds:
    """The adds of one ledger that are not answered yet, COPY_PENDING_BYTES at most. ``on_stored``
    gets each run that is durable."""

    def __init__(self, add: RecoveryAdd, on_stored: Callable[[bytes], None]) -> None:
        self._add = add
        self._on_stored = on_stored
        self._bytes = 0
        self._refused: list[tuple[bytes, int]] = []
        """The runs that found a full write cache, and how often."""
        self._error: FencelogError | None = None
        self._answered = asyncio.Event()

    async def put(self, run: bytes) -> None:
        """Add a run, once there is space for it. Raises FencelogError: that of any add before."""
        while self._refused or (self._bytes and self._bytes + len(run) > COPY_PENDING_BYTES):
            await self._answer()
        self._check()
        self._bytes += len(run)
        self._send(run, 1)

    async def settle(self) -> None:
        """Return when all runs are stored, durably. Raises FencelogError."""
        while self._bytes:
            await self._answer()
        self._check()

    async def _answer(self) -> None:
        """Wait for an answer, or add again what was refused."""
        if self._refused:
            await asyncio.sleep(_ADD_PAUSE_S)
            refused, self._refused = self._refused, []
            for run, attempts in refused:
                self._send(run, attempts + 1)
        else:
            self._answered.clear()
            await self._answered.wait()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _send(self, run: bytes, attempt: int) -> None:
        def on_reply(error: FencelogError | None) -> None:
            is_refused = error is not None and error.code is ErrorCode.OVERLOADED
            if is_refused and attempt < _ADD_ATTEMPTS:
                self._refused.append((run, attempt))
            else:
                self._bytes -= len(run)
                if error is None:
                    self._on_stored(run)
                elif self._error is None:
                    self._error = error
            self._answered.set()

        self._add(run, on_reply)


def all_lost(lost: Sequence[NoCopy], *, are_more: bool = False) -> NoCopy:
    """Return one error for all entries without a copy: the one that tells most, which is that no
    bookie has an entry, with the entries of all that tell the same."""
    first = next((missing for missing in lost if missing.reason is MissingReason.LOST), lost[0])
    alike = [missing for missing in lost if missing.reason is first.reason]
    entries = sorted({entries for missing in alike for entries in missing.entries})
    first.entries = tuple(Availability.of(entries).ranges(entries[0][0], entries[-1][1]))
    first.are_more = are_more or any(missing.are_more for missing in alike)
    return first
