"""The conditions of an append, and appends that others may repeat."""

from __future__ import annotations

from asyncio import Future
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from fencelog.ledgers.errors import FencelogError, copy_of
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_NO_PRODUCER,
    RANGE_SEQUENCE,
    SequenceRange,
)
from fencelog.ledgers.record_batch import contents_digest

FORGOTTEN = -1
"""Offset and publish time of a duplicate whose original is in the log, at a position that is not
remembered."""


@dataclass(slots=True)
class AppendResult:
    """An acknowledged append: ``count`` messages from ``offset`` on, durable and in order."""

    duplicate: ClassVar[bool] = False
    partition: int
    offset: int
    count: int
    publish_time_us: int
    owner: str | None = None
    """The URL of the broker that has answered, if that is another one."""
    acknowledged_us: int = field(default=0, compare=False)
    """The time of the acknowledgement, where that was in this process now; else 0."""


class Repeated(AppendResult):
    """An append whose messages were in the log before it; it has written nothing. ``offset`` and
    ``publish_time_us`` are the original's, or FORGOTTEN."""

    __slots__ = ()
    duplicate = True


AppendFuture = Future[AppendResult]


class AppendConditions(NamedTuple):
    """The conditions of an append, which is written only if all of them hold.

    ``sequences``: the producer's sequence numbers, or the idempotency key; its ``rows`` count
    once it is admitted.
    ``if_offset``: the offset that its first message must get. ``fencing_token``: that of the
    partition. ``routed_by``: the number of partitions among which an idempotency key has chosen
    this one (``once``); None: the caller named it.
    """

    sequences: SequenceRange | None = None
    if_offset: int | None = None
    fencing_token: str | None = None
    routed_by: int | None = None

    def of(self, batch: bytes) -> AppendConditions:
        """Return the conditions of an append of this batch, whose contents they remember."""
        if self.sequences is None:
            return self
        return self.with_contents(contents_digest(batch))

    def with_contents(self, digest: bytes) -> AppendConditions:
        """Return the conditions of an append whose contents have this digest."""
        if self.sequences is None:
            return self
        rows, kind, id_, epoch, sequence, _ = self.sequences
        sequences = SequenceRange(rows, kind, id_, epoch, sequence, digest)
        return AppendConditions(sequences, self.if_offset, self.fencing_token, self.routed_by)


NO_CONDITIONS = AppendConditions()


class Tracked:
    """An append in flight of a producer, or with an idempotency key. Appends that repeat it share
    its outcome.

    ``row``: that of its first message within its entry.
    """

    __slots__ = ("row", "sequences", "waiters")

    def __init__(self, sequences: SequenceRange) -> None:
        self.sequences = sequences
        self.row = 0
        self.waiters: list[tuple[AppendFuture, SequenceRange]] = []

    def add_waiter(self, future: AppendFuture, sequences: SequenceRange) -> None:
        """Add a caller whose ``sequences`` repeat this append, or end within it."""
        self.waiters.append((future, sequences))

    def succeed(self, partition: int, offset: int, publish_time_us: int) -> None:
        """Answer the callers that wait. ``offset``: that of the append's first message."""
        for future, sequences in self.waiters:
            if not future.done():
                rows = self.sequences.rows if sequences.kind == RANGE_KEY else sequences.rows
                distance = sequences.sequence - self.sequences.sequence
                place = offset + distance if distance >= 0 else FORGOTTEN
                future.set_result(Repeated(partition, place, rows, publish_time_us))
        self.waiters.clear()

    def fail(self, error: FencelogError) -> None:
        fail_all([future for future, _ in self.waiters], error)
        self.waiters.clear()


class SequenceRanges:
    """The producers of the messages of one entry: their sequence ranges, as they are added, and the
    appends that others may repeat."""

    __slots__ = ("found", "rows", "tracked")

    def __init__(self) -> None:
        self.tracked: list[Tracked] = []
        self.found: list[SequenceRange] = []
        self.rows = 0
        """The number of messages that the ranges cover."""

    def add(self, tracked: Tracked) -> None:
        """Add the range of an append, beginning at the append's row; if it continues the last
        range they become one."""
        sequences = tracked.sequences
        self.tracked.append(tracked)
        self.cover(tracked.row)
        last = self.found[-1] if self.found else None
        if last is not None and _follows(last, sequences):
            self.found[-1] = last._replace(rows=last.rows + sequences.rows, contents=b"")
        else:
            self.found.append(sequences)
        self.rows += sequences.rows

    def cover(self, row: int) -> None:
        """Mark the messages up to ``row`` that no range covers as belonging to no producer."""
        if row > self.rows:
            self.found.append(SequenceRange(row - self.rows, RANGE_NO_PRODUCER))
            self.rows = row

    def succeed(self, partition: int, offset: int, publish_time_us: int) -> None:
        """Answer the callers that wait. ``offset``: that of the entry's first message."""
        for tracked in self.tracked:
            tracked.succeed(partition, offset + tracked.row, publish_time_us)

    def fail(self, error: FencelogError) -> None:
        for tracked in self.tracked:
            tracked.fail(error)


def _follows(last: SequenceRange, sequences: SequenceRange) -> bool:
    return (
        last.kind == sequences.kind == RANGE_SEQUENCE
        and last.id == sequences.id
        and last.epoch == sequences.epoch
        and last.sequence + last.rows == sequences.sequence
    )


def fail_all(futures: list[AppendFuture], error: FencelogError) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(copy_of(error))
