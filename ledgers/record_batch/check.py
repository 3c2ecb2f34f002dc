"""The checks of a record batch before it is trusted: by a broker, and by any reader that wraps it.

Arrow trusts its offsets, so a batch with wrong ones would make a reader look outside its buffers.
All checks are bulk operations that run in C: 100,000 messages take a few ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_HEADER_BYTES, MAX_HEADERS, MAX_KEY_BYTES, MAX_MESSAGE_BYTES
from fencelog.ledgers.record_batch.format import (
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    BatchInfo,
    BatchView,
    Buffer,
    Message,
    read_batch,
    unpack_ints,
)

_CONTINUATION = frozenset(range(0x80, 0xC0))
"""The bytes that do not begin a UTF-8 character."""


def check_batch(data: Buffer) -> BatchInfo:
    """Check a batch completely, without a loop over its messages.

    Raises FencelogError: BAD_REQUEST naming the column, PAYLOAD_TOO_LARGE for a message over a
    limit.
    """
    info, _ = open_batch(data)
    return info


def open_batch(data: Buffer) -> tuple[BatchInfo, BatchView]:
    """Check a batch as ``check_batch`` does; returns also its buffers, which may be wrapped from
    then on."""
    info, view = read_batch(data)
    values = _offsets("value", view.value_offsets, info.count, len(view.value_data))
    _limit("value", values, len(view.value_data), MAX_MESSAGE_BYTES)
    _check_keys(view)
    _check_event_times(view)
    _check_headers(view)
    return info, view


def decode_batch(data: Buffer) -> list[Message]:
    """Return the messages of a batch, with all checks made. Raises FencelogError as
    ``check_batch``."""
    _, view = open_batch(data)
    columns = (view.values(), view.keys(), view.event_time_list(), view.headers())
    return list(map(Message._make, zip(*columns, strict=True)))


def _check_keys(view: BatchView) -> None:
    if not view.columns & HAS_KEY:
        _absent("key", view.key_validity, view.key_offsets, view.key_data)
        return
    _check_validity("key", view.key_validity, view.count)
    keys = _offsets("key", view.key_offsets, view.count, len(view.key_data))
    _limit("key", keys, len(view.key_data), MAX_KEY_BYTES)


def _check_event_times(view: BatchView) -> None:
    if not view.columns & HAS_EVENT_TIME:
        _absent("event time", view.event_time_validity, view.event_times)
        return
    _check_validity("event time", view.event_time_validity, view.count)
    if len(view.event_times) != 8 * view.count:
        raise _invalid("event time", f"{len(view.event_times)} bytes for {view.count} messages")


def _check_headers(view: BatchView) -> None:
    if not view.columns & HAS_HEADERS:
        _absent(
            "header",
            view.header_list_offsets,
            view.header_name_offsets,
            view.header_name_data,
            view.header_value_offsets,
            view.header_value_data,
        )
        return
    total = len(view.header_name_offsets) // 4 - 1
    lists = _offsets("header list", view.header_list_offsets, view.count, total)
    name_bytes, value_bytes = len(view.header_name_data), len(view.header_value_data)
    names = _offsets("header name", view.header_name_offsets, total, name_bytes)
    values = _offsets("header value", view.header_value_offsets, total, value_bytes)
    _check_utf8(bytes(view.header_name_data), names)
    if total > MAX_HEADERS and _widest(lists) > MAX_HEADERS:
        raise _too_large(f"a message has {_widest(lists)} headers, at most {MAX_HEADERS}")
    if name_bytes + value_bytes > MAX_HEADER_BYTES:
        ends = [names[bound] + values[bound] for bound in lists]
        _limit("header", ends, name_bytes + value_bytes, MAX_HEADER_BYTES)


def _offsets(column: str, buffer: memoryview, count: int, end: int) -> list[int]:
    """Return the ``count + 1`` offsets of a column: from 0, never falling, up to ``end``."""
    if count < 0 or len(buffer) != 4 * (count + 1):
        raise _invalid(column, f"{len(buffer)} bytes of offsets for {count} items")
    offsets = unpack_ints("i", buffer)
    if offsets[0] != 0 or offsets[-1] != end or offsets != sorted(offsets):
        raise _invalid(column, "offsets do not rise from 0 to the size of the data")
    return offsets


def _check_validity(column: str, bitmap: memoryview, count: int) -> None:
    if len(bitmap) not in (0, (count + 7) // 8):
        raise _invalid(column, f"validity of {len(bitmap)} bytes for {count} messages")


def _check_utf8(data: bytes, offsets: Sequence[int]) -> None:
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _invalid("header name", f"not UTF-8: {error}") from None
    # The whole is UTF-8; each name is, unless one begins within a character.
    if not _CONTINUATION.isdisjoint(map((data + b"\0").__getitem__, offsets)):
        raise _invalid("header name", "a name begins within a character")


def _absent(column: str, *buffers: memoryview) -> None:
    if any(buffers):
        raise _invalid(column, "has buffers but is not among the columns")


def _limit(column: str, offsets: Sequence[int], total: int, limit: int) -> None:
    if total > limit and (widest := _widest(offsets)) > limit:
        raise _too_large(f"a message's {column} takes {widest} bytes, at most {limit}")


def _widest(offsets: Sequence[int]) -> int:
    return max((after - before for before, after in pairwise(offsets)), default=0)


def _invalid(column: str, what: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"record batch is not valid: {column}: {what}")


def _too_large(what: str) -> FencelogError:
    return FencelogError(ErrorCode.PAYLOAD_TOO_LARGE, f"record batch: {what}")
