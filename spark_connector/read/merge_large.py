"""The merging of a few large record batches into one: their data are copied once, whole.

``merge`` reads headers and offsets of thousands of small batches together, which takes several
copies of them. For batches of some hundred messages a loop over batches costs less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.record_batch.format import (
    BODY_START,
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    HEADER,
    BatchView,
    read_batch,
)

LARGE_BATCH_MESSAGES = 200
"""The mean number of messages from which on batches are large. Measured: from 100 to 400 on it
matters little."""

_ABSENT = memoryview(b"")
_FLAGS, _KEY_VALIDITY, _TIME_VALIDITY = 2, 10, 13
"""The places of fields in a batch's header: its columns, the lengths of the bitmaps."""

Column = tuple[memoryview, memoryview]
"""The offsets and the data of a column."""


def merge_large(
    batches: Sequence[memoryview], counts: Sequence[int], columns: int
) -> BatchView | None:
    """Return the messages of all batches as one batch with the wanted columns (flags like HAS_KEY)
    that they have. ``counts``: the messages that each should have.

    The offsets of each batch span its data; that they rise in between is left to Arrow. None: they
    are small, differ in their columns, have nulls or headers, or one of them is not valid:
    ``merge_batches`` merges them, or finds what is wrong.
    """
    if sum(counts) < LARGE_BATCH_MESSAGES * len(batches):
        return None
    present = _common_columns(batches, columns)
    if present is None:
        return None
    try:
        views = [read_batch(batch)[1] for batch in batches]
        if [view.count for view in views] != list(counts):
            return None
        values = _joined([(view.value_offsets, view.value_data) for view in views], counts)
        keys, times = (_ABSENT, _ABSENT), _ABSENT
        if present & HAS_KEY:
            keys = _joined([(view.key_offsets, view.key_data) for view in views], counts)
        if present & HAS_EVENT_TIME:
            times = _joined_times([view.event_times for view in views], counts)
    except (FencelogError, ValueError):
        return None
    none = _ABSENT
    return BatchView(
        sum(counts), present, *values, none, *keys, none, times, none, none, none, none, none
    )


def _common_columns(batches: Sequence[memoryview], wanted: int) -> int | None:
    """Return the wanted columns that all batches have by their headers; None if they differ, or if
    one has headers or a bitmap of nulls."""
    if min(map(len, batches)) < BODY_START:
        return None
    headers = [HEADER.unpack_from(batch) for batch in batches]
    found = {header[_FLAGS] & wanted for header in headers}
    has_nulls = any(header[_KEY_VALIDITY] or header[_TIME_VALIDITY] for header in headers)
    if len(found) > 1 or has_nulls:
        return None
    columns = int(found.pop())
    return None if columns & HAS_HEADERS else columns


def _joined(columns: Sequence[Column], counts: Sequence[int]) -> Column:
    """Return columns as one. Raises ValueError if the offsets of one do not span its data."""
    ends: list[NDArray[np.int32]] = [np.zeros(1, "<i4")]
    size = 0
    for (offsets, data), count in zip(columns, counts, strict=True):
        places = np.frombuffer(offsets, "<i4")
        if len(places) != count + 1 or places[0] != 0 or places[-1] != len(data):
            raise ValueError(f"{len(places)} offsets of {count} items in {len(data)} bytes")
        ends.append(places[1:] + np.int32(size))
        size += len(data)
    data = memoryview(b"".join([data for _, data in columns]))
    return np.concatenate(ends).data.cast("B"), data


def _joined_times(columns: Sequence[memoryview], counts: Sequence[int]) -> memoryview:
    for times, count in zip(columns, counts, strict=True):
        if len(times) != 8 * count:
            raise ValueError(f"{len(times)} bytes for the event times of {count} messages")
    return memoryview(b"".join(columns))
