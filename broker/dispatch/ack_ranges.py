"""The acknowledged messages of a cursor: all below ``acked_to``, and ranges above it. Pure.

No range is ever dropped to save space: dispatch stops delivering messages when there are too many
ranges (``MAX_ACK_RANGES``), and continues when they have merged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Range = tuple[int, int]
"""A range of offsets: (first offset, the offset after the last)."""


class AckRanges:
    """A set of offsets, as ranges that neither touch nor overlap. It only grows."""

    def __init__(self, acked_to: int = 0) -> None:
        self.acked_to = acked_to
        self.acked_above = 0
        """The number of messages in the ranges above ``acked_to``."""
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Return the number of ranges above ``acked_to``."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._ends, strict=True)

    def __contains__(self, offset: int) -> bool:
        return self.next_unacked(offset) != offset

    @property
    def end(self) -> int:
        """Return the offset from which on nothing is acknowledged."""
        return self._ends[-1] if self._ends else self.acked_to

    def unacked_below(self, tail: int) -> int:
        """Return how many messages below ``tail`` are not acknowledged."""
        below = tail - self.acked_to
        return (below if below > 0 else 0) - self.acked_above

    def add(self, first: int, end: int) -> int:
        """Acknowledge ``first`` to before ``end``; return how many of them were not acknowledged
        before."""
        first = max(first, self.acked_to)
        if first >= end:
            return 0
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        covered = 0
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
            covered = sum(self._ends[low:high]) - sum(self._firsts[low:high])
        gained = end - first - covered
        if first == self.acked_to:
            self.acked_to = end
            self.acked_above -= covered
            del self._firsts[low:high], self._ends[low:high]
        else:
            self.acked_above += gained
            self._firsts[low:high] = [first]
            self._ends[low:high] = [end]
        return gained

    def next_unacked(self, offset: int) -> int:
        """Return the first offset from this one on that is not acknowledged."""
        if offset < self.acked_to:
            return self.acked_to
        place = bisect_right(self._firsts, offset) - 1
        return max(offset, self._ends[place]) if place >= 0 else offset

    def unacked(self, first: int, end: int) -> Iterator[Range]:
        """Yield the ranges of these offsets that are not acknowledged now."""
        first = self.next_unacked(first)
        place = bisect_right(self._firsts, first)
        while first < end:
            stop = self._firsts[place] if place < len(self._firsts) else end
            yield first, min(stop, end)
            if stop >= end:
                return
            first = self._ends[place]
            place += 1


def ranges_of(offsets: list[int]) -> list[Range]:
    """Return sorted offsets as ranges; a repeated offset counts once."""
    ranges: list[Range] = []
    if not offsets:
        return ranges
    first = end = offsets[0]
    for offset in offsets:
        if offset > end:
            ranges.append((first, end))
            first = offset
        end = offset + 1
    ranges.append((first, end))
    return ranges
