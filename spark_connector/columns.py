"""The columns of a topic as a table, and stored record batches as Arrow batches.

Arrow wraps the buffers of a stored batch where they lie; only partition, offset and publish time
are made here, by bulk operations. Types are exactly those that Spark derives from its own types
(``timestamp[us, UTC]``, all nullable): Spark 4.2 and later refuse anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fencelog.ledgers.batch_format import HAS_EVENT_TIME, HAS_HEADERS, HAS_KEY, BatchView
from fencelog.ledgers.limits import MAX_BATCH_MESSAGES

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))

_NUMBERS = pa.array(range(MAX_BATCH_MESSAGES), pa.int64())
"""0, 1, 2, …: offsets are the base offset added to a part of it."""


class Place(NamedTuple):
    """Where a batch stands in the topic. ``publish_time_us`` since 1970 UTC."""

    partition: int
    base_offset: int
    publish_time_us: int


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns, in this order."""
    return pa.schema([(name, _COLUMNS[name].type) for name in names])


def to_arrow(view: BatchView, place: Place, schema: pa.Schema) -> pa.RecordBatch:
    """The messages of a batch as rows. Keeps the batch's bytes alive, copies none.

    Offsets are checked by Arrow before anything follows them: the checks of ``check_batch`` that
    keep a reader within its buffers, ten times as fast. Raises ValueError (``pa.ArrowInvalid`` is
    one) for offsets that do not fit their data.
    """
    arrays = [_COLUMNS[name].make(view, place) for name in schema.names]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    batch.validate(full=True)
    return batch


def _partition(view: BatchView, place: Place) -> pa.Array:
    return pa.repeat(pa.scalar(place.partition, pa.int32()), view.count)


def _offset(view: BatchView, place: Place) -> pa.Array:
    return pc.add(_NUMBERS.slice(0, view.count), place.base_offset)


def _key(view: BatchView, _place: Place) -> pa.Array:
    if not view.columns & HAS_KEY:
        return pa.nulls(view.count, pa.binary())
    return _variable(pa.binary(), view.count, view.key_validity, view.key_offsets, view.key_data)


def _value(view: BatchView, _place: Place) -> pa.Array:
    return _variable(pa.binary(), view.count, None, view.value_offsets, view.value_data)


def _headers(view: BatchView, _place: Place) -> pa.Array:
    """An empty list where a message has no headers, so that queries need no case for null."""
    if not view.columns & HAS_HEADERS:
        offsets = pa.py_buffer(bytes(4 * (view.count + 1)))
        nothing = pa.array([], type=HEADER)
        return pa.Array.from_buffers(HEADERS, view.count, [None, offsets], children=[nothing])
    total = len(view.header_name_offsets) // 4 - 1
    names = _variable(pa.string(), total, None, view.header_name_offsets, view.header_name_data)
    values = _variable(pa.binary(), total, None, view.header_value_offsets, view.header_value_data)
    pairs = pa.Array.from_buffers(HEADER, total, [None], children=[names, values])
    offsets = pa.py_buffer(view.header_list_offsets)
    return pa.Array.from_buffers(HEADERS, view.count, [None, offsets], children=[pairs])


def _publish_time(view: BatchView, place: Place) -> pa.Array:
    return pa.repeat(pa.scalar(place.publish_time_us, TIMESTAMP), view.count)


def _event_time(view: BatchView, _place: Place) -> pa.Array:
    if not view.columns & HAS_EVENT_TIME:
        return pa.nulls(view.count, TIMESTAMP)
    buffers = [_validity(view.event_time_validity), pa.py_buffer(view.event_times)]
    return pa.Array.from_buffers(TIMESTAMP, view.count, buffers)


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
    return pa.Array.from_buffers(kind, count, buffers)


def _validity(bitmap: memoryview | None) -> pa.Buffer | None:
    """An absent bitmap means that nothing is null."""
    return pa.py_buffer(bitmap) if bitmap else None


class _Column(NamedTuple):
    type: pa.DataType
    make: Callable[[BatchView, Place], pa.Array]


_COLUMNS: Mapping[str, _Column] = {
    "partition": _Column(pa.int32(), _partition),
    "offset": _Column(pa.int64(), _offset),
    "key": _Column(pa.binary(), _key),
    "value": _Column(pa.binary(), _value),
    "headers": _Column(HEADERS, _headers),
    "publish_time": _Column(TIMESTAMP, _publish_time),
    "event_time": _Column(TIMESTAMP, _event_time),
}
