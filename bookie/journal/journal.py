"""The journal: all that a bookie acknowledges is recorded here, and synced, before it answers.

Records are collected while those before them are being synced, then written and synced as one
group (group commit: there is no timer, so a single add waits for the disk alone).

    event loop    append(record, callback) ... one batch per group ... callbacks(None)
    sync thread           write A, sync A │ sync B    │ sync C, D        one at a time, ever
    write thread                  write B │ write C │ write D            under load only

Under load the next group is written while the previous one is being synced; one sync covers all
that was written before it began. Only one thread syncs: of two concurrent syncs, either could get
the other's failure. Only one thread writes at any time, so a group never follows a gap that is
still to be filled. A file is begun only when all of the one before it is synced.

Each record states up to which record all had been synced when it was written (``durable``). An
invalid record that a later one calls durable is therefore damaged, however many groups were in
flight; where no record calls it durable, it may be torn: this group was still being synced when the
last one behind it was written, if there is one (``journal/replay.py``).

After a crash before the sync returned, no caller had an answer; replay takes the valid records that
it finds, as "may have taken effect" allows. After a crash later than that, replay finds it.

After a failed write or sync, no more is written or synced, and all waiting callers get the error,
also those whose group the other I/O thread may yet make durable: "unknown" covers them.

Without ``BookieConfig.journal_sync``, a group of runs alone is answered when it was written; any
other record, a roll and ``sync`` still sync. So a crash loses only records after the last sync, and
replay treats them as a torn tail. The journal does not track whether records may be lost.

Memory: every run that waits here is in the write cache too, which releases it only when the journal
is synced; so the limits of the cache, and for control records BOOKIE_MAX_IN_FLIGHT_BYTES, bound the
memory of the journal.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path

from fencelog.bookie.disk.port import Buffer, Disk, Done, IoThread
from fencelog.bookie.format.records import (
    FILE_HEADER_BYTES,
    RecordType,
    all_record_bytes,
    record_bytes,
)
from fencelog.bookie.journal.file import Group, JournalPosition
from fencelog.bookie.journal.writer import JournalWriter
from fencelog.bookie.metrics import BookieCounts
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import KIB, MIB
from fencelog.ledgers.rpc.bookie_port import AddCallback, AddsCallback, AddToken

_GROUP_BYTES = 8 * MIB
"""Limit for the bytes that a later sync covers (roughly): it should take tens of ms."""

_WRITE_AHEAD_BYTES = 512 * KIB
"""Size from which on a group is written while another one is being synced. Below it, waking a
second thread costs more than the writing that it takes off the first."""

_WRITE_AHEAD_SHARE = 128
"""Divisor that bounds such a group where files are small: it is at most this fraction of a file."""


class Journal:
    """The journal of one shard. It makes records durable in the order of ``append``. It is used on
    one event loop."""

    def __init__(
        self,
        *,
        disk: Disk,
        io_thread: IoThread,
        sync_io_thread: IoThread,
        host: Host,
        directory: Path,
        incarnation: bytes,
        max_file_bytes: int,
        sync_runs: bool = True,
        on_failure: Callable[[FencelogError], None],
        metrics: BookieCounts | None = None,
    ) -> None:
        self._metrics = metrics or BookieCounts()
        self._now_us = host.now_us
        self._writer = JournalWriter(
            disk=disk,
            io_thread=io_thread,
            sync_io_thread=sync_io_thread,
            host=host,
            directory=directory,
            incarnation=incarnation,
            max_file_bytes=max_file_bytes,
        )
        self._directory = directory
        self._max_file_bytes = max_file_bytes
        self._write_ahead_bytes = min(_WRITE_AHEAD_BYTES, max_file_bytes // _WRITE_AHEAD_SHARE)
        self._sync_runs = sync_runs
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Group] = deque()
        self._writing: Group | None = None
        self._written: list[Group] = []
        self._syncing: list[Group] = []
        """The groups that the sync thread works on. It may be writing the last of them first: then
        that one is ``_writing`` too."""
        self._last: Group | None = None
        """The group with the latest records; None if all are answered."""
        self._moved_at_s = 0.0
        """The loop's time when groups were last answered, or the first of them began to wait."""
        self._scheduled = False
        self._next = JournalPosition(1, 0, 0)
        self._error: FencelogError | None = None
        self.durable_before = 1
        """Records before this sequence were reported durable."""
        self._synced_before = 1

    async def start(self, *, file_id: int, sequence: int) -> None:
        """Begin file ``file_id``, whose first record gets ``sequence``. Raises OSError."""
        await self._writer.begin(file_id, sequence)
        self._next = JournalPosition(sequence, file_id, FILE_HEADER_BYTES)
        self.durable_before = self._synced_before = sequence

    @property
    def position(self) -> JournalPosition:
        """Return the position of the next record; every record appended so far lies before it."""
        return self._next

    @property
    def stalled_s(self) -> float:
        """Return how long the disk has answered nothing that waits for it; 0 if nothing waits."""
        return 0.0 if self._last is None else self._loop.time() - self._moved_at_s

    def append(self, kind: RecordType, body: Buffer, on_durable: AddCallback) -> None:
        """Append a record. ``on_durable`` is called later, in the order of the calls, with None
        once the record is durable, or with STORAGE_FAILED, after which its state is unknown."""
        if self._error is not None:
            self._loop.call_soon(on_durable, self._error)
            return
        size = record_bytes(len(body))
        group = self._group_for(size)
        group.records.append((kind, body))
        group.callbacks.append(on_durable)
        if kind is not RecordType.RUN:
            group.sync = True
        self._appended(group, 1, size)

    def append_many(
        self,
        kind: RecordType,
        bodies: Sequence[bytes],
        tokens: Sequence[AddToken],
        on_durable: AddsCallback,
    ) -> None:
        """Append records of one kind, as ``append`` does; ``tokens[i]`` stands for ``bodies[i]``.
        ``on_durable`` is called with the outcome of all of them together, or of some at a time
        where no single group takes all."""
        if self._error is not None:
            self._loop.call_soon(on_durable, tokens, self._error)
            return
        size = all_record_bytes(bodies)
        if len(bodies) > 1 and not self._takes(size):
            half = len(bodies) // 2
            self.append_many(kind, bodies[:half], tokens[:half], on_durable)
            self.append_many(kind, bodies[half:], tokens[half:], on_durable)
            return
        group = self._group_for(size)
        group.records += zip(repeat(kind), bodies)
        group.callbacks.append(partial(on_durable, tokens))
        if kind is not RecordType.RUN:
            group.sync = True
        self._appended(group, len(bodies), size)

    def barrier(self, on_durable: AddCallback) -> None:
        """Call ``on_durable`` once all records appended before are durable, with None or an
        error."""
        last = self._last
        if self._error is not None or last is None:
            self._loop.call_soon(on_durable, self._error)
        else:
            last.callbacks.append(on_durable)

    def sync(self, on_durable: AddCallback) -> None:
        """Call ``on_durable`` as ``barrier`` does, but after a sync even if runs are not synced."""
        all_synced = self._sync_runs or self._synced_before == self._next.sequence
        if all_synced or self._error is not None:
            self.barrier(on_durable)
        else:
            group = self._group_for(0)
            group.callbacks.append(on_durable)
            group.sync = True

    async def settle(self, *, sync: bool = False) -> None:
        """Wait for ``barrier`` (or ``sync``). Raises FencelogError(STORAGE_FAILED)."""
        settled: asyncio.Future[FencelogError | None] = self._loop.create_future()

        def report(error: FencelogError | None) -> None:
            if not settled.cancelled():
                settled.set_result(error)

        (self.sync if sync else self.barrier)(report)
        if (error := await settled) is not None:
            raise error

    def fail(self, error: FencelogError) -> None:
        """Submit no more work to the I/O threads; all waiting callers get ``error``. So do those in
        flight: their records may yet become durable, which "unknown" covers."""
        if self._error is not None:
            return
        self._error = error
        in_flight = [*self._syncing, *self._written]
        if self._writing is not None and self._writing not in in_flight:
            in_flight.append(self._writing)
        for group in (*in_flight, *self._waiting):
            for callback in group.callbacks:
                self._loop.call_soon(callback, error)
        self._waiting.clear()
        self._written, self._syncing = [], []
        self._writing = self._last = None

    async def remove_spares(self) -> None:
        """Remove the files that are kept for reuse, to free their space. Raises OSError."""
        await self._writer.remove_spares()

    async def close(self) -> None:
        """Wait until all records are durable (or have failed) and close the file."""
        with suppress(FencelogError):
            await self.settle(sync=True)
        await self._writer.close()

    # -- groups ------------------------------------------------------------------------------

    def _group_for(self, size: int) -> Group:
        """Return the waiting group that takes a record of ``size`` bytes: at the limits a new
        one."""
        at = self._next
        if at.offset + size > self._max_file_bytes:
            at = self._next = JournalPosition(at.sequence, at.file_id + 1, FILE_HEADER_BYTES)
        elif self._waiting and self._waiting[-1].size < _GROUP_BYTES:
            return self._waiting[-1]
        if self._last is None:
            self._moved_at_s = self._loop.time()
        group = self._last = Group(at, sync=self._sync_runs, began_us=self._now_us())
        self._waiting.append(group)
        if not self._syncing and self._writing is None:
            self._schedule()
        return group

    def _takes(self, size: int) -> bool:
        """Tell whether one group may take records of ``size`` bytes together."""
        waiting = self._waiting[-1].size if self._waiting else 0
        is_small = waiting + size <= _GROUP_BYTES
        return is_small and self._next.offset + size <= self._max_file_bytes

    def _appended(self, group: Group, count: int, size: int) -> None:
        """Count records that a group has got."""
        group.size += size
        at = self._next
        self._next = JournalPosition(at.sequence + count, at.file_id, at.offset + size)
        if group.size >= self._write_ahead_bytes and self._writing is None:
            self._schedule()

    def _schedule(self) -> None:
        """Submit on the next turn of the loop: all records of the current turn join the group."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._submit_ready)

    def _submit_ready(self) -> None:
        self._scheduled = False
        self._work(under_load=bool(self._syncing))

    def _work(self, *, under_load: bool) -> None:
        """Submit to the I/O threads the work that is possible now. ``under_load``: other groups are
        in flight, or were until now; else the group is alone, and one call writes and syncs it."""
        if self._error is not None:
            return
        if self._waiting and self._writing is None:
            if under_load and self._may_write_ahead(self._waiting[0]):
                self._write_ahead(self._waiting.popleft())
            elif not self._syncing:
                self._commit(self._waiting.popleft())
        if self._written and not self._syncing:
            self._syncing, self._written = self._written, []
            before = self._syncing[-1].end_sequence
            self._writer.sync(self._unless_failed(lambda: self._answer(before)))

    def _may_write_ahead(self, group: Group) -> bool:
        return (
            group.size >= self._write_ahead_bytes
            and group.start.file_id == self._writer.file_id
            and self._sync_runs
            and sum(written.size for written in self._written) < _GROUP_BYTES
        )

    def _write_ahead(self, group: Group) -> None:
        self._writing = group
        self._handed_over(group)

        def written() -> None:
            self._writing = None
            self._written.append(group)
            self._work(under_load=True)

        done = self._unless_failed(written)
        self._writer.write(group, durable=self._synced_before - 1, done=done)

    def _commit(self, group: Group) -> None:
        """Write a group and sync it if it asks for that; no other group is in flight."""
        self._writing = group
        self._handed_over(group)
        self._syncing, self._written = [*self._written, group], []
        before, first = self._synced_before, group.start
        finish = before < first.sequence
        if first.file_id != self._writer.file_id:
            before = first.sequence  # the file before it is synced before this one is begun
        synced_before = group.end_sequence if group.sync else before
        done = self._unless_failed(lambda: self._answer(synced_before))
        self._writer.commit(group, durable=before - 1, finish=finish, done=done)

    def _handed_over(self, group: Group) -> None:
        """Count the time that a group has waited."""
        now_us = self._now_us()
        self._metrics.journal_time.observe_us(now_us - group.began_us)
        group.began_us = now_us

    def _count(self, groups: Iterable[Group]) -> None:
        """Count groups that are durable."""
        metrics, now_us = self._metrics, self._now_us()
        for group in groups:
            metrics.sync_time.observe_us(now_us - group.began_us)
            metrics.journaled_records += len(group.records)
            metrics.journaled_bytes += group.size

    @property
    def waiting_bytes(self) -> int:
        """The bytes of records that are not handed to an I/O thread yet."""
        return sum(group.size for group in self._waiting)

    def _unless_failed(self, go_on: Callable[[], None]) -> Done:
        def done(error: BaseException | None) -> None:
            if self._error is not None:
                return  # all callers have the error
            if error is None:
                go_on()
                return
            failure = FencelogError(
                ErrorCode.STORAGE_FAILED, f"journal in {self._directory} failed: {error}"
            )
            self.fail(failure)
            self._on_failure(failure)

        return done

    def _answer(self, synced_before: int) -> None:
        """Answer the groups that the sync thread has completed."""
        groups, self._syncing = self._syncing, []
        self._moved_at_s = self._loop.time()
        self._count(groups)
        if self._writing is groups[-1]:
            self._writing = None
        if self._last is groups[-1]:
            self._last = None
        self.durable_before, self._synced_before = groups[-1].end_sequence, synced_before
        self._work(under_load=True)
        for group in groups:
            self._metrics.handed_over_us = group.began_us
            for callback in group.callbacks:
                try:
                    callback(None)
                except Exception as error:  # its own fault; the other adds are durable
                    self._loop.call_exception_handler(
                        {"message": "an answer to a journal record failed", "exception": error}
                    )
