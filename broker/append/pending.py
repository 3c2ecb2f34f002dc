"""Appends in flight: the results that callers get, and how waiting messages become entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter

from fencelog.broker.append.conditions import (
    AppendFuture,
    AppendResult,
    SequenceRanges,
    Tracked,
    fail_all,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import HEADER, MAX_RANGES
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts
from fencelog.ledgers.limits import (
    KIB,
    MAX_ENTRY_BYTES,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_MESSAGE_BYTES,
)
from fencelog.ledgers.record_batch import Message, encode_batch, encode_values

__all__ = [
    "MAX_BATCH_BYTES",
    "AppendFuture",
    "AppendResult",
    "PendingEntry",
    "WaitingGroup",
    "message_size",
]

GROUP_BYTES = 512 * KIB
"""A group of single messages is closed at this size: large enough for full speed, small enough that
a group is written in a few ms."""

GROUP_MESSAGES = 10_000
"""A group is also closed at this many messages, so that answering them holds the loop for a few ms
only."""

MAX_BATCH_BYTES = MAX_ENTRY_BYTES - HEADER.size
"""The largest batch, together with its sequence range if it has one."""

MESSAGE_OVERHEAD_BYTES = 64
"""The overhead that a waiting message is counted with besides its bytes, so that empty ones are
bounded too."""

_VALUE = itemgetter(0)
_MAX_TIME_US = 2**63


@dataclass(slots=True, eq=False)
class PendingEntry:
    """One entry: a whole batch of one caller, or a group of single messages of many.

    ``futures`` has one item for a whole batch, otherwise one for each message. It is emptied when
    the callers have been notified that the outcome is unknown: such an entry is never sent again.
    ``ranges`` name the producers of its messages; None: they belong to no producer. ``contexts``:
    the requests of its callers, as far as they can be followed.
    """

    batch: bytes
    count: int
    size: int
    futures: list[AppendFuture]
    is_group: bool
    entry_id: int = -1
    queued_us: int = 0
    publish_time_us: int = 0
    ranges: SequenceRanges | None = None
    contexts: Contexts = NO_CONTEXTS
    sent_contexts: Contexts = NO_CONTEXTS
    """The contexts as its bookies got them."""

    @property
    def is_given_up(self) -> bool:
        return not self.futures

    def succeed(self, partition: int, offset: int, now_us: int = 0) -> None:
        """Notify every caller of the offsets of its messages."""
        time = self.publish_time_us
        if self.ranges is not None:
            self.ranges.succeed(partition, offset, time)
        if not self.is_group:
            for future in self.futures:
                if not future.done():
                    future.set_result(
                        AppendResult(partition, offset, self.count, time, None, now_us)
                    )
            return
        for place, future in enumerate(self.futures, offset):
            if not future.done():
                future.set_result(AppendResult(partition, place, 1, time, None, now_us))

    def fail(self, error: FencelogError) -> None:
        """Fail every caller with the same error, and forget the callers."""
        fail_all(self.futures, error)
        self.futures = []
        if self.ranges is not None:
            self.ranges.fail(error)


@dataclass(slots=True, eq=False)
class WaitingGroup:
    """Single messages that wait to be sent; they become one entry. ``queued_us``: the time of the
    first of them."""

    queued_us: int = 0
    messages: list[Message] = field(default_factory=list)
    futures: list[AppendFuture] = field(default_factory=list)
    size: int = 0
    is_plain: bool = True
    """True while all of them are values only, with no key, event time or headers."""
    ranges: SequenceRanges | None = None
    contexts: Contexts = NO_CONTEXTS

    @property
    def count(self) -> int:
        return len(self.messages)

    @property
    def is_full(self) -> bool:
        return self.size >= GROUP_BYTES or len(self.messages) >= GROUP_MESSAGES

    @property
    def is_full_of_ranges(self) -> bool:
        """Tell whether one more range, with ranges of other messages before and after it, might be
        too many for the header."""
        return self.ranges is not None and len(self.ranges.found) + 3 > MAX_RANGES

    def add(self, message: Message, size: int, future: AppendFuture) -> None:
        self.messages.append(message)
        self.futures.append(future)
        self.size += size
        if message[1] is not None or message[2] is not None or message[3]:
            self.is_plain = False

    def track(self, tracked: Tracked) -> None:
        """Record that the message that was added last belongs to a producer."""
        if self.ranges is None:
            self.ranges = SequenceRanges()
        tracked.row = len(self.messages) - 1
        self.ranges.add(tracked)

    def build(self) -> PendingEntry:
        messages = self.messages
        if self.is_plain:
            batch = encode_values(list(map(_VALUE, messages)))
        else:
            batch = encode_batch(messages)
        entry = PendingEntry(
            batch,
            len(messages),
            self.size,
            self.futures,
            is_group=True,
            queued_us=self.queued_us,
            contexts=self.contexts,
        )
        if self.ranges is not None:
            self.ranges.cover(len(messages))
            entry.ranges = self.ranges
        return entry

    def fail(self, error: FencelogError) -> None:
        fail_all(self.futures, error)
        if self.ranges is not None:
            self.ranges.fail(error)


def check_batch_size(size: int) -> None:
    """Check the size of a batch together with its sequence range. Raises PAYLOAD_TOO_LARGE."""
    if size > MAX_BATCH_BYTES:
        raise FencelogError(
            ErrorCode.PAYLOAD_TOO_LARGE, f"a batch of {size} bytes, at most {MAX_BATCH_BYTES}"
        )


def message_size(message: Message) -> int:
    """Return the size that the message counts with while it waits. Raises FencelogError for one
    over a limit.

    The limits are checked before it joins a group, all of which would otherwise fail with it.
    """
    value, key, event_time, headers = message
    size = len(value)
    if size > MAX_MESSAGE_BYTES:
        raise _too_large("value", size, MAX_MESSAGE_BYTES)
    if key is not None:
        if len(key) > MAX_KEY_BYTES:
            raise _too_large("key", len(key), MAX_KEY_BYTES)
        size += len(key)
    if event_time is not None and not -_MAX_TIME_US <= event_time < _MAX_TIME_US:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"event time {event_time} is not a 64-bit number of µs"
        )
    if headers:
        size += _headers_size(headers)
    return size + MESSAGE_OVERHEAD_BYTES


def _headers_size(headers: tuple[tuple[str, bytes], ...]) -> int:
    try:
        size = sum(len(name.encode()) + len(value) for name, value in headers)
    except UnicodeEncodeError as error:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"header name is not text: {error}") from None
    if len(headers) > MAX_HEADERS:
        raise FencelogError(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"the message has {len(headers)} headers, at most {MAX_HEADERS}",
        )
    if size > MAX_HEADER_BYTES:
        raise _too_large("headers", size, MAX_HEADER_BYTES)
    return size


def _too_large(what: str, size: int, limit: int) -> FencelogError:
    return FencelogError(
        ErrorCode.PAYLOAD_TOO_LARGE, f"the message's {what} takes {size} bytes, at most {limit}"
    )
