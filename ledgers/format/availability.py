"""The entries of a ledger that a bookie has, in the encoding of BP-34.

    header     0  u32 version: 0
               4  u32 number of groups
               8  56 zero bytes
    group      0  i64 start of the first sequence
               8  i64 start of the last one
              16  i32 entries in each
              20  i32 from the start of one to that of the next; 0 where there is only one

Big-endian, as BookKeeper writes it, unlike all our own formats. BP-34 calls the second number of
the header the number of entries; BookKeeper's code means entries of the collection, that is,
groups, and so does this module. A *sequence* is a range of consecutive entries; neighbouring ones
of the same size and distance make a group, so a bookie's part of a fragment is mostly one group of
24 bytes.

Pure, and linear in ranges or groups: a group may stand for 2**60 sequences, so nothing here expands
a group, except for a caller that iterates over its sequences.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fencelog.ledgers.errors import ProtocolError, check

Range = tuple[int, int]
"""A range of entries: the first and last entry id, both included."""

MAX_ENTRY_ID = (1 << 63) - 1

_HEADER = struct.Struct(">II56s")
_GROUP = struct.Struct(">qqii")
_VERSION = 0
_ZEROS = bytes(56)
_MAX_SIZE = (1 << 31) - 1

HEADER_BYTES = _HEADER.size
GROUP_BYTES = _GROUP.size


class SequenceGroup(NamedTuple):
    """Sequences of ``size`` entries that begin at ``first``, ``first + period``, …, ``start``."""

    first: int
    start: int
    """The entry at which the last sequence begins."""
    size: int
    period: int

    @property
    def last(self) -> int:
        """Return the last entry of the group."""
        return self.start + self.size - 1

    @property
    def sequences(self) -> int:
        return 1 if self.period == 0 else (self.start - self.first) // self.period + 1


@dataclass(frozen=True, slots=True)
class Availability:
    """A set of entries, as groups in ascending order that do not overlap."""

    groups: tuple[SequenceGroup, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Availability:
        """Return the set that consists of ranges: ascending, without overlap (adjacent ones are
        joined), ids within 0 … 2**63 - 1."""
        return cls(tuple(_grouped(_sequences(ranges))))

    @classmethod
    def decode(cls, data: bytes) -> Availability:
        """Decode the output of ``encode`` and of BookKeeper, and refuse inconsistent values. Raises
        ProtocolError, which names what is wrong and where."""
        if len(data) < HEADER_BYTES:
            raise ProtocolError(f"list of entries: {len(data)} bytes are no header")
        version, count, zeros = _HEADER.unpack_from(data)
        if version != _VERSION:
            raise ProtocolError(f"list of entries: version {version} is not known")
        if zeros != _ZEROS:
            raise ProtocolError("list of entries: reserved bytes of the header are not zero")
        if len(data) != HEADER_BYTES + count * GROUP_BYTES:
            raise ProtocolError(f"list of entries: {len(data)} bytes are not {count} groups")
        groups: list[SequenceGroup] = []
        following = 0
        for fields in _GROUP.iter_unpack(memoryview(data)[HEADER_BYTES:]):
            group = SequenceGroup(*fields)
            if (problem := _problem(group, following)) is not None:
                raise ProtocolError(f"list of entries: group {len(groups)} {problem}: {fields}")
            groups.append(group)
            following = group.last + 1
        return cls(tuple(groups))

    def encode(self) -> bytes:
        """Return the encoding: HEADER_BYTES, and GROUP_BYTES for each group."""
        groups = (_GROUP.pack(*group) for group in self.groups)
        return _HEADER.pack(_VERSION, len(self.groups), _ZEROS) + b"".join(groups)

    @property
    def count(self) -> int:
        """Return the number of entries in the set."""
        return sum(group.sequences * group.size for group in self.groups)

    @property
    def span(self) -> Range | None:
        """Return the first and the last entry of the set, None if it is empty."""
        return (self.groups[0].first, self.groups[-1].last) if self.groups else None

    def __contains__(self, entry_id: int) -> bool:
        return next(self.ranges(entry_id, entry_id), None) is not None

    def ranges(self, first: int = 0, last: int = MAX_ENTRY_ID) -> Iterator[Range]:
        """Return the entries of ``first`` … ``last`` that are in the set, as ranges in ascending
        order, adjacent ones joined. Each step takes time in proportion to the groups that it
        joins."""
        low, high = -1, -2
        for start, end in self._pieces(first, last):
            if start == high + 1:
                high = end
                continue
            if low >= 0:
                yield low, high
            low, high = start, end
        if low >= 0:
            yield low, high

    def missing_from(self, wanted: Iterable[Range]) -> Iterator[Range]:
        """Return the parts of the ranges wanted that are not in the set, in the order of the
        ranges; each range by itself.

        Callers should take no more items than they need: their number may be practically endless.
        """
        for position, last in wanted:
            following = position
            for low, high in self.ranges(position, last):
                if low > following:
                    yield following, low - 1
                following = high + 1
            if following <= last:
                yield following, last

    def _pieces(self, first: int, last: int) -> Iterator[Range]:
        """Return the entries of ``first`` … ``last`` that are in the set, sequence by sequence; a
        group without gaps is one range."""
        if first > last:
            return
        at = bisect_right(self.groups, first, key=lambda group: group.first)
        for number in range(max(at - 1, 0), len(self.groups)):
            group = self.groups[number]
            if group.first > last:
                return
            size, period = group.size, group.period
            if period in (size, 0):
                size = period = group.last - group.first + 1
            skipped = max(0, first - group.first) // period
            for start in range(group.first + skipped * period, min(group.start, last) + 1, period):
                if start + size > first:
                    yield max(start, first), min(start + size - 1, last)


def _problem(group: SequenceGroup, following: int) -> str | None:
    """Return what is wrong with a group that has to begin at ``following`` or later, None if
    nothing is."""
    if group.first < following:
        return "begins before the end of what precedes it" if group.first >= 0 else "begins below 0"
    if group.size < 1:
        return "has sequences of no entry"
    if group.start < group.first:
        return "ends before it begins"
    if group.last > MAX_ENTRY_ID:
        return "ends behind the last entry id"
    if group.start == group.first:
        return "has a period and but one sequence" if group.period != 0 else None
    if group.period < group.size:
        return "has sequences that overlap"
    if (group.start - group.first) % group.period:
        return "has a last sequence out of its period"
    return None


def _sequences(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield (start, size) of each sequence: adjacent ranges are joined, and cut where a size
    ends."""
    low, high = 0, -1
    for first, last in ranges:
        check(high < first <= last <= MAX_ENTRY_ID, f"range {first}..{last} behind {high}")
        if first > high + 1:
            yield from _cut(low, high)
            low = first
        high = last
    yield from _cut(low, high)


def _cut(low: int, high: int) -> Iterator[Range]:
    while low <= high:
        size = min(high - low + 1, _MAX_SIZE)
        yield low, size
        low += size


def _grouped(sequences: Iterable[Range]) -> Iterator[SequenceGroup]:
    """Group the sequences: each joins the group before it if it can; the second one sets the
    period."""
    group: SequenceGroup | None = None
    for start, size in sequences:
        if group is not None:
            distance = start - group.start
            if size == group.size and distance <= _MAX_SIZE and group.period in (0, distance):
                group = group._replace(start=start, period=distance)
                continue
            yield group
        group = SequenceGroup(start, start, size, 0)
    if group is not None:
        yield group
