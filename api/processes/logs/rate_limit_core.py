"""The limit for lines of one message, without a clock: so many within an interval, then a count."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

MessageT = TypeVar("MessageT")


@dataclass(slots=True)
class _Interval:
    """The lines of one message since ``began_s``."""

    began_s: float
    written: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut(Generic[MessageT]):
    """The number of lines of a message that were not written."""

    message: MessageT
    count: int


class RateLimit(Generic[MessageT]):
    """The intervals of all messages, which are hashable, by any clock that does not go back."""

    def __init__(self, *, lines: int, interval_s: float, max_messages: int) -> None:
        self._lines = lines
        self._interval_s = interval_s
        self._max_messages = max_messages
        self._intervals: OrderedDict[MessageT, _Interval] = OrderedDict()

    def admit(self, message: MessageT, now_s: float) -> bool:
        """Count one more line; tell whether it is to be written."""
        interval = self._intervals.get(message)
        if interval is None:
            if len(self._intervals) >= self._max_messages:
                self._intervals.popitem(last=False)
            interval = self._intervals[message] = _Interval(now_s)
        if interval.written >= self._lines:
            interval.left_out += 1
            return False
        interval.written += 1
        return True

    def end_intervals(self, now_s: float) -> list[LeftOut[MessageT]]:
        """End the intervals whose time is over; return what was left out in them. Call it before
        ``admit``, and when nothing is logged for a while."""
        ended = []
        while self._intervals:
            message, interval = next(iter(self._intervals.items()))
            if now_s - interval.began_s < self._interval_s:
                break  # Those behind it have begun later.
            del self._intervals[message]
            if interval.left_out:
                ended.append(LeftOut(message, interval.left_out))
        return ended
