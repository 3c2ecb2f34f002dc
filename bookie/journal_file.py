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


@dataclass(slots=True)
class Group:
    """Records that are written and synced together, into one file."""

    start: JournalPosition
    records: list[tuple[RecordType, Buffer]] = field(default_factory=list)
    callbacks: list[AddCallback] = field(default_factory=list)
    size: int = 0
    sync: bool = True


class JournalFile:
    """The file being written. Its methods block: they are lane work."""

    def __init__(self, disk: Disk, directory: Path, header: FileHeader, max_bytes: int) -> None:
        path = directory / journal_name(header.file_id)
        spare = SpareFiles(disk, directory).oldest()
        self._file: File = disk.create(path) if spare is None else disk.open(spare)
        self._seed = header.seed
        self._max_bytes = max_bytes
        self._synced = True
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

    def write(self, group: Group, *, all_synced: bool) -> None:
        """Write a group and sync it if it asks for that. ``all_synced``: all before it is durable,
        and its records may say so."""
        sequence = group.start.sequence
        durable = sequence - 1 if all_synced else 0
        buffers: list[Buffer] = []
        for kind, body in group.records:
            head, body, padding = encode_record(
                kind, body, sequence=sequence, durable=durable, seed=self._seed
            )
            buffers += (head, body, padding) if padding else (head, body)
            sequence += 1
        self._reserve(group.start.offset + group.size)
        self._file.write(buffers, group.start.offset)
        self._synced = False
        if group.sync:
            self._sync()

    def finish(self) -> None:
        """Close a file behind which the next is begun: all of it is durable then."""
        if not self._synced:
            self._sync()
        self.close()

    def _sync(self) -> None:
        self._file.sync()
        self._synced = True

    def close(self) -> None:
        self._file.close()
