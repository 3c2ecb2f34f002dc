"""The journal on disk: names, positions, groups of records, and the file being written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from errno import ENOSPC
from pathlib import Path

from fencelog.bookie.disk.port import Buffer, Disk, Done, File, IoThread
from fencelog.bookie.format.numbered_files import file_ids, file_name
from fencelog.bookie.format.records import RESERVE_UNIT, FileHeader, RecordType, encode_records
from fencelog.bookie.journal.spare_files import SpareFiles
from fencelog.ledgers.rpc.bookie_port import AddCallback

_SUFFIX = ".journal"

_LEFT_BY_FILE = 4
"""The free space that a new file needs to have its size reserved, in files: on a nearly full disk
flushes and metadata need the space more. Bookies may share the disk and begin files together."""


@dataclass(frozen=True, slots=True, order=True)
class JournalPosition:
    """The position of a record that is or will be written. ``sequence`` alone orders positions."""

    sequence: int
    file_id: int
    offset: int


def journal_name(file_id: int) -> str:
    return file_name(file_id, _SUFFIX)


def journal_ids(disk: Disk, directory: Path) -> list[int]:
    """Return the ids of the journal files in a directory, ascending."""
    return file_ids(disk, directory, _SUFFIX)


@dataclass(slots=True, eq=False)
class Group:
    """Records that are written together, into one file."""

    start: JournalPosition
    records: list[tuple[RecordType, Buffer]] = field(default_factory=list)
    callbacks: list[AddCallback] = field(default_factory=list)
    size: int = 0
    sync: bool = True
    began_us: int = 0
    """The time at which it was begun, and from its hand-over to an I/O thread on, that time."""

    @property
    def end_sequence(self) -> int:
        return self.start.sequence + len(self.records)


class JournalFile:
    """The file being written. Its methods block, except ``submit``: call them on an I/O thread.

    No page cache is dropped after writing. A reused file is overwritten in memory that it has
    already, and a page of which a group fills only a part need not be read first; its page cache is
    bounded by the small number of files (``MAX_SPARES``).
    """

    def __init__(self, disk: Disk, directory: Path, header: FileHeader, max_bytes: int) -> None:
        spares = SpareFiles(disk, directory)
        spare = spares.oldest()
        self._file: File
        if spare is None:
            spare = spares.path(header.file_id)
            self._file = disk.create(spare)
        else:
            self._file = disk.open(spare)
        self._seed = header.seed
        size = max(self._file.size(), max_bytes)
        size += -size % RESERVE_UNIT
        if not self._has_reserved(size, disk.space(directory).free_bytes):
            # There is no space for a whole file, but perhaps for the next records. A partial
            # reservation is released: the flush needs the space.
            self._file.close()
            disk.remove(spare)
            self._file, size = disk.create(spare), 0
        # Size and header are durable before the file is renamed to a journal file, and the rename
        # is durable before any record is written. So one that is shorter, or has no complete
        # header, is damaged.
        self._file.write([replace(header, reserved=size).encode()], 0)
        self._file.sync()
        disk.rename(spare, directory / journal_name(header.file_id))
        disk.sync_directory(directory)

    def _has_reserved(self, size: int, free_bytes: int) -> bool:
        """Reserve space up to ``size``, unless little would be left of the disk; return whether the
        file has all of it. Raises OSError."""
        more = size - self._file.size()
        if more > 0 and free_bytes < _LEFT_BY_FILE * more:
            return False
        try:
            self._file.reserve(size)
        except OSError as error:
            if error.errno != ENOSPC:
                raise
            return False
        return True

    def write(self, group: Group, *, durable: int) -> None:
        """Write a group after the last one. ``durable``: all records up to this sequence have been
        synced, and the group's records say so. It may run while ``sync`` does."""
        self._file.write(self._encoded(group, durable), group.start.offset)

    def submit(self, io_thread: IoThread, group: Group, *, durable: int, done: Done) -> None:
        """Have an I/O thread write a group and, if it asks for that, sync it and all before it.
        It does not block."""
        buffers = self._encoded(group, durable)
        io_thread.write(self._file, buffers, group.start.offset, sync=group.sync, done=done)

    def _encoded(self, group: Group, durable: int) -> list[Buffer]:
        sequence = group.start.sequence
        return encode_records(group.records, sequence=sequence, durable=durable, seed=self._seed)

    def sync(self) -> None:
        """Make all that was written before the call durable. Only one call may run at a time: of
        two concurrent calls, either may get the other's failure, and the other one success."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()
