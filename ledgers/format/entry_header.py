"""The broker's header before a record batch: the payload of a topic's entry is header and batch.

Little-endian, version 1:

     0  u8  version = 1
     1  u8  kind: 0 messages, 1 control, 2 state, 3 compacted
     2  u16 bytes of this header, a multiple of 8: the batch begins here
     4  u32 messages in the batch
     8  u64 number of the first message within the ledger (0, 1, 2, …)
    16  i64 publish time, µs since 1970 UTC
    24  u32 sequence ranges
    28  u32 1 + the latest entry before this one in the ledger that has sequence ranges (0: none)
    32  sequence ranges, 40 bytes each, in the order of the batch's messages:
         0  u32 messages
         4  u16 kind: 0 no producer, 1 sequence, 2 idempotency key
         6  u16 0
         8  u64 producer epoch                          of an idempotency key: 16 bytes, the
        16  u64 sequence of the range's first message        digest of the contents (0: unknown)
        24  16 bytes: digest of the producer's id, or of the key

Numbers count within the *ledger*; the log's list of ledgers holds each one's base offset, so a
message's offset is base + number, and a ledger that was written elsewhere can join a log unchanged.
The link at 28 lets a takeover find the entries that name producers, or that there are none, from
the last entry backwards.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError

VERSION = 1
HEADER = struct.Struct("<BBHIQqII")
RANGE = struct.Struct("<IHHQQ16s")
_KEY_RANGE = struct.Struct("<IHH16s16s")
KIND_MESSAGES = 0
KIND_CONTROL = 1
KIND_STATE = 2
KIND_COMPACTED = 3

RANGE_NO_PRODUCER = 0
RANGE_SEQUENCE = 1
RANGE_KEY = 2

MAX_RANGES = 1024
"""The largest number of sequence ranges in one entry: 40 KiB of header, which has 16 bits for its
size."""

Buffer = bytes | bytearray | memoryview


class SequenceRange(NamedTuple):
    """A range of ``rows`` consecutive messages of one producer. ``id``: 16 bytes
    (``producer_digest``); ``epoch`` and ``sequence`` (of the first message) have a meaning for
    RANGE_SEQUENCE only. ``contents``: the digest of what the messages of one append contain, or
    empty if it is unknown; the log keeps it for RANGE_KEY only."""

    rows: int
    kind: int
    id: bytes = bytes(16)
    epoch: int = 0
    sequence: int = 0
    contents: bytes = b""


def producer_digest(name: bytes) -> bytes:
    """Return the 16 bytes that represent a producer's id or an idempotency key in the log."""
    return blake2b(name, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The header of an entry. ``first_number``: within the ledger; ``publish_time_us``: since 1970
    UTC; ``previous_range_entry``: -1 if no earlier entry of the ledger names a producer."""

    kind: int
    header_bytes: int
    count: int
    first_number: int
    publish_time_us: int
    range_count: int = 0
    previous_range_entry: int = -1

    @property
    def next_number(self) -> int:
        return self.first_number + self.count


def header_size(range_count: int) -> int:
    """Return the size in bytes of a header with ``range_count`` sequence ranges."""
    return HEADER.size + range_count * RANGE.size


def pack_entry(
    batch: bytes,
    *,
    count: int,
    first_number: int,
    publish_time_us: int,
    kind: int = KIND_MESSAGES,
    ranges: Sequence[SequenceRange] = (),
    previous_range_entry: int = -1,
) -> bytes:
    """Return the payload of an entry: its header (``pack_header``), and the batch."""
    header = pack_header(
        count=count,
        first_number=first_number,
        publish_time_us=publish_time_us,
        kind=kind,
        ranges=ranges,
        previous_range_entry=previous_range_entry,
    )
    return header + batch


def pack_header(
    *,
    count: int,
    first_number: int,
    publish_time_us: int,
    kind: int = KIND_MESSAGES,
    ranges: Sequence[SequenceRange] = (),
    previous_range_entry: int = -1,
) -> bytes:
    """Return the header of an entry, for callers that do not copy the batch to put it behind.
    ``ranges``: at most MAX_RANGES, which cover all its messages, or none."""
    size, link = header_size(len(ranges)) if ranges else HEADER.size, previous_range_entry + 1
    header = HEADER.pack(
        VERSION, kind, size, count, first_number, publish_time_us, len(ranges), link
    )
    return b"".join((header, *map(_pack_range, ranges))) if ranges else header


def read_entry_header(payload: Buffer) -> EntryHeader:
    """Return the header of an entry's payload; the batch is ``payload[header.header_bytes:]``.

    Raises FencelogError(CORRUPT): the entry passed its digest, so its writer wrote these bytes.
    """
    if len(payload) < HEADER.size:
        raise _corrupt(f"{len(payload)} bytes")
    version, kind, size, count, first, publish_time, ranges, link = HEADER.unpack_from(payload)
    if version != VERSION:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, f"entry header version {version}")
    if kind > KIND_COMPACTED or size != header_size(ranges) or size > len(payload):
        raise _corrupt(f"kind {kind}, header of {size} bytes, {ranges} ranges in {len(payload)}")
    return EntryHeader(kind, size, count, first, publish_time, ranges, link - 1)


def read_ranges(payload: Buffer, header: EntryHeader) -> list[SequenceRange]:
    """Return the sequence ranges of an entry whose header was read. Raises
    FencelogError(CORRUPT)."""
    if not header.range_count:
        return []
    packed = memoryview(payload)[HEADER.size : header.header_bytes]
    ranges = [
        _key_range(packed[RANGE.size * index :])
        if kind == RANGE_KEY
        else SequenceRange(rows, kind, id_, epoch, sequence)
        for index, (rows, kind, _, epoch, sequence, id_) in enumerate(RANGE.iter_unpack(packed))
    ]
    if sum(sequences.rows for sequences in ranges) != header.count:
        raise _corrupt("its sequence ranges do not cover its messages")
    return ranges


def _pack_range(sequences: SequenceRange) -> bytes:
    if sequences.kind == RANGE_KEY:
        return _KEY_RANGE.pack(sequences.rows, RANGE_KEY, 0, sequences.contents, sequences.id)
    return RANGE.pack(
        sequences.rows, sequences.kind, 0, sequences.epoch, sequences.sequence, sequences.id
    )


def _key_range(packed: Buffer) -> SequenceRange:
    rows, kind, _, contents, id_ = _KEY_RANGE.unpack_from(packed)
    return SequenceRange(rows, kind, id_, contents=contents if any(contents) else b"")


def _corrupt(what: str) -> FencelogError:
    return FencelogError(ErrorCode.CORRUPT, f"entry header is not valid: {what}")
