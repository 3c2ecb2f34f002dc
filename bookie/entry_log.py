"""Entry logs: files of runs of many ledgers, where entries stay after the journal let go of them.

    file      header and RUN records as in records.py; ``durable`` is 0, sequences count from 1
    footer    (of a sealed file, behind the last record)
              count x (u64 ledger id, u64 bytes of its records), ascending ledger ids
    trailer   the last 32 bytes of a sealed file
               0  u64 offset of the footer
               8  u64 count
              16  4s  "FLET"
              20  u32 CRC32C of the footer, begun with the file header's
              24  u32 CRC32C of bytes 0..24
              28  u32 0

A file without a trailer was cut off by a crash or is being written; it is complete up to where the
index points. A program that starts never appends to an old file: it begins a new one.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fencelog.bookie.disk import Buffer, Disk, File
from fencelog.bookie.numbered_files import file_ids, file_name
from fencelog.bookie.records import (
    ENTRY_LOG_MAGIC,
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    FileHeader,
    RecordType,
    decode_file_header,
    encode_record,
    record_bytes,
)
from fencelog.ledgers.digest import crc32c
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.run import read_run_header, verify_run

ENTRY_LOG_SUFFIX = ".entrylog"

_FOOTER_ITEM = struct.Struct("<QQ")
_TRAILER = struct.Struct("<QQ4sI")
_TRAILER_CRC = struct.Struct("<II")
_TRAILER_MAGIC = b"FLET"
TRAILER_BYTES = _TRAILER.size + _TRAILER_CRC.size

_WRITE_BYTES = 1 * MIB
"""Written and synced at a time. The disk never has more than this of a flush before it, so that the
journal, whose syncs adds wait for, gets its turn every few ms."""

_MAX_OPEN_FILES = 64


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Where a run is: ``offset`` is that of the run itself, behind its record's header."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    file_id: int
    offset: int
    size: int


def entry_log_name(file_id: int) -> str:
    return file_name(file_id, ENTRY_LOG_SUFFIX)


def entry_log_ids(disk: Disk, directory: Path) -> list[int]:
    """Ids of the entry logs in a directory, ascending."""
    return file_ids(disk, directory, ENTRY_LOG_SUFFIX)


def encode_footer(sizes: dict[int, int], *, offset: int, seed: int) -> bytes:
    """Footer and trailer; ``sizes`` are bytes of records by ledger id."""
    footer = b"".join(_FOOTER_ITEM.pack(*item) for item in sorted(sizes.items()))
    trailer = _TRAILER.pack(offset, len(sizes), _TRAILER_MAGIC, crc32c(footer, seed))
    return footer + trailer + _TRAILER_CRC.pack(crc32c(trailer), 0)


def decode_footer(file: File, *, seed: int) -> dict[int, int] | None:
    """Bytes of records by ledger id of a sealed file; None for a file that is not sealed."""
    end = file.size() - TRAILER_BYTES
    data = file.read(max(end, 0), TRAILER_BYTES)
    if len(data) < TRAILER_BYTES:
        return None
    offset, count, magic, checksum = _TRAILER.unpack_from(data)
    own, zero = _TRAILER_CRC.unpack_from(data, _TRAILER.size)
    if magic != _TRAILER_MAGIC or own != crc32c(data[: _TRAILER.size]) or zero:
        return None
    if offset + count * _FOOTER_ITEM.size != end:
        return None
    footer = file.read(offset, end - offset)
    if crc32c(footer, seed) != checksum:
        return None
    return dict(_FOOTER_ITEM.iter_unpack(footer))


class EntryLogWriter:
    """Appends runs to the newest entry log. Its methods block: they are lane work."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        incarnation: bytes,
        salt: Callable[[], bytes],
        max_file_bytes: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._incarnation = incarnation
        self._salt = salt
        self._max_file_bytes = max_file_bytes
        ids = entry_log_ids(disk, directory)
        self._file_id = ids[-1] if ids else 0
        self._file: File | None = None
        self._seed = 0
        self._sequence = 1
        self._offset = 0
        self._sizes: dict[int, int] = {}
        self._buffers: list[Buffer] = []
        self._buffered = 0

    def append(self, runs: Iterable[bytes]) -> list[StoredRun]:
        """Write the runs; they are durable on return, and so are the names of new files. Raises
        OSError, after which the writer is not to be used again."""
        stored: list[StoredRun] = []
        for run in runs:
            stored.append(self._append_one(run))
            if self._buffered >= _WRITE_BYTES:
                self._write_buffers()
        self._write_buffers()
        return stored

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append_one(self, run: bytes) -> StoredRun:
        header = read_run_header(run)
        size = record_bytes(header.size)
        file = self._file
        if file is None or self._offset + size > self._max_file_bytes:
            self._begin_file()
        head, body, padding = encode_record(
            RecordType.RUN, run, sequence=self._sequence, durable=0, seed=self._seed
        )
        self._buffers += (head, body, padding) if padding else (head, body)
        self._buffered += size
        stored = StoredRun(
            header.ledger_id,
            header.first_entry_id,
            header.last_entry_id,
            self._file_id,
            self._offset + RECORD_HEADER_BYTES,
            header.size,
        )
        self._offset += size
        self._sequence += 1
        self._sizes[header.ledger_id] = self._sizes.get(header.ledger_id, 0) + size
        return stored

    def _write_buffers(self) -> None:
        if self._file is not None and self._buffers:
            self._file.write(self._buffers, self._offset - self._buffered)
            self._file.sync()
        self._buffers, self._buffered = [], 0

    def _begin_file(self) -> None:
        if self._file is not None:
            self._seal(self._file)
        self._file_id += 1
        header = FileHeader(ENTRY_LOG_MAGIC, self._file_id, 1, self._incarnation, self._salt())
        self._file = self._disk.create(self._directory / entry_log_name(self._file_id))
        self._file.write([header.encode()], 0)
        self._file.sync()
        self._disk.sync_directory(self._directory)
        self._seed, self._sequence, self._offset = header.seed, 1, FILE_HEADER_BYTES
        self._sizes = {}

    def _seal(self, file: File) -> None:
        self._write_buffers()
        file.write([encode_footer(self._sizes, offset=self._offset, seed=self._seed)], self._offset)
        file.sync()
        file.close()


