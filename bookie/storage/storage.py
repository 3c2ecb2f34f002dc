"""Entry logs and index together: where runs go at a flush and come from at a read.

Writing is work of one I/O thread, reading of another; the index is what makes a run visible to
readers, so they never meet a run that is not durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from errno import ENOSPC

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk
from fencelog.bookie.format.runs import merged
from fencelog.bookie.journal.file import JournalPosition, journal_ids, journal_name
from fencelog.bookie.journal.spare_files import SpareFiles
from fencelog.bookie.storage.compaction import remove_unfinished
from fencelog.bookie.storage.entry_log import EntryLogReader, entry_log_ids
from fencelog.bookie.storage.entry_log_writer import EntryLogPlace, EntryLogWriter
from fencelog.bookie.storage.index import Index
from fencelog.bookie.storage.shard_directory import ShardDirectory
from fencelog.bookie.storage.stored_reads import StoredReads
from fencelog.bookie.storage.write_cache import CacheHalf
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


@dataclass(frozen=True, slots=True)
class Survey:
    """Numbers of entry logs, ascending."""

    sealed: tuple[int, ...]
    """Nothing is added to them, and what is in them the index has known since before."""
    newest: tuple[int, ...]
    """The one that is written to, and the last: they stay, so that no number is used twice."""


class Storage:
    """One shard's entry logs, index and checkpoint. Its methods block: call them on an I/O
    thread."""

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
            if error.errno == ENOSPC:
                raise
            raise FencelogError(ErrorCode.CORRUPT, f"index cannot be opened: {error}") from error
        try:
            self.mark = self._checked_mark()
        except FencelogError:
            self.index.close()
            raise
        self.entry_logs = EntryLogPlace(
            disk, paths.entry_log, incarnation, salt=lambda: host.random_bytes(16)
        )
        remove_unfinished(self.entry_logs)
        self._log = EntryLogWriter(self.entry_logs, max_file_bytes=config.entry_log_bytes)
        self._incarnation = incarnation
        self._reader = self.entry_log_reader(disk)
        self.reads = StoredReads(self.index, self._reader)
        """For the reading thread."""

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

    def entry_log_reader(self, disk: Disk) -> EntryLogReader:
        """Another reader of these entry logs: one belongs to one I/O thread, whose owner closes
        it."""
        return EntryLogReader(disk, self._paths.entry_log, incarnation=self._incarnation)

    def forget_entry_log(self, file_id: int) -> None:
        """On the reading thread: it was removed."""
        self._reader.forget(file_id)

    # -- the writing thread --------------------------------------------------------------------

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

    def survey(self) -> Survey:
        """Which entry logs there are, none of them about to get a run. Raises OSError."""
        log = self._log
        names = entry_log_ids(self._disk, self._paths.entry_log)
        sealed = [i for i in names if i not in (log.current_id, log.last_id)]
        return Survey(tuple(sealed), tuple(i for i in names if i not in sealed))

    def begin_entry_log(self) -> None:
        """Write no more to the newest entry log. Raises OSError, which takes nothing of what is
        stored: the next flush tries again."""
        self._log.roll()

    def next_entry_log_id(self) -> int:
        """A number that no entry log ever had."""
        return self._log.next_id()

    def close(self) -> None:
        self._log.close()
        self._reader.close()
        self.index.close()


def _planned(half: CacheHalf) -> Iterator[bytes]:
    """Runs in the order in which they go to the log: by ledger, then entry; small ones merged."""
    for runs in half.sorted_runs():
        yield from merged(runs)
