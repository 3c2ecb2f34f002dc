"""The messages of a record batch, some at a time, so that a large one is never decoded as a
whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fencelog.ledgers.record_batch.check import open_batch
from fencelog.ledgers.record_batch.format import (
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchView,
    Buffer,
    Message,
    unpack_ints,
)


def message_windows(batch: Buffer, size: int, *, start: int = 0) -> Iterator[list[Message]]:
    """Yield messages from the one numbered ``start`` on, ``size`` at a time.

    All checks of the batch are made at the first step. Raises FencelogError as ``decode_batch``.
    """
    _, view = open_batch(batch)
    for first in range(start, view.count, size):
        yield messages_of(view, first, min(first + size, view.count))


def messages_of(view: BatchView, first: int, end: int) -> list[Message]:
    """Return messages ``first`` to ``end`` of a batch that was checked."""
    values = _slices(view.value_offsets, view.value_data, first, end)
    if not view.columns:
        return list(map(Message, values))
    count = end - first
    keys: list[Any] = [None] * count
    if view.columns & HAS_KEY:
        keys = _slices(view.key_offsets, view.key_data, first, end)
        keys = _with_nulls(keys, view.key_validity, first)
    times: list[Any] = [None] * count
    if view.columns & HAS_EVENT_TIME:
        times = unpack_ints("q", view.event_times[8 * first : 8 * end])
        times = _with_nulls(times, view.event_time_validity, first)
    headers: list[Any] = [()] * count
    if view.columns & HAS_HEADERS:
        headers = _headers(view, first, end)
    return list(map(Message, values, keys, times, headers))


def _slices(offsets: memoryview, data: memoryview, first: int, end: int) -> list[bytes]:
    bounds = unpack_ints("i", offsets[4 * first : 4 * (end + 1)])
    begin = bounds[0]
    whole = bytes(data[begin : bounds[-1]])
    return [whole[a - begin : b - begin] for a, b in pairwise(bounds)]


def _with_nulls(items: list[Any], validity: memoryview, first: int) -> list[Any]:
    if not validity:
        return items
    end = first + len(items)
    bits = int.from_bytes(validity[first // 8 : (end + 7) // 8], "little") >> first % 8
    return [item if bits >> n & 1 else None for n, item in enumerate(items)]


def _headers(view: BatchView, first: int, end: int) -> list[tuple[tuple[str, bytes], ...]]:
    bounds = unpack_ints("i", view.header_list_offsets[4 * first : 4 * (end + 1)])
    begin, last = bounds[0], bounds[-1]
    names = _slices(view.header_name_offsets, view.header_name_data, begin, last)
    values = _slices(view.header_value_offsets, view.header_value_data, begin, last)
    pairs = list(zip([str(name, "utf-8") for name in names], values, strict=True))
    return [tuple(pairs[a - begin : b - begin]) for a, b in pairwise(bounds)]
