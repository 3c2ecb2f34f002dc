"""Tasks of a micro-batch: every message once, in order, evenly, by start and end alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencelog.spark_connector.stream.position_core import StreamPosition
from fencelog.spark_connector.stream.slices_core import (
    MAX_TASKS,
    TASK_MESSAGES,
    OffsetSlice,
    slices,
)
from fencelog.spark_connector.stream.tasks_core import broker_tasks, scan_tasks
from tests.spark.support.logs import BOOKIES, segments

T = "default/t"


def at(*offsets: int, topic: str = T) -> StreamPosition:
    return StreamPosition({topic: "id"}, {topic: dict(enumerate(offsets))})


@given(
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 300_000)), max_size=8),
    st.integers(1, 50),
)
def test_every_message_is_in_one_task_in_order(
    ranges: list[tuple[int, int]], min_partitions: int
) -> None:
    start, end = at(*(low for low, _ in ranges)), at(*(low + count for low, count in ranges))
    groups = slices(start, end, min_partitions=min_partitions)
    flat = [each for group in groups for each in group]
    assert all(each.start < each.end for each in flat)
    assert flat == sorted(flat, key=lambda each: (each.partition, each.start))
    expected = {number: low for number, (low, _) in enumerate(ranges)}
    for each in flat:
        assert each.start == expected[each.partition]
        expected[each.partition] = each.end
    assert expected == dict(end.offsets[T])
    sizes = [sum(each.end - each.start for each in group) for group in groups]
    assert len(set(sizes[:-1])) <= 1
    assert max(sizes, default=0) <= max(TASK_MESSAGES, sum(sizes) // MAX_TASKS + 1)
    assert len(groups) <= max(min_partitions, MAX_TASKS)


def test_small_partitions_share_a_task() -> None:
    groups = slices(at(0, 0, 0), at(10, 0, 5), min_partitions=1)
    assert groups == [[OffsetSlice(T, 0, 0, 10), OffsetSlice(T, 2, 0, 5)]]


def test_more_tasks_can_be_asked_for() -> None:
    groups = slices(at(0), at(10), min_partitions=3)
    assert [[(each.start, each.end) for each in group] for group in groups] == [
        [(0, 4)],
        [(4, 8)],
        [(8, 10)],
    ]
    assert len(slices(at(0), at(2), min_partitions=9)) == 2


def test_a_large_backlog_has_larger_tasks_instead_of_more() -> None:
    assert len(slices(at(0), at(3 * TASK_MESSAGES), min_partitions=1)) == 3
    assert len(slices(at(0), at(1000 * TASK_MESSAGES), min_partitions=1)) == MAX_TASKS


def test_nothing_new_is_no_task() -> None:
    assert slices(at(3, 4), at(3, 4), min_partitions=4) == []
    assert slices(at(3, 4), at(3, 2), min_partitions=4) == []  # the topic lost messages
    assert slices(StreamPosition({}, {}), StreamPosition({}, {}), min_partitions=1) == []


def test_topics_come_in_order_and_new_ones_from_their_beginning() -> None:
    end = StreamPosition({T: "1", "default/a": "2"}, {T: {0: 9}, "default/a": {0: 2}})
    groups = slices(at(7), end, min_partitions=1)
    assert groups == [[OffsetSlice("default/a", 0, 0, 2), OffsetSlice(T, 0, 7, 9)]]


def test_slices_become_reads_of_ledgers() -> None:
    answers = [segments((10, 100), (10, 100), earliest=3), segments((5, 5), partition=1)]
    groups = slices(at(0, 0), at(15, 5), min_partitions=2)
    tasks = scan_tasks(groups, answers)
    assert [
        [(r.partition, r.ledger.ledger_id, r.start_offset, r.end_offset) for r in task.ranges]
        for task in tasks
    ] == [[(0, 0, 3, 10)], [(0, 1, 10, 15), (1, 100, 0, 5)]]
    assert tasks[0].bookies == BOOKIES


def test_what_is_lost_leaves_the_other_tasks_as_they_are() -> None:
    groups = slices(at(0, 0), at(10, 10), min_partitions=4)
    later = [segments((3, 3), first=7, earliest=7)]
    tasks = scan_tasks(groups, later)
    assert [[(r.start_offset, r.end_offset) for r in task.ranges] for task in tasks] == [
        [],
        [(7, 10)],
        [],
        [],
    ]


def test_slices_become_reads_through_brokers() -> None:
    answers = [segments((10, 100), (10, 100), earliest=3), segments((5, 5), partition=1)]
    groups = slices(at(0, 0), at(15, 5), min_partitions=2)
    reads = [
        [(r.partition, r.start_offset, r.end_offset) for r in task.reads]
        for task in broker_tasks(groups, answers)
    ]
    assert reads == [[(0, 3, 10)], [(0, 10, 15), (1, 0, 5)]]
    trimmed = [segments((3, 3), first=12, earliest=12)]
    assert [len(task.reads) for task in broker_tasks(groups, trimmed)] == [0, 1]


def test_reads_through_brokers_end_with_the_log() -> None:
    groups = slices(at(0, 0), at(10, 10), min_partitions=2)
    tasks = broker_tasks(groups, [segments((4, 4)), segments(partition=1)])
    assert [[(read.start_offset, read.end_offset) for read in task.reads] for task in tasks] == [
        [(0, 4)],
        [],
    ]
