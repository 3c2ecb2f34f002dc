"""Entry logs and index together: a flush writes runs to them, and reads get runs from them.

One I/O thread writes, another one reads; a run becomes visible to readers through the index, so
they never get a run that is not durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from errno import ENOSPC

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk
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
    """The content of one flush, which makes durable all that was journaled before ``position``."""

    runs: CacheHalf
    states: list[tuple[int, bytes]]
    removed: list[int]
    position: JournalPosition

    @property
    def is_empty(self) -> bool:
        return not (self.runs.size or self.states or self.removed)


@dataclass(frozen=True, slots=True)
class Survey:
    """The numbers of entry logs, ascending."""

    sealed: tuple[int, ...]
    """Files to which no run is added, and whose runs were in the index before."""
    newest: tuple[int, ...]
    """The file that is being written, and the last one: they stay, so that no number is used
    twice."""


class Storage:
    """The entry logs, index and checkpoint of one shard. Its methods block: call them on an I/O
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
        """The reads, for use on the reading thread."""

    def _checked_mark(self) -> int:
        """Return the mark of the index. It reaches at least to the checkpoint, or a part of the
        index was lost."""
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
        """Return another reader of these entry logs. A reader belongs to one I/O thread, whose
        owner closes it."""
        return EntryLogReader(disk, self._paths.entry_log, incarnation=self._incarnation)

    def forget_entry_log(self, file_id: int) -> None:
        """Close an entry log that was removed. Call it on the reading thread."""
        self._reader.forget(file_id)

    # -- the writing thread --------------------------------------------------------------------

    def store(self, flushed: FlushedState) -> None:
        """Write the runs to entry logs, then the index. Raises OSError.

        A crash is safe at every point. Before the index write, the end of the entry log is garbage
        that no item points to, and replay restores the runs. After it, the mark shows which records
        replay need not restore, although the checkpoint is still the old one.
        """
        stored = self._log.append(flushed.runs.in_order())
        self.index.write(
            stored,
            flushed.states,
            mark=flushed.position.sequence,
            removed=flushed.removed,
            replaced=flushed.runs.replaced,
        )

    def write_checkpoint(self, position: JournalPosition) -> None:
        """Move the checkpoint, then release the journal files before it. Raises OSError.

        Call it only after ``store`` has returned for all records before ``position``.
        """
        check(position >= self._checkpoint, f"checkpoint back from {self._checkpoint}: {position}")
        self._directory.write_checkpoint(position)
        self._checkpoint = position
        for file_id in journal_ids(self._disk, self._paths.journal):
            if file_id < position.file_id:
                path = self._paths.journal / journal_name(file_id)
                self._spares.keep(path, file_id)

    def survey(self) -> Survey:
        """Return the entry logs that exist; none of them is about to get a run. Raises OSError."""
        log = self._log
        names = entry_log_ids(self._disk, self._paths.entry_log)
        sealed = [i for i in names if i not in (log.current_id, log.last_id)]
        return Survey(tuple(sealed), tuple(i for i in names if i not in sealed))

    def begin_entry_log(self) -> None:
        """Write no more to the newest entry log. After an error all stored runs remain, and the
        next flush tries again. Raises OSError."""
        self._log.roll()

    def leave_entry_log(self, file_id: int) -> None:
        """Write no more to this entry log, in which damage was found; the contract of
        ``begin_entry_log``. Raises OSError."""
        if self._log.current_id == file_id:
            self._log.roll()

    def next_entry_log_id(self) -> int:
        """Reserve a number that no entry log ever had."""
        return self._log.next_id()

    def close(self) -> None:
        self._log.close()
        self._reader.close()
        self.index.close()
