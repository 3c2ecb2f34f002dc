"""Stored record batches of a partition as Arrow batches of a size that suits Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.record_batch.check import open_batch
from fencelog.ledgers.record_batch.format import (
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchView,
    read_batch,
)
from fencelog.spark_connector.read.columns import Stretch, to_arrow
from fencelog.spark_connector.read.merge import InvalidBatchError, Placed, merge_batches
from fencelog.spark_connector.read.merge_large import merge_large

SMALL_BATCH_ROWS = 8 * 1024
SMALL_BATCH_BYTES = 3 * MIB // 4
"""The size that ends a group of merged batches, as SMALL_BATCH_ROWS does; a batch as large stays
alone, which spares a copy: thousand messages of 1 KB are one. Measured: from 10,000 rows or 1 MiB
on size matters little."""

STORED = {"key": HAS_KEY, "event_time": HAS_EVENT_TIME, "headers": HAS_HEADERS}
"""The columns that stored batches may lack."""


class StoredBatches(NamedTuple):
    """Batches of a partition in order: the bytes of each, its messages, the offset of the first of
    these, and its publish time in µs since 1970 UTC. ``placed``: the buffer that holds all."""

    topic: str
    partition: int
    batches: Sequence[memoryview]
    counts: Sequence[int]
    first_offsets: Sequence[int]
    publish_times: Sequence[int]
    placed: Placed | None = None


def decode(
    stored: StoredBatches, schema: pa.Schema, *, start_offset: int, end_offset: int
) -> pa.RecordBatch:
    """Return the messages with ``start_offset <= offset < end_offset``: a batch alone as it lies,
    several merged. Raises InvalidBatchError."""
    first, last = stored.first_offsets[0], stored.first_offsets[-1]
    try:
        view = _merged(stored, schema)
        stretch = Stretch(
            stored.topic,
            stored.partition,
            stored.first_offsets,
            view,
            stored.counts,
            stored.publish_times,
        )
        rows = to_arrow(stretch, schema)
    except InvalidBatchError:
        raise
    except ValueError as error:
        raise InvalidBatchError(_first_invalid(stored.batches), str(error)) from error
    before = max(0, start_offset - first)
    after = max(0, last + stored.counts[-1] - end_offset)
    return rows.slice(before, rows.num_rows - before - after) if before or after else rows


def uncompressed_bytes(batch: memoryview) -> int:
    """Return the size of a batch's body as its header has it."""
    return int.from_bytes(batch[16:20], "little")


def grouped(counts: Sequence[int], sizes: Sequence[int]) -> Iterator[range]:
    """Yield groups of neighbouring batches: a large one alone, small ones together until they are
    large. ``sizes``: bytes of the uncompressed batches."""
    begin = rows = total = 0
    for index, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        if index > begin and (count >= SMALL_BATCH_ROWS or size >= SMALL_BATCH_BYTES):
            yield range(begin, index)
            begin, rows, total = index, 0, 0
        rows += count
        total += size
        if rows >= SMALL_BATCH_ROWS or total >= SMALL_BATCH_BYTES:
            yield range(begin, index + 1)
            begin, rows, total = index + 1, 0, 0
    if begin < len(counts):
        yield range(begin, len(counts))


def _merged(stored: StoredBatches, schema: pa.Schema) -> BatchView:
    if len(stored.batches) > 1:
        flags = sum(flag for name, flag in STORED.items() if name in schema.names)
        large = merge_large(stored.batches, stored.counts, flags)
        return large or merge_batches(stored.batches, stored.counts, flags, placed=stored.placed)
    try:
        _, view = read_batch(stored.batches[0])
    except FencelogError as error:
        raise InvalidBatchError(0, error.detail) from error
    if view.count != stored.counts[0]:
        raise InvalidBatchError(0, f"{view.count} messages, its header says {stored.counts[0]}")
    return view


def _first_invalid(batches: Sequence[memoryview]) -> int:
    """Return the number of the batch that does not pass all checks, where Arrow has refused the
    columns of all."""
    for index, batch in enumerate(batches):
        try:
            open_batch(batch)
        except FencelogError:
            return index
    return 0
