"""The journal on disk: names, positions, groups of records, and the file being written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from errno import ENOSPC
from pathlib import Path

from fencelog.bookie.disk.port import Buffer, Disk, File
from fencelog.bookie.format.numbered_files import file_ids, file_name
from fencelog.bookie.format.records import RESERVE_UNIT, FileHeader, RecordType, encode_record
from fencelog.bookie.journal.spare_files import SpareFiles
from fencelog.ledgers.rpc.bookie_port import AddCallback

_SUFFIX = ".journal"


@dataclass(frozen=True, slots=True, order=True)
class JournalPosition:
    """Where a record is or will be. ``sequence`` alone orders positions."""

    sequence: int
    file_id: int
    offset: int


def journal_name(file_id: int) -> str:
    return file_name(file_id, _SUFFIX)


def journal_ids(disk: Disk, directory: Path) -> list[int]:
    """Ids of the journal files in a directory, ascending."""
    return file_ids(disk, directory, _SUFFIX)


@dataclass(slots=True, eq=False)
class Group:
    """Records that are written together, into one file."""

    start: JournalPosition
    records: list[tuple[RecordType, Buffer]] = field(default_factory=list)
    callbacks: list[AddCallback] = field(default_factory=list)
    size: int = 0
    sync: bool = True

    @property
    def end_sequence(self) -> int:
        return self.start.sequence + len(self.records)


class JournalFile:
    """The file being written. Its methods block: call them on an I/O thread.

    Page cache: none is dropped behind the writing. A file that is written over is written over in
    memory that it has already, and a page of which a group fills only a part need not be read
    first; the page cache it takes is bounded by the few files there are (``MAX_SPARES``).
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
        try:
            self._file.reserve(size)
        except OSError as error:
            if error.errno != ENOSPC:
                raise
            # No room for a whole file, but perhaps for what will be written. What was reserved in
            # vain is given back: the flush needs it.
            self._file.close()
            disk.remove(spare)
            self._file, size = disk.create(spare), 0
        # Size and header are durable, and only then is it called a journal file, durably, before
        # any record is written. So one that is shorter, or has no whole header, is damaged.
        self._file.write([replace(header, reserved=size).encode()], 0)
        self._file.sync()
        disk.rename(spare, directory / journal_name(header.file_id))
        disk.sync_directory(directory)

    def write(self, group: Group, *, durable: int) -> None:
        """Write a group, at the end of what is written. ``durable``: all records up to this
        sequence have been synced, and its records say so. It may run while ``sync`` does."""
        sequence = group.start.sequence
        buffers: list[Buffer] = []
        for kind, body in group.records:
            head, body, padding = encode_record(
                kind, body, sequence=sequence, durable=durable, seed=self._seed
            )
            buffers += (head, body, padding) if padding else (head, body)
            sequence += 1
        self._file.write(buffers, group.start.offset)

    def sync(self) -> None:
        """What was written before the call is durable on return. One at a time: of two that run at
        once, either may be told of the other's failure, and the other one of success."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()