class EntryLogReader:
    """Reads runs back and verifies them. Its methods block: they are work of one lane."""

    def __init__(self, disk: Disk, directory: Path, *, incarnation: bytes) -> None:
        self._disk = disk
        self._directory = directory
        self._incarnation = incarnation
        self._files: OrderedDict[int, File] = OrderedDict()

    def read(self, stored: StoredRun) -> bytes:
        """The run, whole and verified.

        Raises FencelogError: CORRUPT when the index names bytes that are not this run, and
        STORAGE_FAILED when the disk does not give them. Never "not there": the index says it is.
        """
        path = self._directory / entry_log_name(stored.file_id)
        where = f"{path} at offset {stored.offset} (ledger {stored.ledger_id}, "
        where += f"entries {stored.first_entry_id}..{stored.last_entry_id})"
        try:
            run = self._file(stored.file_id, path).read(stored.offset, stored.size)
        except OSError as error:
            raise FencelogError(ErrorCode.STORAGE_FAILED, f"{where}: {error}") from error
        try:
            header = verify_run(run)
        except ProtocolError as error:
            raise FencelogError(ErrorCode.CORRUPT, f"{where}: {error.detail}") from error
        if (header.ledger_id, header.first_entry_id, header.last_entry_id) != (
            stored.ledger_id,
            stored.first_entry_id,
            stored.last_entry_id,
        ):
            raise FencelogError(ErrorCode.CORRUPT, f"{where}: holds another run")
        return run

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, file_id: int, path: Path) -> File:
        file = self._files.get(file_id)
        if file is not None:
            self._files.move_to_end(file_id)
            return file
        file = self._disk.open(path)
        try:
            header = decode_file_header(file.read(0, FILE_HEADER_BYTES))
            expected = (ENTRY_LOG_MAGIC, file_id, self._incarnation)
            if header is None or (header.magic, header.file_id, header.incarnation) != expected:
                raise FencelogError(ErrorCode.CORRUPT, f"{path}: entry log header is damaged")
        except BaseException:
            file.close()
            raise
        self._files[file_id] = file
        if len(self._files) > _MAX_OPEN_FILES:
            self._files.popitem(last=False)[1].close()
        return file
