"""The directories of a shard: its journal, its entry logs, its index, its checkpoint.

A ledger is stored in the shard of its id's remainder, permanently: if the number of shards changed
under existing data, its entries would be looked up in the wrong shard (seed 000, contributor
examples 1 and 2). So ``identity/cookies_core.py`` refuses that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk
from fencelog.bookie.format.records import FILE_HEADER_BYTES, JOURNAL_MAGIC, FileHeader
from fencelog.bookie.format.small_file import decode_small_file, encode_small_file
from fencelog.bookie.journal.file import JournalPosition, journal_ids, journal_name
from fencelog.bookie.storage.index import Index
from fencelog.ledgers.errors import ErrorCode, FencelogError

_CHECKPOINT_MAGIC = b"FLCP"


@dataclass(frozen=True, slots=True)
class ShardPaths:
    """The paths of a shard. ``ledgers`` holds ``entrylog/``, ``index/`` and ``checkpoint``."""

    journal: Path
    ledgers: Path

    @property
    def entry_log(self) -> Path:
        return self.ledgers / "entrylog"

    @property
    def index(self) -> Path:
        return self.ledgers / "index"

    @property
    def checkpoint(self) -> Path:
        return self.ledgers / "checkpoint"


def shard_paths(config: BookieConfig) -> list[ShardPaths]:
    """Return the paths of a bookie's shards, by number; ledger ``i`` is stored in shard ``i %
    len(...)``.

    A single shard uses its directories as they are; of several, each has a subdirectory with its
    number.
    """
    journals = config.journal_dirs or (config.data_dir / "journal",)
    ledgers = config.ledger_dirs or (config.data_dir,)
    count = max(len(journals), len(ledgers))
    if count == 1:
        return [ShardPaths(journals[0], ledgers[0])]
    return [
        ShardPaths(
            journals[number % len(journals)] / f"shard-{number:02d}",
            ledgers[number % len(ledgers)] / f"shard-{number:02d}",
        )
        for number in range(count)
    ]


class ShardDirectory:
    """The files of one shard. Its methods block: call them on an I/O thread. They raise OSError,
    and FencelogError where they say so."""

    def __init__(self, disk: Disk, paths: ShardPaths) -> None:
        self._disk = disk
        self.paths = paths

    def make(self, *, directory: bytes, salt: bytes) -> None:
        """Make the files of an empty shard: an index with a mark, a journal file, a checkpoint.
        ``directory`` is the bookie's first incarnation. Remains of an earlier try are made again.
        """
        paths, disk = self.paths, self._disk
        for path in (paths.journal, paths.entry_log, paths.index):
            disk.make_directory(path)
        self._remove_journals()
        index = Index(disk.open_store(paths.index, create=True))
        try:
            index.write([], [], mark=1)
        finally:
            index.close()
        self._make_journal(JournalPosition(1, 1, FILE_HEADER_BYTES), directory, salt)

    def make_journal(self, *, directory: bytes, salt: bytes) -> None:
        """Make an empty journal that begins after the records in the index; records that only the
        lost journal had are gone. Remains of an earlier try are made again. Raises
        FencelogError(CORRUPT, STORAGE_FAILED)."""
        paths, disk = self.paths, self._disk
        disk.make_directory(paths.journal)
        index = Index(disk.open_store(paths.index, create=False))
        try:
            mark = index.mark()
        finally:
            index.close()
        file_id = self.read_checkpoint().file_id + 1
        self._remove_journals()
        self._make_journal(JournalPosition(mark, file_id, FILE_HEADER_BYTES), directory, salt)

    def _remove_journals(self) -> None:
        for file_id in journal_ids(self._disk, self.paths.journal):
            self._disk.remove(self.paths.journal / journal_name(file_id))

    def _make_journal(self, begin: JournalPosition, directory: bytes, salt: bytes) -> None:
        """Make the first file of a journal, then the checkpoint, with which replay begins there."""
        path, disk = self.paths.journal, self._disk
        header = FileHeader(JOURNAL_MAGIC, begin.file_id, begin.sequence, directory, salt)
        file = disk.create(path / journal_name(begin.file_id))
        try:
            file.write([header.encode()], 0)
            file.sync()
        finally:
            file.close()
        disk.sync_directory(path)
        self.write_checkpoint(begin)

    def read_checkpoint(self) -> JournalPosition:
        """Return the position where replay begins: all records before it are in entry logs and
        index. Raises FencelogError(CORRUPT)."""
        path = self.paths.checkpoint
        data = self._disk.read_file(path)
        if data is None:
            raise FencelogError(ErrorCode.CORRUPT, f"{path} is missing")
        fields = decode_small_file(path, _CHECKPOINT_MAGIC, data)
        return JournalPosition(
            sequence=int(fields["sequence"]),
            file_id=int(fields["file_id"]),
            offset=int(fields["offset"]),
        )

    def write_checkpoint(self, position: JournalPosition) -> None:
        """Move the checkpoint; durable on return."""
        fields = {
            "sequence": position.sequence,
            "file_id": position.file_id,
            "offset": position.offset,
        }
        data = encode_small_file(_CHECKPOINT_MAGIC, fields)
        self._disk.replace_file(self.paths.checkpoint, data)
