"""Rows as record batches: columns of Arrow become those of a stored batch, without a loop over
rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.limits import MAX_KEY_BYTES, MAX_MESSAGE_BYTES
from fencelog.ledgers.record_batch import HAS_EVENT_TIME, HAS_HEADERS, HAS_KEY, check_batch
from fencelog.ledgers.record_batch.format import Buffer, batch_pieces

_FEW_CHUNKS = 16
"""The chunks of a column up to which their bytes are taken one by one: each costs some µs, and a
copy of all of them first costs as much as many."""

_INT32 = np.dtype("<i4")
_TIME = pa.timestamp("us", tz="UTC")


def route(
    rows: pa.RecordBatch, partitions: int, unkeyed: int, *, existing: int = 0
) -> NDArray[np.int64]:
    """Return the partition of each row: that of its column ``partition``, else of its key, as
    brokers choose it among ``partitions``, else ``unkeyed``. ``existing``: as many may be named, if
    that is more. Raises FencelogError(BAD_REQUEST)."""
    found = np.full(rows.num_rows, unkeyed, np.int64)
    if "key" in rows.schema.names and partitions > 1:
        keys = pc.dictionary_encode(rows["key"].cast(pa.binary()))
        hashes = [crc32c(key) % partitions for key in keys.dictionary.to_pylist()]
        places = pc.fill_null(keys.indices, len(hashes)).to_numpy(zero_copy_only=False)
        found = np.array([*hashes, unkeyed], np.int64)[places]
    if "partition" in rows.schema.names:
        column = rows["partition"]
        named = pc.is_valid(column).to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        count = max(partitions, existing)
        wrong = numbers[(numbers < 0) | (numbers >= count)]
        if wrong.size:
            raise _refused(f"the topic has {count} partitions, no {wrong[0]}")
        found = np.where(named, numbers, found)
    return found


def split(
    rows: pa.RecordBatch, partitions: NDArray[np.int64]
) -> tuple[pa.RecordBatch, list[tuple[int, int, int]]]:
    """Return the rows sorted by partition, those of one in their order; and of each partition its
    number, and the places of its first row and behind its last."""
    count = rows.num_rows
    if not count:
        return rows, []
    first = int(partitions[0])
    if (partitions == first).all():
        return rows, [(first, 0, count)]
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    ends = [*starts[1:].tolist(), count]
    parts = list(zip(numbers.tolist(), starts.tolist(), ends, strict=True))
    return rows.take(pa.array(order)), parts


def encode(rows: pa.Table) -> bytes:
    """Return these rows, as many as ``Gathered`` gives out at a time, as a record batch, for a
    broker, which checks the limits of messages. Raises FencelogError: BAD_REQUEST for a row that is
    no message."""
    return b"".join(_encode(rows))


def encode_checked(rows: pa.Table) -> list[Buffer]:
    """Return the same as pieces, views of the rows, to be joined. The limits of messages are
    checked, as they must be for what goes straight to bookies. Raises FencelogError: BAD_REQUEST,
    PAYLOAD_TOO_LARGE for a row that is no message."""
    pieces = _encode(rows)
    if not _is_within_limits(rows):
        check_batch(b"".join(pieces))
    return pieces


def _is_within_limits(rows: pa.Table) -> bool:
    """Tell whether the offsets of rows without headers rise, and no value or key is above its
    limit: that is all of what ``check_batch`` checks that Arrow's columns may have wrong."""
    names = rows.schema.names
    if "headers" in names:
        return False
    limits = {"value": MAX_MESSAGE_BYTES, "key": MAX_KEY_BYTES}
    return all(
        _are_lengths_within(rows[name], limit) for name, limit in limits.items() if name in names
    )


def _are_lengths_within(column: pa.ChunkedArray, limit: int) -> bool:
    found = pc.min_max(pc.binary_length(column)).as_py()
    return found["min"] is None or 0 <= found["min"] <= found["max"] <= limit


def _encode(rows: pa.Table) -> list[Buffer]:
    names = rows.schema.names
    value = rows["value"]
    if value.null_count:
        raise _refused("a row has no value: NULL cannot be stored, an empty value can")
    columns = 0
    buffers: list[Sequence[Buffer]] = [*_binary(value), *[()] * 10]
    if "key" in names and rows["key"].null_count < rows.num_rows:
        columns |= HAS_KEY
        buffers[2] = (_validity(rows["key"]),)
        buffers[3:5] = _binary(rows["key"])
    if "event_time" in names and rows["event_time"].null_count < rows.num_rows:
        columns |= HAS_EVENT_TIME
        times = rows["event_time"].cast(_TIME).cast(pa.int64())
        buffers[5] = (_validity(times),)
        buffers[6] = (_packed(pc.fill_null(times, 0), np.dtype("<i8")),)
    if "headers" in names:
        headers = _headers(rows["headers"].combine_chunks())
        if headers is not None:
            columns |= HAS_HEADERS
            buffers[7:12] = headers
    return batch_pieces(rows.num_rows, columns, buffers, codec=0)


def _headers(lists: pa.Array) -> list[Sequence[Buffer]] | None:
    """Return the five buffers of a column of headers; None if there is none."""
    pairs = lists.flatten()
    if not len(pairs):
        return None
    names, values = pc.struct_field(pairs, "name"), pc.struct_field(pairs, "value")
    if names.null_count or values.null_count:
        raise _refused("a header has no name or no value")
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(counts))).astype(_INT32)
    return [(ends.tobytes(),), *_binary(names), *_binary(values)]


def _binary(column: pa.Array | pa.ChunkedArray) -> tuple[Sequence[Buffer], Sequence[Buffer]]:
    """Return the offsets from 0, and the data, of a column of bytes or text: the data as views of
    Arrow's, one for each chunk."""
    ends: list[NDArray[np.int32]] = [np.zeros(1, _INT32)]
    kept: list[Buffer] = []
    size = 0
    for chunk in _chunks(column):
        filled = chunk.cast(pa.binary())
        if filled.null_count:
            filled = pc.fill_null(filled, b"")
        _, offsets, data = filled.buffers()
        places = np.frombuffer(offsets, _INT32, len(filled) + 1, filled.offset * _INT32.itemsize)
        ends.append(places[1:] + (size - places[0]))
        if data is not None and places[0] < places[-1]:
            kept.append(memoryview(data).cast("B")[places[0] : places[-1]])
        size += int(places[-1] - places[0])
    return (np.concatenate(ends).tobytes(),), kept


def _chunks(column: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
    if isinstance(column, pa.Array):
        return (column,)
    chunks: list[pa.Array] = column.chunks
    return chunks if len(chunks) <= _FEW_CHUNKS else (column.combine_chunks(),)


def _validity(column: pa.ChunkedArray) -> bytes:
    """Return Arrow's bitmap from the first bit on; empty if there is no null."""
    if not column.null_count:
        return b""
    flags = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return np.packbits(flags, bitorder="little").tobytes()


def _packed(column: pa.ChunkedArray, kind: np.dtype[Any]) -> bytes:
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers.astype(kind).tobytes()


def _refused(why: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"a row cannot be written: {why}")
