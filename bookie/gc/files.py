"""The freeing of space in one shard's entry logs: the index alone decides which bytes are live.

No footer and no counter is trusted: the whole index is read. The files to check are chosen before,
on the I/O thread that writes, hence between two flushes: every item that points to them, or ever
will, was in the index by then. A file is removed only if no item points to it, its header shows
that it is an entry log of this bookie, and all that was read of the index is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from fencelog.bookie.disk.port import IoThread
from fencelog.bookie.engine.shard import Shard
from fencelog.bookie.format.records import FILE_HEADER_BYTES
from fencelog.bookie.gc.core import LogFile, dead_files, next_round, sparse_files
from fencelog.bookie.storage.compaction import (
    MAX_COMPACTED_RUNS,
    EntryLogCompaction,
    remove_entry_log,
)
from fencelog.bookie.storage.entry_log import StoredRun, entry_log_name, open_entry_log, records_end
from fencelog.bookie.storage.entry_log_writer import EntryLogPlace
from fencelog.bookie.storage.index import FIRST
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

_log = logging.getLogger(__name__)

_RUNS_AT_ONCE = 2048
"""Number of runs read from the index in one call, which takes some ms."""

_PAUSE_S = 0.002
"""Pause after each such call, which gives the processor to other work."""

_COPY_BYTES = 1 * MIB
"""Number of bytes copied in one call."""

OnDamage = Callable[[StoredRun, FencelogError], None]
"""A callback for a run that compaction could not read back, and the error. The run stays where it
is."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The limits of compaction. At most ``bytes_per_s`` are copied, into files of ``file_bytes``;
    ``spare_bytes`` returns how much has to stay free beside old and new files; ``must_stop`` tells
    whether to stop copying. Bookies on one disk share the ``turn``: one of them at a time copies
    into what is free, since a full disk has all of them begin at once."""

    bytes_per_s: int
    file_bytes: int
    spare_bytes: Callable[[], int]
    must_stop: Callable[[], bool]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class FileGarbage:
    """The entry logs of one shard. Only one call of ``collect`` may run at a time. ``io_thread``
    does the reading, copying and removing; its owner closes it before ``close``."""

    def __init__(
        self, shard: Shard, io_thread: IoThread, limits: FileLimits, *, on_damage: OnDamage
    ) -> None:
        self._shard = shard
        self._io_thread = io_thread
        self._limits = limits
        self._on_damage = on_damage
        self._storage = shard.storage
        self._place: EntryLogPlace = shard.storage.entry_logs
        self._index = shard.storage.index
        self._reader = shard.storage.entry_log_reader(self._place.disk)
        self.removed_files = 0
        self.copied_bytes = 0

    async def collect(self, below: float) -> None:
        """Remove the files without live bytes, and compact those of which less than a share
        ``below`` is live. After an error the rest of the work is left. Raises FencelogError
        (OUT_OF_SPACE: for a copy), OSError."""
        self._shard.check_open()
        files, newest = await self._look()
        sparse = (*dead_files(newest), *sparse_files(newest, below))
        if any(file.record_bytes for file in sparse):
            await self._shard.write_io_thread.run(self._storage.begin_entry_log)
            files, _ = await self._look()
        await self._remove(file.file_id for file in dead_files(files))
        left = sparse_files(files, below)
        while left and not self._limits.must_stop():
            async with self._limits.turn:
                chosen = await self._choose(left)
                await self._compact(chosen)
            left = tuple(file for file in left if file not in chosen)

    def close(self) -> None:
        """Close the reader. Call it after the I/O thread has ended."""
        self._reader.close()

    # -- the files -----------------------------------------------------------------------------

    async def _look(self) -> tuple[list[LogFile], list[LogFile]]:
        """Return the files that can be removed, and the newest ones, which cannot. Files with a
        damaged header are in neither list."""
        survey = await self._shard.write_io_thread.run(self._storage.survey)
        sizes: dict[int, tuple[int, int]] = {}
        for file_id in (*survey.sealed, *survey.newest):
            try:
                sizes[file_id] = await self._io_thread.run(partial(self._measure, file_id))
            except (FencelogError, OSError) as error:
                _log.error("entry log %x of %s is kept: %s", file_id, self._place.directory, error)
        live = await self._live_bytes()
        files = {
            file_id: LogFile(file_id, *size, live.get(file_id, 0))
            for file_id, size in sizes.items()
        }
        return (
            [files[i] for i in survey.sealed if i in files],
            [files[i] for i in survey.newest if i in files],
        )

    def _measure(self, file_id: int) -> tuple[int, int]:
        """Return the bytes of a file, and of the records in it. Raises OSError;
        FencelogError(CORRUPT, UNSUPPORTED_VERSION) unless its header shows that it is ours, or
        there is nothing behind it: a process that ends while it begins a file leaves that."""
        place = self._place
        file = place.disk.open(place.directory / entry_log_name(file_id))
        try:
            if (size := file.size()) <= FILE_HEADER_BYTES:
                return size, 0
        finally:
            file.close()
        file = open_entry_log(place.disk, place.directory, file_id, incarnation=place.incarnation)
        try:
            return file.size(), records_end(file) - FILE_HEADER_BYTES
        finally:
            file.close()

    async def _live_bytes(self) -> dict[int, int]:
        """Return the bytes that the index points to, by file."""
        live: dict[int, int] = {}
        position: bytes | None = FIRST
        while position is not None:
            sizes, position = await self._io_thread.run(
                partial(self._index.bytes_behind, position, _RUNS_AT_ONCE)
            )
            for file_id, size in sizes.items():
                live[file_id] = live.get(file_id, 0) + size
            await asyncio.sleep(_PAUSE_S)
        return live

    async def _choose(self, files: tuple[LogFile, ...]) -> tuple[LogFile, ...]:
        """Choose which of the files to compact into the space that is free now. Raises
        FencelogError(OUT_OF_SPACE)."""
        space = await self._io_thread.run(self._space)
        chosen = next_round(
            files,
            free_bytes=space,
            spare_bytes=self._limits.spare_bytes(),
            most_bytes=self._limits.file_bytes,
        )
        if not chosen:
            raise FencelogError(
                ErrorCode.OUT_OF_SPACE,
                f"{self._place.directory}: {space} bytes free are too few to compact any of "
                f"{len(files)} entry logs",
            )
        return chosen

    def _space(self) -> int:
        return self._place.disk.space(self._place.directory).free_bytes

    # -- removal -------------------------------------------------------------------------------

    async def _remove(self, file_ids: Iterable[int]) -> None:
        """Remove files to which no readable item of the index points."""
        for file_id in file_ids:
            await self._shard.write_io_thread.run(self._index.check_durable)
            await self._io_thread.run(partial(remove_entry_log, self._place, file_id))
            await self._io_thread.run(partial(self._reader.forget, file_id))
            await self._shard.read_io_thread.run(partial(self._storage.forget_entry_log, file_id))
            self.removed_files += 1

    # -- compaction ------------------------------------------------------------------------------

    async def _compact(self, files: tuple[LogFile, ...]) -> None:
        """Copy the live runs of the files to new files, and remove the files to which no item
        points any more. A file with a run that could not be copied, for whatever reason, stays."""
        sources = {file.file_id for file in files}
        new: EntryLogCompaction | None = None
        position: bytes | None = FIRST
        try:
            while position is not None:
                runs, position = await self._io_thread.run(
                    partial(self._index.runs_behind, position, _RUNS_AT_ONCE)
                )
                left = deque(run for run in runs if run.file_id in sources)
                await asyncio.sleep(_PAUSE_S)
                while left:
                    if self._limits.must_stop():
                        return
                    new = new or await self._begin()
                    await self._copy(new, left)
                    is_full = new.size >= self._limits.file_bytes
                    if is_full or len(new.moves) >= MAX_COMPACTED_RUNS:
                        await self._finish(new)
                        new = None
            if new is not None and new.moves:
                await self._finish(new)
        finally:
            if new is not None:
                await self._io_thread.run(new.close)
        live = await self._live_bytes()
        await self._remove(sorted(sources - live.keys()))

    async def _begin(self) -> EntryLogCompaction:
        file_id = await self._shard.write_io_thread.run(self._storage.next_entry_log_id)
        return await self._io_thread.run(lambda: EntryLogCompaction(self._place, file_id))

    async def _copy(self, new: EntryLogCompaction, left: deque[StoredRun]) -> None:
        """Copy some of the runs, and take them from ``left``."""
        failed: list[tuple[StoredRun, FencelogError]] = []

        def work() -> int:
            before = new.size
            while left and new.size - before < _COPY_BYTES:
                run = left.popleft()
                try:
                    new.copy(run, self._reader)
                except FencelogError as error:
                    failed.append((run, error))
            return new.size - before

        copied = await self._io_thread.run(work)
        self.copied_bytes += copied
        for run, error in failed:
            _log.error("compaction leaves a run where it is: %s", error.detail)
            self._on_damage(run, error)
        await asyncio.sleep(copied / self._limits.bytes_per_s)

    async def _finish(self, new: EntryLogCompaction) -> None:
        """Make the new file durable and valid, then let the index point to it."""
        await self._io_thread.run(new.finish)
        await self._io_thread.run(new.close)
        try:
            await self._shard.write_io_thread.run(lambda: self._index.repoint(new.moves))
        except OSError as error:
            failed = FencelogError(ErrorCode.STORAGE_FAILED, f"garbage collection: {error}")
            self._shard.report_failure(failed)
            raise failed from error
