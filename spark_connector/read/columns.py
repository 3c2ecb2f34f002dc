"""The columns of a topic as a table, and stored record batches as Arrow batches.

Arrow wraps the buffers of a batch in place; only topic, partition, offset and publish time are made
here, by bulk operations of numpy: ``pa.array`` would first import pandas, which takes a worker of
Spark longer than to read a million messages.
Types are exactly those that Spark derives from its own types (``timestamp[us, UTC]``, all
nullable): Spark 4.2 and later refuse anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fencelog.ledgers.record_batch.format import HAS_EVENT_TIME, HAS_HEADERS, HAS_KEY, BatchView

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
_NO_HEADER = pa.nulls(0, HEADER)

CONSTANTS = 8
"""The repeated values that are kept: topic and partition, each in a few lengths."""


class Stretch(NamedTuple):
    """Messages of a partition: one batch, or what several were merged into. ``first_offsets``,
    ``counts`` and ``publish_times`` (µs since 1970 UTC): of each of them."""

    topic: str
    partition: int
    first_offsets: Sequence[int]
    view: BatchView
    counts: Sequence[int]
    publish_times: Sequence[int]

    @property
    def rows(self) -> int:
        return self.view.count


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order."""
    return pa.schema([(name, _COLUMNS[name].type) for name in names])


def to_arrow(stretch: Stretch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the messages as rows. The batch is wrapped, not copied, and kept alive by the result.

    Arrow checks the offsets before they are used: these are the checks of ``check_batch`` that keep
    a reader within its buffers, ten times as fast. Raises ValueError (``pa.ArrowInvalid`` is one)
    for offsets that do not fit their data.
    """
    arrays = [_COLUMNS[name].make(stretch) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- computed columns ------------------------------------------------------------------------------


def _topic(stretch: Stretch) -> pa.Array:
    return _repetition(stretch.topic, 1 << stretch.rows.bit_length()).slice(0, stretch.rows)


def _partition(stretch: Stretch) -> pa.Array:
    return _repetition(stretch.partition, 1 << stretch.rows.bit_length()).slice(0, stretch.rows)


def _offset(stretch: Stretch) -> pa.Array:
    bases = [
        first - row
        for first, row in zip(
            stretch.first_offsets, accumulate(stretch.counts, initial=0), strict=False
        )
    ]
    offsets = np.arange(bases[0], bases[0] + stretch.rows, dtype=np.int64)
    if bases[0] != bases[-1]:  # offsets rise, so otherwise there is no gap
        offsets += np.repeat(np.array(bases, np.int64) - bases[0], stretch.counts)
    return _numbers(offsets, pa.int64())


def _publish_time(stretch: Stretch) -> pa.Array:
    times = np.repeat(np.array(stretch.publish_times, np.int64), stretch.counts)
    return _numbers(times, TIMESTAMP)


@lru_cache(CONSTANTS)
def _repetition(value: int | str, rows: int) -> pa.Array:
    """Return a column of one value; those of a task share their memory."""
    if isinstance(value, int):
        return _numbers(np.full(rows, value, np.int32), pa.int32())
    text = value.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text * rows)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _numbers(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Wrap numbers, none of which is null."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


# -- stored columns --------------------------------------------------------------------------------


def _value(stretch: Stretch) -> pa.Array:
    view = stretch.view
    return _variable(pa.binary(), view.count, None, view.value_offsets, view.value_data)


def _key(stretch: Stretch) -> pa.Array:
    view = stretch.view
    if not view.columns & HAS_KEY:
        return pa.nulls(view.count, pa.binary())
    return _variable(pa.binary(), view.count, view.key_validity, view.key_offsets, view.key_data)


def _event_time(stretch: Stretch) -> pa.Array:
    view = stretch.view
    if not view.columns & HAS_EVENT_TIME:
        return pa.nulls(view.count, TIMESTAMP)
    buffers = [_validity(view.event_time_validity), pa.py_buffer(view.event_times)]
    return _checked(pa.Array.from_buffers(TIMESTAMP, view.count, buffers))


def _headers(stretch: Stretch) -> pa.Array:
    """Return the column of headers: an empty list where a message has no headers, so that queries
    need no case for null."""
    view = stretch.view
    if not view.columns & HAS_HEADERS:
        no_offsets = pa.py_buffer(bytes(4 * (view.count + 1)))
        return pa.Array.from_buffers(HEADERS, view.count, [None, no_offsets], children=[_NO_HEADER])
    total = len(view.header_name_offsets) // 4 - 1
    names = _variable(pa.string(), total, None, view.header_name_offsets, view.header_name_data)
    values = _variable(pa.binary(), total, None, view.header_value_offsets, view.header_value_data)
    pairs = pa.Array.from_buffers(HEADER, total, [None], children=[names, values])
    offsets = pa.py_buffer(view.header_list_offsets)
    lists = pa.Array.from_buffers(HEADERS, view.count, [None, offsets], children=[pairs])
    return _checked(lists)


def _variable(
    kind: pa.DataType,
    count: int,
    validity: memoryview | None,
    offsets: memoryview,
    data: memoryview,
) -> pa.Array:
    """Wrap a column of binary or text."""
    if count < 0 or len(offsets) != 4 * (count + 1):
        raise ValueError(f"{len(offsets)} bytes of offsets for {count} items")
    buffers = [_validity(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return _checked(pa.Array.from_buffers(kind, count, buffers))


def _validity(bitmap: memoryview | None) -> pa.Buffer | None:
    """Return the validity buffer. An absent bitmap means that nothing is null."""
    return pa.py_buffer(bitmap) if bitmap else None


def _checked(array: pa.Array) -> pa.Array:
    """Return the array, after a check that nothing in it points outside its buffers. Raises
    ValueError."""
    array.validate(full=True)
    return array


class _Column(NamedTuple):
    type: pa.DataType
    make: Callable[[Stretch], pa.Array]


_COLUMNS: Mapping[str, _Column] = {
    "topic": _Column(pa.string(), _topic),
    "partition": _Column(pa.int32(), _partition),
    "offset": _Column(pa.int64(), _offset),
    "key": _Column(pa.binary(), _key),
    "value": _Column(pa.binary(), _value),
    "headers": _Column(HEADERS, _headers),
    "publish_time": _Column(TIMESTAMP, _publish_time),
    "event_time": _Column(TIMESTAMP, _event_time),
}
