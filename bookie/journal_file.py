"""The journal on disk: names, positions, groups of records, and the file being written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fencelog.bookie.disk import Buffer, Disk, File
from fencelog.bookie.numbered_files import file_ids, file_name
from fencelog.bookie.records import (
    FILE_HEADER_BYTES,
    FileHeader,
    RecordType,
    encode_record,
)
from fencelog.bookie.spare_files import SpareFiles
from fencelog.ledgers.bookie_port import AddCallback
from fencelog.ledgers.limits import MIB

_RESERVE_BYTES = 64 * MIB
"""Space taken in advance, so that a sync rarely has to write the file's size and extents too."""

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
    """The file being written. Its methods block: they are lane work.

    Page cache: none is dropped behind the writing. A file that is written over is written over in
    memory that it has already, and a page of which a group fills only a part need not be read
    first; the page cache it takes is bounded by the few files there are (``MAX_SPARES``).
    """

    def __init__(self, disk: Disk, directory: Path, header: FileHeader, max_bytes: int) -> None:
        path = directory / journal_name(header.file_id)
        spare = SpareFiles(disk, directory).oldest()
        self._file: File = disk.create(path) if spare is None else disk.open(spare)
        self._seed = header.seed
        self._max_bytes = max_bytes
        self._reserved = self._file.size()
        self._reserve(FILE_HEADER_BYTES)
        # The header is durable, and then the file's name, before any record is written: a file
        # whose header is not whole holds nothing that anybody was told of.
        self._file.write([header.encode()], 0)
        self._file.sync()
        if spare is not None:
            disk.rename(spare, path)
        disk.sync_directory(directory)

    def _reserve(self, end: int) -> None:
        if end > self._reserved:
            self._reserved = max(end, min(self._reserved + _RESERVE_BYTES, self._max_bytes))
            self._file.reserve(self._reserved)

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
        self._reserve(group.start.offset + group.size)
        self._file.write(buffers, group.start.offset)

    def sync(self) -> None:
        """What was written before the call is durable on return. One at a time: of two that run at
        once, either may be told of the other's failure, and the other one of success."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()
