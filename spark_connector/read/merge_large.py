"""The merging of a few large record batches into one: their data are copied once, whole.

``merge`` reads headers and offsets of thousands of small batches together, which takes several
copies of them. For batches of some hundred messages a loop over batches costs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.record_batch.format import (
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchView,
    body_of,
    read_header,
)

LARGE_BATCH_MESSAGES = 200
"""The mean number of messages from which on batches are large. Measured: from 100 to 400 on it
matters little."""

_ABSENT = memoryview(b"")
_VALUES, _KEY_VALIDITY, _KEYS, _TIME_VALIDITY, _TIMES = 0, 2, 3, 5, 6
"""The numbers of buffers of a batch; of a column with data, that of its offsets."""

Column = tuple[memoryview, memoryview]
"""The offsets and the data of a column."""


class _Opened(NamedTuple):
    """A batch whose header and checksum are right: the lengths of its buffers, unpadded, and the
    body that holds them."""

    messages: int
    columns: int
    lengths: Sequence[int]
    body: memoryview

    def start(self, buffer: int) -> int:
        """Return where a buffer begins in the body."""
        return sum([(length + 7) & ~7 for length in self.lengths[:buffer]])


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
    try:
        opened = [_open(batch) for batch in batches]
        if [batch.messages for batch in opened] != list(counts):
            return None
        present = _common_columns(opened, columns)
        if present is None:
            return None
        values = _joined(opened, _VALUES)
        keys = _joined(opened, _KEYS) if present & HAS_KEY else (_ABSENT, _ABSENT)
        times = _joined_times(opened) if present & HAS_EVENT_TIME else _ABSENT
    except (FencelogError, ValueError):
        return None
    none = _ABSENT
    return BatchView(
        sum(counts), present, *values, none, *keys, none, times, none, none, none, none, none
    )


def _open(batch: memoryview) -> _Opened:
    info, lengths = read_header(batch)
    return _Opened(info.count, info.columns, lengths, body_of(batch, info))


def _common_columns(opened: Sequence[_Opened], wanted: int) -> int | None:
    """Return the wanted columns that all batches have; None if they differ, or if one has headers
    or a bitmap of nulls."""
    found = {batch.columns & wanted for batch in opened}
    has_nulls = any(
        batch.lengths[_KEY_VALIDITY] or batch.lengths[_TIME_VALIDITY] for batch in opened
    )
    if len(found) > 1 or has_nulls:
        return None
    columns = found.pop()
    return None if columns & HAS_HEADERS else columns


def _joined(opened: Sequence[_Opened], buffer: int) -> Column:
    """Return a column of all batches as one. Raises ValueError if the offsets of one do not span
    its data."""
    ends = np.zeros(sum([batch.messages for batch in opened]) + 1, "<i4")
    parts: list[memoryview] = []
    row = size = 0
    for batch in opened:
        count, begin = batch.messages, batch.start(buffer)
        offsets_bytes, data_bytes = batch.lengths[buffer : buffer + 2]
        if offsets_bytes != 4 * (count + 1):
            raise ValueError(f"{offsets_bytes} bytes of offsets for {count} items")
        offsets = np.frombuffer(batch.body, "<i4", count + 1, begin)
        if offsets[0] != 0 or offsets[-1] != data_bytes:
            raise ValueError(f"offsets that do not span {data_bytes} bytes")
        np.add(offsets[1:], size, out=ends[row + 1 : row + 1 + count])
        data = begin + ((offsets_bytes + 7) & ~7)
        parts.append(batch.body[data : data + data_bytes])
        row, size = row + count, size + data_bytes
    return ends.data.cast("B"), memoryview(b"".join(parts))


def _joined_times(opened: Sequence[_Opened]) -> memoryview:
    parts: list[memoryview] = []
    for batch in opened:
        begin, size = batch.start(_TIMES), batch.lengths[_TIMES]
        if size != 8 * batch.messages:
            raise ValueError(f"{size} bytes for the event times of {batch.messages} messages")
        parts.append(batch.body[begin : begin + size])
    return memoryview(b"".join(parts))
