"""Entry logs: files of runs of many ledgers, which keep entries after the journal has dropped them.

    file      header and RUN records (format/records.py); ``durable`` is 0, sequences count from 1
    footer    (of a sealed file, behind the last record)
              count x (u64 ledger id, u64 bytes of its records), ascending ledger ids
    trailer   the last 32 bytes of a sealed file
               0  u64 offset of the footer
               8  u64 count
              16  4s  "FLET"
              20  u32 CRC32C of the footer, begun with the file header's
              24  u32 CRC32C of bytes 0..24
              28  u32 0

A file without a trailer was the newest one when its process ended, or is being written; it is
complete up to where the index points. A program that starts never appends to an old file: it begins
a new one. A footer never decides what may be removed: the index alone does.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from fencelog.bookie.disk.port import Disk, File
from fencelog.bookie.format.numbered_files import file_ids, file_name
from fencelog.bookie.format.records import (
    ENTRY_LOG_MAGIC,
    FILE_HEADER_BYTES,
    decode_file_header,
    record_bytes,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.run import verify_run

ENTRY_LOG_SUFFIX = ".entrylog"

_FOOTER_ITEM = struct.Struct("<QQ")
_TRAILER = struct.Struct("<QQ4sI")
_TRAILER_CRC = struct.Struct("<II")
_TRAILER_MAGIC = b"FLET"
TRAILER_BYTES = _TRAILER.size + _TRAILER_CRC.size

_MAX_OPEN_FILES = 64


class StoredRun(NamedTuple):
    """The place of a run. ``offset`` is that of the run itself, behind its record's header."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    file_id: int
    offset: int
    size: int

    @property
    def entries(self) -> int:
        return self.last_entry_id - self.first_entry_id + 1

    @property
    def record_bytes(self) -> int:
        """Return the bytes that the run takes in its file."""
        return record_bytes(self.size)

    def is_before(self, other: StoredRun) -> bool:
        """Tell whether another run is in the same file behind this one."""
        return self.file_id == other.file_id and self.offset < other.offset


def entry_log_name(file_id: int) -> str:
    return file_name(file_id, ENTRY_LOG_SUFFIX)


def entry_log_ids(disk: Disk, directory: Path) -> list[int]:
    """Return the ids of the entry logs in a directory, ascending."""
    return file_ids(disk, directory, ENTRY_LOG_SUFFIX)


def encode_footer(sizes: dict[int, int], *, offset: int, seed: int) -> bytes:
    """Encode footer and trailer. ``sizes`` are bytes of records by ledger id."""
    footer = b"".join(_FOOTER_ITEM.pack(*item) for item in sorted(sizes.items()))
    trailer = _TRAILER.pack(offset, len(sizes), _TRAILER_MAGIC, crc32c(footer, seed))
    return footer + trailer + _TRAILER_CRC.pack(crc32c(trailer), 0)


def decode_footer(file: File, *, seed: int) -> dict[int, int] | None:
    """Return the bytes of records by ledger id of a sealed file; None for a file that is not
    sealed."""
    found = _read_trailer(file)
    if found is None:
        return None
    offset, count, checksum = found
    footer = file.read(offset, count * _FOOTER_ITEM.size)
    if crc32c(footer, seed) != checksum:
        return None
    return dict(_FOOTER_ITEM.iter_unpack(footer))


def records_end(file: File) -> int:
    """Return the offset at which the records of a file end, if it is sealed; else its size."""
    found = _read_trailer(file)
    return file.size() if found is None else found[0]


def _read_trailer(file: File) -> tuple[int, int, int] | None:
    """Return offset, count and checksum of the footer, which is between the offset and the
    trailer."""
    end = file.size() - TRAILER_BYTES
    data = file.read(max(end, 0), TRAILER_BYTES)
    if len(data) < TRAILER_BYTES:
        return None
    offset, count, magic, checksum = _TRAILER.unpack_from(data)
    own, zero = _TRAILER_CRC.unpack_from(data, _TRAILER.size)
    if magic != _TRAILER_MAGIC or own != crc32c(data[: _TRAILER.size]) or zero:
        return None
    return (offset, count, checksum) if offset + count * _FOOTER_ITEM.size == end else None


def open_entry_log(disk: Disk, directory: Path, file_id: int, *, incarnation: bytes) -> File:
    """Open an entry log whose header names this file and this bookie.

    Raises OSError, and FencelogError(CORRUPT) if its header does not.
    """
    path = directory / entry_log_name(file_id)
    file = disk.open(path)
    try:
        header = decode_file_header(file.read(0, FILE_HEADER_BYTES))
        expected = (ENTRY_LOG_MAGIC, file_id, incarnation)
        if header is None or (header.magic, header.file_id, header.incarnation) != expected:
            raise FencelogError(ErrorCode.CORRUPT, f"{path}: entry log header is damaged")
    except BaseException:
        file.close()
        raise
    return file


class EntryLogReader:
    """A reader that reads runs back and verifies them. Its methods block: call them on one I/O
    thread."""

    def __init__(self, disk: Disk, directory: Path, *, incarnation: bytes) -> None:
        self._disk = disk
        self._directory = directory
        self._incarnation = incarnation
        self._files: OrderedDict[int, File] = OrderedDict()

    def read(self, stored: StoredRun) -> bytes:
        """Read a run, complete and verified.

        Raises FencelogError: CORRUPT when the index names bytes that are not this run, and
        STORAGE_FAILED when the disk does not return them. It is never "not there": the index shows
        that the run exists.
        """
        try:
            run = self._file(stored.file_id).read(stored.offset, stored.size)
        except OSError as error:
            where = self._where(stored)
            raise FencelogError(ErrorCode.STORAGE_FAILED, f"{where}: {error}") from error
        try:
            header = verify_run(run)
        except ProtocolError as error:
            where = self._where(stored)
            raise FencelogError(ErrorCode.CORRUPT, f"{where}: {error.detail}") from error
        if (header.ledger_id, header.first_entry_id, header.last_entry_id) != stored[:3]:
            raise FencelogError(ErrorCode.CORRUPT, f"{self._where(stored)}: holds another run")
        return run

    def head(self, file_id: int) -> tuple[Path, bytes]:
        """Return the absolute path of a file and its header, which no other file has. Raises
        OSError, and FencelogError(CORRUPT) if the header is damaged."""
        header = self._file(file_id).read(0, FILE_HEADER_BYTES)
        return self._directory.absolute() / entry_log_name(file_id), header

    def _where(self, stored: StoredRun) -> str:
        path = self._directory / entry_log_name(stored.file_id)
        entries = f"entries {stored.first_entry_id}..{stored.last_entry_id}"
        return f"{path} at offset {stored.offset} (ledger {stored.ledger_id}, {entries})"

    def forget(self, file_id: int) -> None:
        """Close a file that was removed, so that its space is freed."""
        if (file := self._files.pop(file_id, None)) is not None:
            file.close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, file_id: int) -> File:
        file = self._files.get(file_id)
        if file is not None:
            self._files.move_to_end(file_id)
            return file
        file = open_entry_log(self._disk, self._directory, file_id, incarnation=self._incarnation)
        self._files[file_id] = file
        if len(self._files) > _MAX_OPEN_FILES:
            self._files.popitem(last=False)[1].close()
        return file
