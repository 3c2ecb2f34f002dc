"""The offsets that a query reads, from the positions asked for and the offsets that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.offsets import AtTime, Bound, End, Offsets
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.segments import PartitionSegments


class TimeOffset(NamedTuple):
    """The first offset published at or after a time; where none is found, the tail of the broker
    that was asked."""

    offset: int
    is_found: bool


TimeOffsets = Mapping[tuple[str, int, int], TimeOffset]
"""The offsets of times, by (topic, partition, time in µs)."""


def times_wanted(options: ReadOptions, topic: str, partition: int) -> set[int]:
    """Return the times (µs) whose offsets in this partition ``resolve`` needs."""
    positions = (options.starting.of(topic, partition), options.ending.of(topic, partition))
    return {position.time_us for position in positions if isinstance(position, AtTime)}


def resolve(
    answers: Sequence[PartitionSegments], options: ReadOptions, times: TimeOffsets
) -> tuple[Offsets, Offsets]:
    """Return the start and the end (exclusive) of the read in every partition.

    Offsets that a partition does not have (trimmed, or beyond its end) are refused, or with
    ``failOnDataLoss`` false replaced by the nearest that it has. Raises FencelogError: BAD_REQUEST,
    OFFSET_TRIMMED, OFFSET_BEYOND_TAIL.
    """
    for name, bound in (("starting", options.starting), ("ending", options.ending)):
        _check_exists(name, bound, answers)
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for answer in answers:
        start, end = _range(answer, options, times)
        starts.setdefault(answer.topic, {})[answer.partition] = start
        ends.setdefault(answer.topic, {})[answer.partition] = end
    return starts, ends


def _check_exists(name: str, bound: Bound, answers: Sequence[PartitionSegments]) -> None:
    """Check that every partition exists for which an offset is given."""
    existing = {(answer.topic, answer.partition) for answer in answers}
    for topic, partition in _named(bound):
        if (topic, partition) not in existing:
            count = sum(answer.topic == topic for answer in answers)
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"topic {topic} has {count} partitions, "
                f"a {name} offset or time is given for partition {partition}",
            )


def _named(bound: Bound) -> Iterator[tuple[str, int]]:
    for topic, partitions in bound.by_topic.items():
        for partition in sorted(partitions):
            yield topic, partition


def _range(answer: PartitionSegments, options: ReadOptions, times: TimeOffsets) -> tuple[int, int]:
    if options.is_compacted:
        answer = replace(answer, earliest_offset=0)  # the view keeps what is trimmed from the log
    start = _offset(options.starting, answer, times, is_end=False)
    end = _offset(options.ending, answer, times, is_end=True)
    if options.fail_on_data_loss:
        _check_within(answer, start, end)
    start, end = _nearest(answer, start), _nearest(answer, end)
    if start > end and not times_wanted(options, answer.topic, answer.partition):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{_where(answer)}: starting offset {start} is after ending offset {end}",
        )
    # A time after the last message, or a start by time after the end, is no mistake.
    return start, max(start, end)


def _offset(bound: Bound, answer: PartitionSegments, times: TimeOffsets, *, is_end: bool) -> int:
    position = bound.of(answer.topic, answer.partition)
    if isinstance(position, AtTime):
        found = times[answer.topic, answer.partition, position.time_us]
        if not found.is_found and is_end:
            return answer.end_offset  # the broker that was asked may not know as much
        return _nearest(answer, found.offset)
    if isinstance(position, End):
        return answer.earliest_offset if position is End.EARLIEST else answer.end_offset
    return position


def _nearest(answer: PartitionSegments, offset: int) -> int:
    """Return the offset, or the nearest that the partition has."""
    return min(max(offset, answer.earliest_offset), answer.end_offset)


def _check_within(answer: PartitionSegments, start: int, end: int) -> None:
    earliest, latest = answer.earliest_offset, answer.end_offset
    if min(start, end) < earliest:
        raise FencelogError(
            ErrorCode.OFFSET_TRIMMED,
            f"{_where(answer)} begins at offset {earliest}, asked from {start} to {end}",
        )
    if max(start, end) > latest:
        raise FencelogError(
            ErrorCode.OFFSET_BEYOND_TAIL,
            f"{_where(answer)} ends at offset {latest}, asked from {start} to {end}",
        )


def _where(answer: PartitionSegments) -> str:
    return f"partition {answer.partition} of {answer.topic}"
