"""Offsets that wait, in order. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable

_FEW = 16
"""So many changes are made one by one, each moving what is behind it; more, by one pass."""


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
        """The first so many, or all."""
        return self._sorted[:count]

    def within(self, first: int, end: int) -> list[int]:
        return self._sorted[bisect_left(self._sorted, first) : bisect_left(self._sorted, end)]

    def add(self, offsets: Collection[int]) -> None:
        """Of which none is there yet."""
        if len(offsets) <= _FEW:
            for offset in offsets:
                insort(self._sorted, offset)
        else:
            self._sorted = sorted([*self._sorted, *offsets])

    def remove(self, offsets: Collection[int]) -> None:
        """Those that are there."""
        if len(offsets) <= _FEW:
            for offset in offsets:
                if offset in self:
                    del self._sorted[bisect_left(self._sorted, offset)]
        else:
            gone = set(offsets)
            self._sorted = [offset for offset in self._sorted if offset not in gone]
