"""Which messages are acknowledged: all below ``acked_to``, and ranges above it. Pure.

Nothing is ever forgotten to save room: whoever hands messages out stops when ranges become too
many (``MAX_ACK_RANGES``), and goes on when they have grown together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Range = tuple[int, int]
"""(first offset, the offset after the last)."""


class AckRanges:
    """A set of offsets, as ranges that neither touch nor overlap. It only grows."""

    def __init__(self, acked_to: int = 0) -> None:
        self.acked_to = acked_to
        self.acked_above = 0
        """Messages in the ranges above."""
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Ranges above ``acked_to``."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._ends, strict=True)

    def __contains__(self, offset: int) -> bool:
        return self.next_unacked(offset) != offset

    def add(self, first: int, end: int) -> int:
        """Acknowledge ``first`` to before ``end``; how many of them were not so before."""
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
        """The first offset from this one on that is not acknowledged."""
        if offset < self.acked_to:
            return self.acked_to
        place = bisect_right(self._firsts, offset) - 1
        return max(offset, self._ends[place]) if place >= 0 else offset

    def unacked(self, first: int, end: int) -> Iterator[Range]:
        """What is not acknowledged of these offsets, as ranges, as it is now."""
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
    """Sorted offsets as ranges; one that is there twice counts once."""
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
