"""The limits and the results of reads: batches as they are stored, never taken apart."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

_BASE_OFFSET = attrgetter("base_offset")


class ReadLimits(NamedTuple):
    """The limits of a read. A read returns at least one batch, if there is one, even if that is
    larger. ``wait_ms``: the time that a read at the tail waits for the next append."""

    max_messages: int
    max_bytes: int
    wait_ms: int = 0


ONE_MESSAGE = ReadLimits(max_messages=1, max_bytes=1)
"""The limits of a read of one batch, for one message in it."""


@dataclass(slots=True)
class StoredBatch:
    """One entry's record batch (``ledgers.record_batch``), as its writer made it.

    ``base_offset`` is the offset of its first message; ``publish_time_us`` since 1970 UTC.
    """

    base_offset: int
    count: int
    publish_time_us: int
    batch: memoryview

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def size(self) -> int:
        """Return the bytes that it holds in memory."""
        return len(self.batch)

    def copy(self) -> StoredBatch:
        """Return the same batch in memory of its own: a batch is a view of the whole reply that it
        came with."""
        return replace(self, batch=memoryview(bytes(self.batch)))

    def messages_from(self, offset: int) -> int:
        """Return how many of its messages are at ``offset`` or after it."""
        return self.count - max(0, min(self.count, offset - self.base_offset))


@dataclass(slots=True)
class CompactedBatch(StoredBatch):
    """One entry of a compacted view: messages with gaps between them, each with its own time.

    ``publish_time_us`` is that of the last message.
    """

    offsets: array[int]
    publish_times: array[int]

    @property
    def end_offset(self) -> int:
        return self.offsets[-1] + 1

    @property
    def size(self) -> int:
        return len(self.batch) + 32 * self.count  # both columns, stored and read

    def messages_from(self, offset: int) -> int:
        return self.count - bisect_left(self.offsets, offset)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a read: batches without a gap (a compacted view has some). The first may begin
    before the requested offset, the last may reach past the message limit: the caller cuts them.
    ``next_offset``: where to read on; ``tail_offset``: where the log ended at that moment."""

    entries: list[StoredBatch]
    next_offset: int
    tail_offset: int


def answered(
    batches: Sequence[StoredBatch], offset: int, max_messages: int | None
) -> tuple[int, int]:
    """Return how much of a read's batches its answer has: the messages from ``offset`` on, up to
    ``max_messages``, with their share of the bytes. None: the batches are answered whole."""
    if max_messages is None:
        return sum(batch.count for batch in batches), sum(len(batch.batch) for batch in batches)
    messages = size = 0
    for batch in batches:
        count = min(batch.messages_from(offset), max_messages - messages)
        messages += count
        size += -(-len(batch.batch) * count // batch.count)  # rounded up: no message is free
    return messages, size


def take(batches: Sequence[StoredBatch], offset: int, limits: ReadLimits) -> list[StoredBatch]:
    """Return the batches, in order, from the one that holds ``offset`` (or the next message after
    it), until the limits are reached; at least one, if there is one."""
    max_messages, max_bytes, _ = limits
    start = max(0, bisect_right(batches, offset, key=_BASE_OFFSET) - 1)
    if start < len(batches) and batches[start].end_offset <= offset:
        start += 1
    taken: list[StoredBatch] = []
    for position in range(start, len(batches)):
        batch = batches[position]
        max_bytes -= len(batch.batch)
        if taken and (max_bytes < 0 or max_messages <= 0):
            break
        max_messages -= batch.messages_from(offset)
        taken.append(batch)
    return taken
