"""The decoding of some messages of stored batches, without the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from fencelog.broker.read.read_fairness import STEP_BYTES
from fencelog.broker.read.stored import StoredBatch
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import BatchView, Message, read_batch
from fencelog.ledgers.record_batch.format import unpacked_size, value_of_one
from fencelog.ledgers.record_batch.windows import messages_of

DELIVER_AT = "fencelog-deliver-at"
"""The header that delays delivery until this time, µs since 1970 UTC as decimal text."""
REPLAY_FOR = "fencelog-replay-for"
"""The header that restricts the message to the subscription of this name."""

FEW_MESSAGES = 16
"""The messages of a batch up to which it is opened together with others: a larger one is decoded in
parts, as far as it is needed."""

_MARK = b"fencelog-"


class OpenedBatch:
    """A batch that passed ``check_batch`` when it was appended."""

    __slots__ = ("_one", "_view", "base_offset", "end_offset", "has_marks", "publish_time_us")

    def __init__(self, stored: StoredBatch) -> None:
        """Open a batch. Raises FencelogError(CORRUPT)."""
        self.base_offset = stored.base_offset
        self.end_offset = stored.end_offset
        self.publish_time_us = stored.publish_time_us
        self.has_marks = False
        """The possible presence of headers that control delivery."""
        self._view: BatchView | None = None
        self._one = value_of_one(stored.batch)
        if self._one is not None:
            return
        try:
            _, self._view = read_batch(stored.batch)
        except FencelogError as error:
            raise FencelogError(
                ErrorCode.CORRUPT, f"the batch at offset {stored.base_offset}: {error.detail}"
            ) from error
        self.has_marks = _MARK in bytes(self._view.header_name_data)

    def messages(self, first: int, end: int) -> list[Message]:
        """Return the messages from offset ``first`` to before ``end``."""
        if self._view is None:
            return [Message(self._one or b"")]
        return messages_of(self._view, first - self.base_offset, end - self.base_offset)

    def published_us(self, offset: int) -> int:
        """Return the time at which the message was published, µs since 1970 UTC."""
        return self.publish_time_us


class OpenedBatches:
    """Adjacent batches of few messages, whose messages are looked at together."""

    __slots__ = ("_batches", "_begins", "_messages", "base_offset", "end_offset", "has_marks")

    def __init__(self, batches: Sequence[OpenedBatch]) -> None:
        self._batches = batches
        self._begins = [batch.base_offset for batch in batches]
        self._messages = [
            message
            for batch in batches
            for message in batch.messages(batch.base_offset, batch.end_offset)
        ]
        self.base_offset = batches[0].base_offset
        self.end_offset = batches[-1].end_offset
        self.has_marks = any(batch.has_marks for batch in batches)

    def messages(self, first: int, end: int) -> list[Message]:
        """Return the messages from offset ``first`` to before ``end``."""
        return self._messages[first - self.base_offset : end - self.base_offset]

    def published_us(self, offset: int) -> int:
        """Return the time at which the message was published, µs since 1970 UTC."""
        return self._batches[bisect_right(self._begins, offset) - 1].publish_time_us


Opened = OpenedBatch | OpenedBatches


def opened_together(batches: Sequence[StoredBatch], most: int) -> Iterator[Opened]:
    """Open batches in order, adjacent small ones together as long as they have at most so many
    messages, and STEP_BYTES.

    Raises FencelogError(CORRUPT) at a batch that cannot be read, after those before it.
    """
    group: list[OpenedBatch] = []
    size = 0
    try:
        for stored in batches:
            size += unpacked_size(stored.batch)
            if group and (
                stored.base_offset != group[-1].end_offset
                or stored.end_offset - group[0].base_offset > most
                or stored.count > FEW_MESSAGES
                or group[-1].end_offset - group[-1].base_offset > FEW_MESSAGES
                or size > STEP_BYTES
            ):
                yield _joined(group)
                group, size = [], unpacked_size(stored.batch)
            group.append(OpenedBatch(stored))
    except FencelogError:
        if group:
            yield _joined(group)
        raise
    if group:
        yield _joined(group)


def _joined(group: list[OpenedBatch]) -> Opened:
    return group[0] if len(group) == 1 else OpenedBatches(group)
