"""The record format that journals and entry logs share. Pure: bytes in, values out.

Little-endian; every record begins at a multiple of 8.

    file     0  4s  magic: FLJN (journal), FLEL (entry log)
             4  u16 version 1
             6  u16 size of this header, 64
             8  u64 file id
            16  u64 sequence of the first record
            24  16s incarnation of the data directory
            40  16s salt, random per file
            56  u32 CRC32C of bytes 0..56, and of the next four if they are not zero
            60  u32 size that the file was made to have before its first record, in units of 4 KiB;
                0 where that is not known (entry logs)

    record   0  u32 size of the body
             4  u8  type, then "FLR"
             8  u64 sequence: one more than the record before
            16  u64 durable: when this record was written, all up to this sequence had been synced
            24  u32 CRC32C of bytes 0..24 and the guarded part of the body, begun with the file's
            28  u32 0
            32  body, zero-padded to 8

The guarded part is the whole body; for a run, it is the run header alone, which holds the run's own
CRC32C over the rest, so no byte is summed twice before it is written. Since the sum begins with the
file header's, which holds the salt, no bytes from another file or from a client's payload pass as a
record of this one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from fencelog.bookie.disk.port import Buffer
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.run import RUN_HEADER, verify_run
from fencelog.ledgers.limits import KIB, MAX_RUN_BYTES

FORMAT_VERSION = 1
JOURNAL_MAGIC = b"FLJN"
ENTRY_LOG_MAGIC = b"FLEL"

_FILE_HEADER = struct.Struct("<4sHHQQ16s16s")
_FILE_CRC = struct.Struct("<II")
FILE_HEADER_BYTES = _FILE_HEADER.size + _FILE_CRC.size
RESERVE_UNIT = 4 * KIB

_RECORD_HEADER = struct.Struct("<IB3sQQ")
_RECORD_CRC = struct.Struct("<II")
RECORD_HEADER_BYTES = _RECORD_HEADER.size + _RECORD_CRC.size
_MARK = b"FLR"
_MARK_AT = 5
_PADDING = tuple(bytes(n) for n in range(8))

Fetch = Callable[[int, int], bytes]
"""A function that reads (offset, size) of a file; it returns fewer bytes only at the end of the
file."""


class RecordType(IntEnum):
    RUN = 1
    FENCE = 2
    """A fence. Body: u64 ledger id."""
    LAC = 3
    """An explicit LAC. Body: u64 ledger id, i64 LAC."""
    LIMBO = 4
    """A fence that also puts the ledger in limbo. Body: u64 ledger id."""
    LIMBO_CLEARED = 5
    """The end of limbo after a repair; the ledger stays fenced. Body: u64 ledger id."""
    DELETED = 6
    """The ledger was deleted: its entries are removed, a tombstone stays. Body: u64 ledger id."""
    DROPPED = 7
    """The bookie is no member any more: its entries are removed, limbo stays. Body: u64 ledger
    id."""
    REPLACEMENT = 8
    """A run that replaces stored ones that are damaged. Body: the run."""

    @property
    def is_run(self) -> bool:
        return self in (RecordType.RUN, RecordType.REPLACEMENT)


_TYPES = frozenset(RecordType)
_RUNS = frozenset(kind for kind in RecordType if kind.is_run)
_MAX_CONTROL_BYTES = 4 * KIB
"""Largest body of a record that is no run."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    magic: bytes
    file_id: int
    first_sequence: int
    incarnation: bytes
    salt: bytes
    reserved: int = 0
    """The size in bytes, a multiple of ``RESERVE_UNIT``, that the file was made to have before its
    first record: a shorter file was truncated. 0: not known."""

    def encode(self) -> bytes:
        head, units = self._head(), self.reserved // RESERVE_UNIT
        return head + _FILE_CRC.pack(_file_checksum(head, units), units)

    @property
    def seed(self) -> int:
        """Return the start value for the checksums of the file's records: the header's own
        checksum."""
        return crc32c(self._head())

    def _head(self) -> bytes:
        return _FILE_HEADER.pack(
            self.magic,
            FORMAT_VERSION,
            FILE_HEADER_BYTES,
            self.file_id,
            self.first_sequence,
            self.incarnation,
            self.salt,
        )


@dataclass(frozen=True, slots=True)
class Record:
    type: RecordType
    sequence: int
    durable: int
    body: bytes
    end: int
    """Offset after the record and its padding."""


