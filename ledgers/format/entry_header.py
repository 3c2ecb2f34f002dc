"""The broker's header before a record batch: the payload of a topic's entry is header and batch.

Little-endian, version 1:

     0  u8  version = 1
     1  u8  kind: 0 messages, 1 control, 2 state, 3 compacted
     2  u16 bytes of this header, a multiple of 8: the batch begins here
     4  u32 messages in the batch
     8  u64 number of the first message within the ledger (0, 1, 2, …)
    16  i64 publish time, µs since 1970 UTC
    24  u32 producer runs
    28  u32 1 + the latest entry before this one in the ledger that has producer runs (0: none)
    32  producer runs, 40 bytes each, in the order of the batch's messages:
         0  u32 messages
         4  u16 kind: 0 no producer, 1 sequence, 2 idempotency key
         6  u16 0
         8  u64 producer epoch                          of an idempotency key: 16 bytes, the
        16  u64 sequence of the run's first message        digest of the contents (0: unknown)
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
RUN = struct.Struct("<IHHQQ16s")
_KEY_RUN = struct.Struct("<IHH16s16s")
KIND_MESSAGES = 0
KIND_CONTROL = 1
KIND_STATE = 2
KIND_COMPACTED = 3

RUN_NOBODY = 0
RUN_SEQUENCE = 1
RUN_KEY = 2

MAX_RUNS = 1024
"""The largest number of producer runs in one entry: 40 KiB of header, which has 16 bits for its
size."""

Buffer = bytes | bytearray | memoryview


class SequenceRange(NamedTuple):
    """A range of ``rows`` consecutive messages of one producer. ``id``: 16 bytes
    (``producer_digest``); ``epoch`` and ``sequence`` (of the first message) have a meaning for
    RUN_SEQUENCE only. ``contents``: the digest of what the messages of one append contain, or empty
    if it is unknown; the log keeps it for RUN_KEY only."""

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
    UTC; ``previous_run_entry``: -1 if no earlier entry of the ledger names a producer."""

    kind: int
    header_bytes: int
    count: int
    first_number: int
    publish_time_us: int
    run_count: int = 0
    previous_run_entry: int = -1

    @property
    def next_number(self) -> int:
        return self.first_number + self.count


def header_size(run_count: int) -> int:
    """Return the size in bytes of the header before a batch with ``run_count`` producer runs."""
    return HEADER.size + run_count * RUN.size


def pack_entry(
    batch: bytes,
    *,
    count: int,
    first_number: int,
    publish_time_us: int,
    kind: int = KIND_MESSAGES,
    runs: Sequence[SequenceRange] = (),
    previous_run_entry: int = -1,
) -> bytes:
    """Return the payload of an entry. ``runs``: at most MAX_RUNS, which cover all its messages, or
    none."""
    size, link = header_size(len(runs)) if runs else HEADER.size, previous_run_entry + 1
    header = HEADER.pack(VERSION, kind, size, count, first_number, publish_time_us, len(runs), link)
    if not runs:
        return header + batch
    return b"".join((header, *map(_pack_run, runs), batch))


def read_entry_header(payload: Buffer) -> EntryHeader:
    """Return the header of an entry's payload; the batch is ``payload[header.header_bytes:]``.

    Raises FencelogError(CORRUPT): the entry passed its digest, so its writer wrote these bytes.
    """
    if len(payload) < HEADER.size:
        raise _corrupt(f"{len(payload)} bytes")
    version, kind, size, count, first, publish_time, runs, link = HEADER.unpack_from(payload)
    if version != VERSION:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, f"entry header version {version}")
    if kind > KIND_COMPACTED or size != header_size(runs) or size > len(payload):
        raise _corrupt(f"kind {kind}, header of {size} bytes, {runs} runs in {len(payload)}")
    return EntryHeader(kind, size, count, first, publish_time, runs, link - 1)


def read_runs(payload: Buffer, header: EntryHeader) -> list[SequenceRange]:
    """Return the producer runs of an entry whose header was read. Raises FencelogError(CORRUPT)."""
    if not header.run_count:
        return []
    packed = memoryview(payload)[HEADER.size : header.header_bytes]
    runs = [
        _key_run(packed[RUN.size * index :])
        if kind == RUN_KEY
        else SequenceRange(rows, kind, id_, epoch, sequence)
        for index, (rows, kind, _, epoch, sequence, id_) in enumerate(RUN.iter_unpack(packed))
    ]
    if sum(run.rows for run in runs) != header.count:
        raise _corrupt("its producer runs do not cover its messages")
    return runs


def _pack_run(run: SequenceRange) -> bytes:
    if run.kind == RUN_KEY:
        return _KEY_RUN.pack(run.rows, RUN_KEY, 0, run.contents, run.id)
    return RUN.pack(run.rows, run.kind, 0, run.epoch, run.sequence, run.id)


def _key_run(packed: Buffer) -> SequenceRange:
    rows, kind, _, contents, id_ = _KEY_RUN.unpack_from(packed)
    return SequenceRange(rows, kind, id_, contents=contents if any(contents) else b"")


def _corrupt(what: str) -> FencelogError:
    return FencelogError(ErrorCode.CORRUPT, f"entry header is not valid: {what}")
