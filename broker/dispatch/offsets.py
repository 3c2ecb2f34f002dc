"""The offsets of waiting messages, in order. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable

_FEW = 16
"""The number of changes that are made one by one, each moving the offsets after it; more are made
by one pass."""


class OffsetSet:
    """A sorted set of offsets, of some ten thousand at most."""

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._sorted = sorted(offsets)

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, offset: int) -> bool:
        place = bisect_left(self._sorted, offset)
        return place < len(self._sorted) and self._sorted[place] == offset

    def first(self, count: int) -> list[int]:
        """Return the first ``count`` offsets, or all."""
        return self._sorted[:count]

    def within(self, first: int, end: int) -> list[int]:
        return self._sorted[bisect_left(self._sorted, first) : bisect_left(self._sorted, end)]

    def add(self, offsets: Collection[int]) -> None:
        """Add offsets, none of which is in the set."""
        if len(offsets) <= _FEW:
            for offset in offsets:
                insort(self._sorted, offset)
        else:
            self._sorted = sorted([*self._sorted, *offsets])

    def remove(self, offsets: Collection[int]) -> None:
        """Remove offsets, those that are in the set."""
        if len(offsets) <= _FEW:
            for offset in offsets:
                if offset in self:
                    del self._sorted[bisect_left(self._sorted, offset)]
        else:
            gone = set(offsets)
            self._sorted = [offset for offset in self._sorted if offset not in gone]
