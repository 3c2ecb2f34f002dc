"""The messages of stored batches with their offsets and times, some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencelog.broker.read.read_fairness import STEP_BYTES, STEP_MESSAGES
from fencelog.broker.read.stored import CompactedBatch, ReadResult, StoredBatch
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from fencelog.ledgers.record_batch.format import unpacked_size, value_of_one
from fencelog.ledgers.record_batch.windows import message_windows

Row = tuple[int, int, Message]
"""A message with its offset and its publish time in µs: (offset, publish time, message)."""


def rows_in_steps(
    batches: Iterable[StoredBatch], *, start: int, end: int, step: int = STEP_MESSAGES
) -> Iterator[list[Row]]:
    """Yield messages from offset ``start`` to before ``end``, at most ``step`` at a time, never
    none; those of adjacent batches together up to STEP_BYTES, uncompressed.

    Raises FencelogError(CORRUPT), after the messages before it: a stored batch was checked when it
    was written.
    """
    rows: list[Row] = []
    size = 0
    try:
        for batch, some in _some_rows(batches, start, end, step):
            size += unpacked_size(batch.batch)
            if rows and (
                len(rows) + len(some) > step or some[0][0] != rows[-1][0] + 1 or size > STEP_BYTES
            ):
                yield rows
                rows, size = [], unpacked_size(batch.batch)
            rows += some
    except FencelogError as error:
        if rows:
            yield rows
        raise FencelogError(ErrorCode.CORRUPT, f"a stored batch: {error.detail}") from error
    if rows:
        yield rows


def _some_rows(
    batches: Iterable[StoredBatch], start: int, end: int, step: int
) -> Iterator[tuple[StoredBatch, list[Row]]]:
    """Yield messages of one batch after the other, at most ``step`` at a time, never none, each
    with its batch."""
    for batch in batches:
        if batch.base_offset >= end:
            return
        first = batch.count - batch.messages_from(start)
        for messages in _some_messages(batch, first, step):
            rows = _rows(batch, first, messages)
            first += len(messages)
            if rows[-1][0] < end:
                yield batch, rows
                continue
            rows = [row for row in rows if row[0] < end]
            if rows:
                yield batch, rows
            return


def _some_messages(batch: StoredBatch, first: int, step: int) -> Iterable[list[Message]]:
    """Return the messages from number ``first`` on, at most ``step`` at a time."""
    if not first and (value := value_of_one(batch.batch)) is not None:
        return ([Message(value)],)
    return message_windows(batch.batch, step, start=first)


def end_of_rows(result: ReadResult, *, start: int, limit: int) -> int:
    """Return the offset after the first ``limit`` messages from ``start`` on, or after all that
    exist."""
    for batch in result.entries:
        found = batch.messages_from(start)
        if found > limit or (found == limit and batch is not result.entries[-1]):
            row = batch.count - found + limit - 1
            if isinstance(batch, CompactedBatch):
                return batch.offsets[row] + 1
            return batch.base_offset + row + 1
        limit -= found
    return result.next_offset


def _rows(batch: StoredBatch, first: int, messages: list[Message]) -> list[Row]:
    """Return messages number ``first`` … of a batch."""
    if isinstance(batch, CompactedBatch):
        last = first + len(messages)
        columns = batch.offsets[first:last], batch.publish_times[first:last]
        return list(zip(*columns, messages, strict=True))
    time = batch.publish_time_us
    start = batch.base_offset + first
    return [(offset, time, message) for offset, message in enumerate(messages, start)]
