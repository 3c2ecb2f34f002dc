"""The search for a publish time in a ledger, by bisection over its entries.

Publish times never fall from one entry to the next, across ledgers and takeovers too, and all
messages of an entry have the same one. So the first message at or after a time begins an entry, and
O(log n) reads of one entry each find it; the positions of earlier reads save the first steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import NamedTuple

MAX_PLACES = 1024
"""The positions remembered in one ledger; above it every other one is forgotten."""


class TimeIndexEntry(NamedTuple):
    """An entry, its publish time in µs, and the number of its first message."""

    entry_id: int
    publish_time_us: int
    number: int


ReadPlace = Callable[[int], Awaitable[TimeIndexEntry]]
"""A function that reads the header of an entry."""


class TimeIndex:
    """The known positions of one ledger, in order."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: list[TimeIndexEntry] = []

    def add(self, place: TimeIndexEntry) -> None:
        places = self._places
        position = bisect_left(places, place)
        if position == len(places) or places[position].entry_id != place.entry_id:
            places.insert(position, place)
        if len(places) > MAX_PLACES:
            del places[1::2]

    async def first_at(self, time_us: int, end: TimeIndexEntry, read: ReadPlace) -> TimeIndexEntry:
        """Return the first entry published at or after ``time_us``; ``end``, which follows the last
        one, if there is none."""
        position = bisect_left(self._places, time_us, key=_time)
        low = self._places[position - 1].entry_id + 1 if position else 0
        found = self._places[position] if position < len(self._places) else end
        while low < found.entry_id:
            place = await read((low + found.entry_id) // 2)
            self.add(place)
            if place.publish_time_us >= time_us:
                found = place
            else:
                low = place.entry_id + 1
        return found


def _time(place: TimeIndexEntry) -> int:
    return place.publish_time_us
