"""The filters of a query as narrower ranges of offsets: pure functions.

Offsets are dense and publish times never decrease within a partition, so a comparison of either
with a constant is a range of offsets, and the rest of the partition need not be read. Event times
have no order, and keys and values no index: comparisons of these narrow nothing, nor does whatever
is not a comparison with a constant (OR, NOT, functions). Spark checks every row against every
filter again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from fencelog.spark_connector.planning.bounds import TimeOffsets
from fencelog.spark_connector.planning.offsets import Offsets
from fencelog.spark_connector.planning.option_values import MAX_TIMESTAMP_US, microseconds
from fencelog.spark_connector.planning.segments import PartitionSegments


class Operator(Enum):
    """A comparison of a column with a constant, or with a list of constants."""

    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "IN"


_SPARKS_NAMES: Mapping[str, Operator] = {
    "EqualTo": Operator.EQUAL,
    "EqualNullSafe": Operator.EQUAL,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
    "In": Operator.IN,
}
"""PySpark's classes of filters. They are told by name, since PySpark 4.0 has none."""

_HOLDS: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
    Operator.IN: lambda value, operand: value in operand,
}

_TYPES: Mapping[str, type] = {
    "topic": str,
    "partition": int,
    "offset": int,
    "publish_time": datetime,
}
"""The columns whose comparisons narrow a read, with the type of their constants."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A filter ``column operator operand``; the operand of IN is a tuple without NULL."""

    column: str
    operator: Operator
    operand: Any

    def holds(self, value: Any) -> bool:
        """Tell whether the comparison is true of this value."""
        return _HOLDS[self.operator](value, self.operand)


@dataclass(frozen=True, slots=True)
class Range:
    """Whole numbers with ``low <= number < end``; None: no bound."""

    low: int | None = None
    end: int | None = None

    def and_(self, other: Range) -> Range:
        """Return the numbers in both."""
        lows = [low for low in (self.low, other.low) if low is not None]
        ends = [end for end in (self.end, other.end) if end is not None]
        return Range(max(lows, default=None), min(ends, default=None))


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rows that a query wants, at most: those in partitions of which all comparisons in
    ``places`` hold, with offset and publish time (µs) in the ranges."""

    places: tuple[Comparison, ...] = ()
    offsets: Range = Range()
    times: Range = Range()

    def includes(self, topic: str, partition: int) -> bool:
        """Tell whether rows of this partition may be wanted."""
        place = {"topic": topic, "partition": partition}
        return all(each.holds(place[each.column]) for each in self.places)

    def times_wanted(self, topic: str, partition: int) -> set[int]:
        """Return the times (µs) whose offsets in this partition ``narrow`` needs."""
        if not self.includes(topic, partition):
            return set()
        return {time for time in (self.times.low, self.times.end) if time is not None}


ALL_ROWS = RowFilter()


def comparison_of(sparks_filter: object) -> Comparison | None:
    """Return a filter of PySpark as a comparison; None: it does not narrow a read.

    NULL in a list is left out: no row is kept because of it.
    """
    kind = _SPARKS_NAMES.get(type(sparks_filter).__name__)
    attribute = tuple(getattr(sparks_filter, "attribute", ()))
    if kind is None or len(attribute) != 1 or attribute[0] not in _TYPES:
        return None
    value = getattr(sparks_filter, "value", None)
    if kind is not Operator.IN:
        constants = (value,)
    elif isinstance(value, list | tuple):
        constants = tuple(each for each in value if each is not None)
    else:
        return None
    if not all(_is_of(attribute[0], constant) for constant in constants):
        return None
    return Comparison(attribute[0], kind, constants if kind is Operator.IN else value)


def _is_of(column: str, constant: object) -> bool:
    if isinstance(constant, bool) or not isinstance(constant, _TYPES[column]):
        return False
    return not isinstance(constant, datetime) or constant.tzinfo is not None


def row_filter(comparisons: Iterable[Comparison | None], *, is_compacted: bool) -> RowFilter:
    """Return what all comparisons together leave.

    The compacted view changes while it is read to its end, so only whole partitions of it are left
    out.
    """
    places: list[Comparison] = []
    offsets = times = Range()
    for each in comparisons:
        if each is None:
            continue
        if each.column in ("topic", "partition"):
            places.append(each)
        elif each.column == "offset" and not is_compacted:
            offsets = offsets.and_(_range_of(each.operator, each.operand))
        elif each.column == "publish_time" and not is_compacted:
            times = times.and_(_range_of(each.operator, _in_us(each.operand)))
    return RowFilter(tuple(places), offsets, _askable(times))


def _in_us(operand: datetime | tuple[datetime, ...]) -> int | tuple[int, ...]:
    return (
        tuple(map(microseconds, operand)) if isinstance(operand, tuple) else microseconds(operand)
    )


def _range_of(kind: Operator, operand: Any) -> Range:
    """Return the smallest range that holds the numbers of a comparison."""
    match kind:
        case Operator.EQUAL:
            return Range(operand, operand + 1)
        case Operator.LESS:
            return Range(end=operand)
        case Operator.LESS_OR_EQUAL:
            return Range(end=operand + 1)
        case Operator.GREATER:
            return Range(low=operand + 1)
        case Operator.GREATER_OR_EQUAL:
            return Range(low=operand)
        case Operator.IN:
            return Range(min(operand, default=0), max(operand, default=-1) + 1)


def _askable(times: Range) -> Range:
    """Return the same range with bounds that the service can be asked for, or wider."""
    low = None if times.low is None or times.low <= 0 else min(times.low, MAX_TIMESTAMP_US)
    end = None if times.end is None or times.end > MAX_TIMESTAMP_US else max(times.end, 0)
    return Range(low, end)


def narrow(
    answers: Sequence[PartitionSegments],
    starts: Offsets,
    ends: Offsets,
    rows: RowFilter,
    times: TimeOffsets,
) -> tuple[list[PartitionSegments], Offsets, Offsets]:
    """Return the partitions that may hold wanted rows, and their start and end (exclusive) without
    the offsets at both ends that hold none. ``times`` has the offsets of ``times_wanted``."""
    kept = [answer for answer in answers if rows.includes(answer.topic, answer.partition)]
    narrow_starts: dict[str, dict[int, int]] = {}
    narrow_ends: dict[str, dict[int, int]] = {}
    for answer in kept:
        topic, partition = answer.topic, answer.partition
        start, end = starts[topic][partition], ends[topic][partition]
        by_time = _offsets_of(rows.times, topic, partition, times)
        found = rows.offsets.and_(by_time).and_(Range(start, end))
        low, high = found.low or 0, found.end or 0
        narrow_starts.setdefault(topic, {})[partition] = min(low, end)
        narrow_ends.setdefault(topic, {})[partition] = max(min(low, end), high)
    return kept, narrow_starts, narrow_ends


def _offsets_of(wanted: Range, topic: str, partition: int, times: TimeOffsets) -> Range:
    """Return the offsets of the messages published in a range of times.

    All messages before a time's offset are earlier, whoever was asked. An end needs more: where no
    message is found, the offset is the tail of a broker that may not know yet that another one has
    taken the partition over, and later messages may still be wanted.
    """
    low = end = None
    if wanted.low is not None:
        low = times[topic, partition, wanted.low].offset
    if wanted.end is not None and (found := times[topic, partition, wanted.end]).is_found:
        end = found.offset
    return Range(low, end)