def decode_file_header(data: bytes) -> FileHeader | None:
    """Decode the header that ``data`` begins with; return None if it is incomplete or damaged.

    Raises FencelogError(UNSUPPORTED_VERSION) for a valid one of another version.
    """
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, version, size, file_id, first, incarnation, salt = _FILE_HEADER.unpack_from(data)
    checksum, units = _FILE_CRC.unpack_from(data, _FILE_HEADER.size)
    if checksum != _file_checksum(data[: _FILE_HEADER.size], units):
        return None
    if version != FORMAT_VERSION or size != FILE_HEADER_BYTES:
        raise FencelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"file header of version {version} and {size} bytes; this program reads version 1",
        )
    return FileHeader(magic, file_id, first, incarnation, salt, units * RESERVE_UNIT)


def _file_checksum(head: bytes, units: int) -> int:
    checksum = crc32c(head)
    return crc32c(units.to_bytes(4, "little"), checksum) if units else checksum


def record_bytes(body_size: int) -> int:
    """Return the bytes that a record takes, padding included."""
    return RECORD_HEADER_BYTES + ((body_size + 7) & ~7)


def all_record_bytes(bodies: Sequence[Buffer]) -> int:
    """Return the bytes that the records of these bodies take together, see ``record_bytes``."""
    padded = [(len(body) + 7) & ~7 for body in bodies]
    return RECORD_HEADER_BYTES * len(bodies) + sum(padded)


def encode_records(
    records: Iterable[tuple[RecordType, Buffer]], *, sequence: int, durable: int, seed: int
) -> list[Buffer]:
    """Return the bytes of consecutive records, as buffers to be written one after the other. The
    first of them gets ``sequence``."""
    buffers: list[Buffer] = []
    pack = _RECORD_HEADER.pack
    for number, (kind, body) in enumerate(records, sequence):
        size = len(body)
        head = pack(size, kind, _MARK, number, durable)
        guarded = body[: RUN_HEADER.size] if kind in _RUNS else body
        # The checksum and the zeros behind it, as one number.
        tail = crc32c(head + guarded, seed).to_bytes(_RECORD_CRC.size, "little")
        padding = -size & 7
        buffers += (head + tail, body, _PADDING[padding]) if padding else (head + tail, body)
    return buffers


def read_record(fetch: Fetch, offset: int, *, seed: int) -> Record | None:
    """Read the record at ``offset`` and verify every byte of it; return None if there is no valid
    one."""
    head = fetch(offset, RECORD_HEADER_BYTES)
    if len(head) < RECORD_HEADER_BYTES:
        return None
    size, kind, mark, sequence, durable = _RECORD_HEADER.unpack_from(head)
    checksum, zero = _RECORD_CRC.unpack_from(head, _RECORD_HEADER.size)
    is_run = kind in _RUNS
    largest = MAX_RUN_BYTES if is_run else _MAX_CONTROL_BYTES
    if mark != _MARK or kind not in _TYPES or not 0 < size <= largest or zero:
        return None
    body_at = offset + RECORD_HEADER_BYTES
    guarded = fetch(body_at, min(size, RUN_HEADER.size) if is_run else size)
    if checksum != crc32c(guarded, crc32c(head[: _RECORD_HEADER.size], seed)):
        return None
    body = fetch(body_at, size)
    if is_run:
        try:
            verify_run(body)
        except ProtocolError:
            return None
    return Record(RecordType(kind), sequence, durable, body, offset + record_bytes(size))


def find_durable_record(
    fetch: Fetch, offset: int, *, size: int, seed: int, sequence: int, window: int = 1 << 20
) -> int | None:
    """Return the offset of a record after ``offset`` that proves that record ``sequence`` had been
    synced.

    Such a record distinguishes damage from a torn tail. A group of records is written only when the
    group before it was synced, so within an unsynced group no record states that another one is
    durable; whatever subset of its pages a crash left behind, no such record is found. None: no
    proof.
    """
    position, blank = offset, bytes(window + RECORD_HEADER_BYTES)
    while position < size:
        data = fetch(position, window + RECORD_HEADER_BYTES)
        # Most of a journal file is unwritten, and a comparison passes zeros faster than a search.
        at = -1 if data == blank else data.find(_MARK)
        while at >= 0:
            candidate = position + at - _MARK_AT
            if candidate % 8 == 0 and candidate >= offset:
                record = read_record(fetch, candidate, seed=seed)
                if record is not None and record.sequence > sequence <= record.durable:
                    return candidate
            at = data.find(_MARK, at + 1)
        position += window
    return None
