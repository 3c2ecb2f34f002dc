"""The offsets of a read: those asked for, if the log has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.bounds import TimeOffset, resolve, times_wanted
from fencelog.spark_connector.planning.offsets import AtTime, Bound, End, Position
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.segments import PartitionSegments

T = "default/t"
LOGS = [
    PartitionSegments(T, 0, 5, 30, (), {}, "id-t"),
    PartitionSegments(T, 1, 0, 0, (), {}, "id-t"),
    PartitionSegments("default/u", 0, 0, 7, (), {}, "id-u"),
]


def asked(starting: Bound, ending: Bound, *, fail: bool = True) -> ReadOptions:
    return ReadOptions(
        ("http://h:1",),
        (T, "default/u"),
        starting=starting,
        ending=ending,
        fail_on_data_loss=fail,
    )


def at(*positions: Position, rest: End = End.EARLIEST) -> Bound:
    """A bound that names the first partitions of the topic."""
    return Bound(rest, {T: dict(enumerate(positions))})


def of_partition_0(
    options: ReadOptions, times: Mapping[tuple[str, int, int], TimeOffset] | None = None
) -> tuple[int, int]:
    start, end = resolve(LOGS, options, times or {})
    return start[T][0], end[T][0]


def test_everything_is_read_unless_more_is_said() -> None:
    start, end = resolve(LOGS, asked(Bound(End.EARLIEST), Bound(End.LATEST)), {})
    assert start == {T: {0: 5, 1: 0}, "default/u": {0: 0}}
    assert end == {T: {0: 30, 1: 0}, "default/u": {0: 7}}


def test_named_partitions_are_bounded_and_the_others_are_not() -> None:
    start, end = resolve(LOGS, asked(at(6), at(9, rest=End.LATEST)), {})
    assert start == {T: {0: 6, 1: 0}, "default/u": {0: 0}}
    assert end == {T: {0: 9, 1: 0}, "default/u": {0: 7}}


@pytest.mark.parametrize(
    ("starting", "ending", "code", "named"),
    [
        (at(4), Bound(End.LATEST), ErrorCode.OFFSET_TRIMMED, "partition 0 of default/t begins at"),
        (at(4), at(4), ErrorCode.OFFSET_TRIMMED, "offset 5, asked from 4 to 4"),
        (at(31), at(32), ErrorCode.OFFSET_BEYOND_TAIL, "ends at offset 30, asked from 31 to 32"),
        (at(5), at(99), ErrorCode.OFFSET_BEYOND_TAIL, "to 99"),
    ],
)
def test_offsets_that_are_lost_fail_or_are_replaced(
    starting: Bound, ending: Bound, code: ErrorCode, named: str
) -> None:
    with pytest.raises(FencelogError) as raised:
        of_partition_0(asked(starting, ending))
    assert raised.value.code is code
    assert named in raised.value.detail
    low, high = of_partition_0(asked(starting, ending, fail=False))
    assert 5 <= low <= high <= 30


def test_without_failing_the_nearest_offsets_are_read() -> None:
    assert of_partition_0(asked(at(4), at(99), fail=False)) == (5, 30)
    assert of_partition_0(asked(at(1), at(3), fail=False)) == (5, 5)
    assert of_partition_0(asked(at(31), at(40), fail=False)) == (30, 30)


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize(
    ("starting", "ending", "named"),
    [
        (at(9), at(8), "starting offset 9 is after ending offset 8"),
        (Bound(End.LATEST), Bound(End.EARLIEST), "30 is after ending offset 5"),
        (at(5, 0, 0), Bound(End.LATEST), "default/t has 2 partitions, a starting offset or time"),
        (at(5), Bound(End.LATEST, {"default/x": {0: 1}}), "has 0 partitions, a ending"),
    ],
)
def test_what_makes_no_sense_is_refused(
    starting: Bound, ending: Bound, named: str, fail: bool
) -> None:
    with pytest.raises(FencelogError) as raised:
        of_partition_0(asked(starting, ending, fail=fail))
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert named in raised.value.detail


def test_the_compacted_view_begins_with_the_first_offset() -> None:
    everything = asked(Bound(End.EARLIEST), Bound(End.LATEST))
    assert of_partition_0(replace(everything, is_compacted=True)) == (0, 30)


def test_times_are_the_offsets_that_the_service_found() -> None:
    options = asked(Bound(AtTime(100)), at(AtTime(200), rest=End.LATEST))
    assert times_wanted(options, T, 0) == {100, 200}
    assert times_wanted(options, T, 1) == {100}
    found = {(T, 0, 100): 8, (T, 0, 200): 12, (T, 1, 100): 0, ("default/u", 0, 100): 7}
    times = {key: TimeOffset(offset, is_found=True) for key, offset in found.items()}
    assert of_partition_0(options, times) == (8, 12)


def test_what_was_appended_after_the_ends_were_read_is_outside() -> None:
    options = asked(at(AtTime(100)), Bound(End.LATEST))
    assert of_partition_0(options, {(T, 0, 100): TimeOffset(33, is_found=False)}) == (30, 30)


def test_an_end_before_the_start_by_time_is_an_empty_read() -> None:
    options = asked(at(AtTime(100)), at(AtTime(50), rest=End.LATEST))
    times = {(T, 0, 100): TimeOffset(20, is_found=True), (T, 0, 50): TimeOffset(9, is_found=True)}
    assert of_partition_0(options, times) == (20, 20)


def test_a_broker_that_knows_an_old_tail_does_not_end_a_read() -> None:
    """Messages above its tail may be earlier than the time all the same."""
    options = asked(at(End.EARLIEST), at(AtTime(100), rest=End.LATEST))
    assert of_partition_0(options, {(T, 0, 100): TimeOffset(20, is_found=False)}) == (5, 30)
    assert of_partition_0(options, {(T, 0, 100): TimeOffset(20, is_found=True)}) == (5, 20)
