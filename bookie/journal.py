"""The journal: everything a bookie promises is here, synced, before it says so.

Records are collected while the group before them is being synced, then written and synced as one
group (group commit: no timer, so a lone add waits for nothing but the disk). A group is written
only after the group before it is durable; each record says how far that was, which is how replay
tells a torn tail from damage (records.py).

    event loop    append(record, callback) ... one batch per group ... callbacks(None)
    journal lane                 write, fdatasync                 next group

What if the process dies here? Before the sync returned: nobody was told; replay takes what it
finds whole, as "may have taken effect" allows. After: replay finds it.

Unsynced (``BookieConfig.journal_sync``) a group of runs alone is answered when it was written; any
other record, a roll and ``sync`` still sync, and no record claims anything to be durable. So what a
crash takes is the end of the last file, and to replay it is a torn tail. That something may have
been forgotten is not the journal's to know (``data_directory.py``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fencelog.bookie.disk import Buffer, Disk, Lane
from fencelog.bookie.journal_file import Group, JournalFile, JournalPosition
from fencelog.bookie.records import (
    FILE_HEADER_BYTES,
    JOURNAL_MAGIC,
    FileHeader,
    RecordType,
    record_bytes,
)
from fencelog.ledgers.bookie_port import AddCallback
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MIB

_GROUP_BYTES = 8 * MIB
"""A group is not made larger: the sync that all its adds wait for should take tens of ms."""


class Journal:
    """Makes records durable in the order of ``append``. Used on one event loop."""

    def __init__(
        self,
        *,
        disk: Disk,
        lane: Lane,
        host: Host,
        directory: Path,
        incarnation: bytes,
        max_file_bytes: int,
        sync_runs: bool = True,
        on_failure: Callable[[FencelogError], None],
    ) -> None:
        self._disk = disk
        self._lane = lane
        self._host = host
        self._directory = directory
        self._incarnation = incarnation
        self._max_file_bytes = max_file_bytes
        self._sync_runs = sync_runs
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._file: JournalFile | None = None
        self._file_id = 0
        self._waiting: deque[Group] = deque()
        self._in_flight: Group | None = None
        self._scheduled = False
        self._next = JournalPosition(1, 0, 0)
        self._error: FencelogError | None = None
        self.durable_before = 1
        """Records before this sequence were reported durable."""
        self._synced_before = 1

    async def start(self, *, file_id: int, sequence: int) -> None:
        """Begin file ``file_id``, whose first record gets ``sequence``. Raises OSError."""
        header = self._file_header(file_id, sequence)
        self._file = await self._lane.run(lambda: self._create(header))
        self._next = JournalPosition(sequence, file_id, FILE_HEADER_BYTES)
        self.durable_before = self._synced_before = sequence

    @property
    def position(self) -> JournalPosition:
        """Where the next record will be; every record appended so far lies before it."""
        return self._next

    def append(self, kind: RecordType, body: Buffer, on_durable: AddCallback) -> None:
        """Add a record; ``on_durable`` is called later, in the order of the calls, with None once
        it is durable, or with STORAGE_FAILED, after which nothing is known of it."""
        if self._error is not None:
            self._loop.call_soon(on_durable, self._error)
            return
        size = record_bytes(len(body))
        group = self._group_for(size)
        group.records.append((kind, body))
        group.callbacks.append(on_durable)
        group.size += size
        if kind is not RecordType.RUN:
            group.sync = True
        at = self._next
        self._next = JournalPosition(at.sequence + 1, at.file_id, at.offset + size)

    def barrier(self, on_durable: AddCallback) -> None:
        """Call ``on_durable`` once everything appended before is durable, with None or an error."""
        last = self._waiting[-1] if self._waiting else self._in_flight
        if self._error is not None or last is None:
            self._loop.call_soon(on_durable, self._error)
        else:
            last.callbacks.append(on_durable)

    def sync(self, on_durable: AddCallback) -> None:
        """``barrier``, and synced even if runs are not."""
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
        """Write nothing more; whatever waits gets ``error``. What is in flight gets it too: it may
        yet become durable, which "unknown" covers."""
        if self._error is not None:
            return
        self._error = error
        groups = [self._in_flight, *self._waiting] if self._in_flight else [*self._waiting]
        self._waiting.clear()
        self._in_flight = None
        for group in groups:
            for callback in group.callbacks:
                self._loop.call_soon(callback, error)

    async def close(self) -> None:
        """Wait until all is durable (or has failed) and close the file."""
        with suppress(FencelogError):
            await self.settle(sync=True)
        if (file := self._file) is not None:
            self._file = None
            await self._lane.run(file.close)

    # -- groups ------------------------------------------------------------------------------

    def _group_for(self, size: int) -> Group:
        """The waiting group that takes a record of ``size`` bytes: at the limits a new one."""
        at = self._next
        if at.offset + size > self._max_file_bytes:
            at = self._next = JournalPosition(at.sequence, at.file_id + 1, FILE_HEADER_BYTES)
        elif self._waiting and self._waiting[-1].size < _GROUP_BYTES:
            return self._waiting[-1]
        group = Group(at, sync=self._sync_runs)
        self._waiting.append(group)
        if not self._scheduled and self._in_flight is None:
            # Not at once: whatever else this turn of the loop brings joins the group.
            self._scheduled = True
            self._loop.call_soon(self._write_next)
        return group

    def _write_next(self) -> None:
        self._scheduled = False
        if self._waiting and self._in_flight is None:
            group = self._in_flight = self._waiting.popleft()
            header = None
            if group.start.offset == FILE_HEADER_BYTES and group.start.file_id != self._file_id:
                header = self._file_header(group.start.file_id, group.start.sequence)
            self._lane.submit(lambda: self._write(header, group), self._written)

    def _write(self, header: FileHeader | None, group: Group) -> None:
        """Lane work. Nothing else touches ``_file`` while a group is in flight."""
        if header is not None:
            if self._file is not None:
                self._file.finish()
                self._file = None
            self._file = self._create(header)
        if self._file is None:
            raise OSError("journal has no open file")
        self._file.write(group, all_synced=self._sync_runs)

    def _written(self, error: BaseException | None) -> None:
        if error is not None:
            failure = FencelogError(
                ErrorCode.STORAGE_FAILED, f"journal in {self._directory} failed: {error}"
            )
            self.fail(failure)
            self._on_failure(failure)
            return
        group, self._in_flight = self._in_flight, None
        if group is None:
            return  # failed meanwhile; its callbacks were told
        self.durable_before = group.start.sequence + len(group.records)
        if group.sync:
            self._synced_before = self.durable_before
        if self._waiting:
            self._write_next()
        for callback in group.callbacks:
            try:
                callback(None)
            except Exception as error:  # its own fault; the others' adds are durable all the same
                self._loop.call_exception_handler(
                    {"message": "an answer to a journal record failed", "exception": error}
                )

    # -- files -------------------------------------------------------------------------------

    def _file_header(self, file_id: int, sequence: int) -> FileHeader:
        self._file_id = file_id
        return FileHeader(
            JOURNAL_MAGIC, file_id, sequence, self._incarnation, self._host.random_bytes(16)
        )

    def _create(self, header: FileHeader) -> JournalFile:
        return JournalFile(self._disk, self._directory, header, self._max_file_bytes)
