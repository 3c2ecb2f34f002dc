"""The decoding of some messages of a stored batch, without the others."""

from __future__ import annotations

from itertools import pairwise

from fencelog.broker.read.stored import StoredBatch
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import (
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    Message,
    read_batch,
)
from fencelog.ledgers.record_batch.format import unpack_ints

DELIVER_AT = "fencelog-deliver-at"
"""The header that delays delivery until this time, µs since 1970 UTC as decimal text."""
REPLAY_FOR = "fencelog-replay-for"
"""The header that restricts the message to the subscription of this name."""

_MARK = b"fencelog-"


class OpenedBatch:
    """A batch that passed ``check_batch`` when it was appended."""

    def __init__(self, stored: StoredBatch) -> None:
        """Open a batch. Raises FencelogError(CORRUPT)."""
        self.stored = stored
        try:
            _, self._view = read_batch(stored.batch)
        except FencelogError as error:
            raise FencelogError(
                ErrorCode.CORRUPT, f"the batch at offset {stored.base_offset}: {error.detail}"
            ) from error
        self.has_marks = _MARK in bytes(self._view.header_name_data)
        """The possible presence of headers that control delivery."""

    def messages(self, first: int, end: int) -> list[Message]:
        """Return the messages from offset ``first`` to before ``end``."""
        view, base = self._view, self.stored.base_offset
        low, high = first - base, end - base
        values = _slices(view.value_offsets, view.value_data, low, high)
        if not view.columns:
            return [Message(value) for value in values]
        count = high - low
        keys: list[bytes | None] = [None] * count
        if view.columns & HAS_KEY:
            keys = list(_slices(view.key_offsets, view.key_data, low, high))
            _clear_nulls(keys, view.key_validity, low)
        times: list[int | None] = [None] * count
        if view.columns & HAS_EVENT_TIME:
            times = list(unpack_ints("q", view.event_times[8 * low : 8 * high]))
            _clear_nulls(times, view.event_time_validity, low)
        headers: list[tuple[tuple[str, bytes], ...]] = [()] * count
        if view.columns & HAS_HEADERS:
            headers = self._headers(low, high)
        return list(map(Message, values, keys, times, headers))

    def _headers(self, low: int, high: int) -> list[tuple[tuple[str, bytes], ...]]:
        view = self._view
        bounds = unpack_ints("i", view.header_list_offsets[4 * low : 4 * high + 4])
        first, last = bounds[0], bounds[-1]
        names = _slices(view.header_name_offsets, view.header_name_data, first, last)
        values = _slices(view.header_value_offsets, view.header_value_data, first, last)
        pairs = [(str(name, "utf-8"), value) for name, value in zip(names, values, strict=True)]
        return [tuple(pairs[start - first : end - first]) for start, end in pairwise(bounds)]


def _slices(offsets: memoryview, data: memoryview, low: int, high: int) -> list[bytes]:
    bounds = unpack_ints("i", offsets[4 * low : 4 * high + 4])
    start = bounds[0]
    whole = bytes(data[start : bounds[-1]])
    return [whole[first - start : end - start] for first, end in pairwise(bounds)]


def _clear_nulls(items: list[bytes | None] | list[int | None], bits: memoryview, low: int) -> None:
    """Replace nulls by None. ``bits``: Arrow's validity bitmap of the whole column; empty if there
    is no null."""
    if bits:
        for place in range(len(items)):
            at = low + place
            if not bits[at >> 3] >> (at & 7) & 1:
                items[place] = None
