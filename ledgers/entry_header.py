"""The broker's header before a record batch: the payload of a topic's entry is header and batch.

Little-endian, version 1:

     0  u8  version = 1
     1  u8  kind: 0 messages, 1 control
     2  u16 bytes of this header, a multiple of 8: the batch begins here
     4  u32 messages in the batch
     8  u64 number of the first message within the ledger (0, 1, 2, …)
    16  i64 publish time, µs since 1970 UTC
    24  u32 producer runs
    28  u32 0
    32  producer runs, of a fixed size each, zero-padded to 8 (none is written yet)

Numbers count within the *ledger*; the log's list of ledgers holds each one's base offset, so a
message's offset is base + number, and a ledger that was written elsewhere can join a log unchanged.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError

VERSION = 1
HEADER = struct.Struct("<BBHIQqII")
KIND_MESSAGES = 0
KIND_CONTROL = 1

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """``first_number`` within the ledger; ``publish_time_us`` since 1970 UTC."""

    kind: int
    header_bytes: int
    count: int
    first_number: int
    publish_time_us: int

    @property
    def next_number(self) -> int:
        return self.first_number + self.count


def pack_entry(
    batch: bytes, *, count: int, first_number: int, publish_time_us: int, kind: int = KIND_MESSAGES
) -> bytes:
    """The payload of an entry."""
    return b"".join(
        (
            HEADER.pack(VERSION, kind, HEADER.size, count, first_number, publish_time_us, 0, 0),
            batch,
        )
    )


def read_entry_header(payload: Buffer) -> EntryHeader:
    """The header of an entry's payload; the batch is ``payload[header.header_bytes:]``.

    Raises FencelogError(CORRUPT): the entry passed its digest, so its writer wrote it so.
    """
    if len(payload) < HEADER.size:
        raise _corrupt(f"{len(payload)} bytes")
    version, kind, size, count, first, publish_time, _runs, zero = HEADER.unpack_from(payload)
    if version != VERSION:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, f"entry header version {version}")
    if kind > KIND_CONTROL or size % 8 or not HEADER.size <= size <= len(payload) or zero:
        raise _corrupt(f"kind {kind}, header of {size} bytes in {len(payload)}")
    return EntryHeader(kind, size, count, first, publish_time)


def _corrupt(what: str) -> FencelogError:
    return FencelogError(ErrorCode.CORRUPT, f"entry header is not valid: {what}")
