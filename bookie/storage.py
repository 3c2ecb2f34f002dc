"""Entry logs and index together: where runs go at a flush and come from at a read.

Writing is work of one lane, reading of another; the index is what makes a run visible to readers,
so they never meet a run that is not durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk import Disk
from fencelog.bookie.entry_log import EntryLogReader, EntryLogWriter
from fencelog.bookie.index import Index
from fencelog.bookie.journal_file import JournalPosition, journal_ids, journal_name
from fencelog.bookie.runs import Range, join_runs, merged
from fencelog.bookie.shard_directory import ShardDirectory
from fencelog.bookie.spare_files import SpareFiles
from fencelog.bookie.write_cache import CacheHalf
from fencelog.ledgers.errors import ErrorCode, FencelogError, check
from fencelog.ledgers.host import Host


@dataclass(frozen=True, slots=True)
class FlushedState:
    """What one flush makes durable: all that was journaled before ``position``."""

    runs: CacheHalf
    states: list[tuple[int, bytes]]
    removed: list[int]
    position: JournalPosition

    @property
    def is_empty(self) -> bool:
        return not (self.runs.size or self.states or self.removed)


class Storage:
    """One shard's entry logs, index and checkpoint. Its methods block: lane work."""

    def __init__(
        self,
        disk: Disk,
        directory: ShardDirectory,
        config: BookieConfig,
        host: Host,
        *,
        incarnation: bytes,
    ) -> None:
        self._disk = disk
        self._directory = directory
        paths = self._paths = directory.paths
        self._spares = SpareFiles(disk, paths.journal)
        self._checkpoint = directory.read_checkpoint()
        try:
            self.index = Index(disk.open_store(paths.index, create=False))
        except OSError as error:
            raise FencelogError(ErrorCode.CORRUPT, f"index cannot be opened: {error}") from error
        try:
            self.mark = self._checked_mark()
        except FencelogError:
            self.index.close()
            raise
        self._log = EntryLogWriter(
            disk,
            paths.entry_log,
            incarnation=incarnation,
            salt=lambda: host.random_bytes(16),
            max_file_bytes=config.entry_log_bytes,
        )
        self._reader = EntryLogReader(disk, paths.entry_log, incarnation=incarnation)

    def _checked_mark(self) -> int:
        """How far the index reaches: at least to the checkpoint, or part of it was lost."""
        mark = self.index.mark()
        if mark < self._checkpoint.sequence:
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"index in {self._paths.index} has the records before {mark}, the checkpoint "
                f"says {self._checkpoint.sequence}: the index is older than the checkpoint",
            )
        return mark

    @property
    def checkpoint(self) -> JournalPosition:
        return self._checkpoint

    # -- the writing lane --------------------------------------------------------------------

    def store(self, flushed: FlushedState) -> None:
        """Write the runs to entry logs, then the index. Raises OSError.

        What if the process dies here? Before the index write: the log's tail is garbage that
        nothing points to, and replay brings the runs again. After: the mark tells replay what it
        need not bring again, although the checkpoint is still the old one.
        """
        stored = self._log.append(_planned(flushed.runs))
        self.index.write(
            stored,
            flushed.states,
            mark=flushed.position.sequence,
            removed=flushed.removed,
            replaced=flushed.runs.replaced,
        )

    def write_checkpoint(self, position: JournalPosition) -> None:
        """Move the checkpoint, then let go of the journal files before it. Raises OSError.

        Only after ``store`` has returned for everything before ``position``.
        """
        check(position >= self._checkpoint, f"checkpoint back from {self._checkpoint}: {position}")
        self._directory.write_checkpoint(position)
        self._checkpoint = position
        for file_id in journal_ids(self._disk, self._paths.journal):
            if file_id < position.file_id:
                path = self._paths.journal / journal_name(file_id)
                self._spares.keep(path, file_id)

    def close(self) -> None:
        self._log.close()
        self._reader.close()
        self.index.close()

    # -- the reading lane --------------------------------------------------------------------

    def read(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> bytes | None:
        """Entries from ``first_entry_id`` on as one run, within both limits but at least one.
        None: the entry is not stored, says an index that was read without error.

        Raises FencelogError(CORRUPT, STORAGE_FAILED).
        """
        runs: list[bytes] = []
        entry_id, size = first_entry_id, 0
        for stored in self.index.runs_from(ledger_id, first_entry_id):
            if stored.first_entry_id > entry_id:
                break
            try:
                runs.append(self._reader.read(stored))
            except FencelogError:
                if not runs:
                    raise
                break  # what was read is good; the damaged run is answered when it is asked for
            size += stored.size
            entry_id = stored.last_entry_id + 1
            if size >= max_bytes or entry_id - first_entry_id >= max_entries:
                break
        if not runs:
            return None
        return join_runs(runs, first_entry_id, max_entries=max_entries, max_bytes=max_bytes)

    def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """What of the entries wanted is stored. Raises FencelogError(CORRUPT, STORAGE_FAILED)."""
        return self.index.ranges(ledger_id, wanted)


def _planned(half: CacheHalf) -> Iterator[bytes]:
    """Runs in the order in which they go to the log: by ledger, then entry; small ones merged."""
    for runs in half.sorted_runs():
        yield from merged(runs)
