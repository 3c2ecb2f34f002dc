"""The entries of a compacted view: messages with their original offsets and publish times.

The payload of an entry of kind 3 (``ledgers.entry_header``), little-endian:

     0  the entry's header, 32 bytes; its "first number" is the *offset* of the first message, its
        publish time that of the last one, and it has no sequence ranges
    32  u64 offsets[count], rising
     …  i64 publish times[count], µs since 1970 UTC, never falling
     …  a record batch of the messages (``ledgers.record_batch``), at a multiple of 8

The offsets of a view rise from entry to entry, so both an offset and a time are found by bisection,
as in a ledger of the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelog.broker.read.stored import CompactedBatch
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_COMPACTED, EntryHeader, pack_entry
from fencelog.ledgers.record_batch import Message, batch_count, encode_batch
from fencelog.ledgers.record_batch.format import int_array, pack_ints


def pack_compacted(
    offsets: Sequence[int], publish_times: Sequence[int], messages: Sequence[Message]
) -> bytes:
    """Return the payload of an entry. Raises FencelogError(BAD_REQUEST, PAYLOAD_TOO_LARGE) for more
    than a batch may hold."""
    columns = pack_ints("q", offsets) + pack_ints("q", publish_times)
    return pack_entry(
        columns + encode_batch(messages),
        count=len(messages),
        first_number=offsets[0],
        publish_time_us=publish_times[-1],
        kind=KIND_COMPACTED,
    )


def read_compacted(payload: memoryview, header: EntryHeader) -> CompactedBatch:
    """Return the messages of an entry, which passed its digest, so damage comes from its writer.
    Raises FencelogError(CORRUPT)."""
    column = 8 * header.count
    times_at = header.header_bytes + column
    batch = payload[times_at + column :]
    if header.kind != KIND_COMPACTED or len(batch) < 8 or batch_count(batch) != header.count:
        raise FencelogError(
            ErrorCode.CORRUPT, f"no entry of a compacted view: kind {header.kind}, {header.count}"
        )
    offsets = int_array("q", payload[header.header_bytes : times_at])
    times = int_array("q", payload[times_at : times_at + column])
    return CompactedBatch(offsets[0], header.count, times[-1], batch, offsets, times)
