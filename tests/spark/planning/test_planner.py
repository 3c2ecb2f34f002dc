"""Planning: every wanted entry in exactly one task, tasks even, offsets checked."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.planner import ScanTask, plan
from fencelog.spark_connector.planning.segments import LedgerSegment, PartitionSegments

OPTIONS = ReadOptions(("http://127.0.0.1:1",), ("default/t",))
BOOKIES = {"b1": "127.0.0.1:11", "b2": "127.0.0.1:12", "b3": "127.0.0.1:13", "spare": "h:1"}


def ledger(ledger_id: int) -> LedgerMetadata:
    return new_metadata(
        ledger_id, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
    )


def log(*shapes: tuple[int, int, int], partition: int = 0, earliest: int = 0) -> PartitionSegments:
    """A partition of segments, each given as (entries, messages, bytes)."""
    segments = []
    offset = 0
    for number, (entries, messages, size) in enumerate(shapes):
        segments.append(
            LedgerSegment(ledger(100 * partition + number), offset, messages, 0, entries - 1, size)
        )
        offset += messages
    return PartitionSegments(
        "default/t", partition, earliest, offset, tuple(segments), BOOKIES, "id-t"
    )


def everything(answers: list[PartitionSegments], options: ReadOptions) -> list[ScanTask]:
    starts = {"default/t": {answer.partition: answer.earliest_offset for answer in answers}}
    ends = {"default/t": {answer.partition: answer.end_offset for answer in answers}}
    return plan(answers, starts, ends, options)


def entries_of(tasks: list[ScanTask]) -> list[tuple[int, int]]:
    return [
        (part.ledger.ledger_id, entry)
        for task in tasks
        for part in task.ranges
        for entry in range(part.first_entry, part.last_entry + 1)
    ]


shapes = st.builds(
    lambda entries, extra, size: (entries, entries + extra, size),
    st.integers(1, 60),
    st.integers(0, 500),
    st.integers(0, 10_000),
)
answers = st.lists(st.lists(shapes, max_size=6), min_size=1, max_size=4).map(
    lambda logs: [log(*parts, partition=number) for number, parts in enumerate(logs)]
)


@given(answers, st.integers(1, 5_000))
def test_all_entries_are_planned_once_in_order(
    answers: list[PartitionSegments], target: int
) -> None:
    tasks = everything(answers, replace(OPTIONS, target_partition_bytes=target))
    assert entries_of(tasks) == [
        (segment.ledger.ledger_id, entry)
        for answer in answers
        for segment in answer.segments
        for entry in range(segment.entries)
    ]
    sizes = [sum(part.size_bytes for part in task.ranges) for task in tasks]
    assert len(tasks) <= -(-sum(sizes) // target)
    assert all(size >= target for size in sizes[:-1])
    assert all(part.entries > 0 for task in tasks for part in task.ranges)


@given(answers, st.integers(1, 50))
def test_there_are_about_as_many_tasks_as_asked_for(
    answers: list[PartitionSegments], wanted: int
) -> None:
    tasks = everything(answers, replace(OPTIONS, min_partitions=wanted))
    assert len(tasks) <= wanted
    assert len(entries_of(tasks)) == sum(s.entries for a in answers for s in a.segments)


@given(answers, st.data())
def test_offsets_bound_every_range(answers: list[PartitionSegments], data: st.DataObject) -> None:
    starts = {a.partition: data.draw(st.integers(0, a.end_offset)) for a in answers}
    ends = {p: data.draw(st.integers(s, answers[p].end_offset)) for p, s in starts.items()}
    wanted = dict.fromkeys(starts, 0)
    seen: set[tuple[int, int, int]] = set()
    for task in plan(answers, {"default/t": starts}, {"default/t": ends}, OPTIONS):
        for part in task.ranges:
            bounds = (part.partition, part.start_offset, part.end_offset)
            assert starts[part.partition] <= part.start_offset < part.end_offset
            assert part.end_offset <= ends[part.partition]
            if bounds not in seen:
                seen.add(bounds)
                wanted[part.partition] += part.end_offset - part.start_offset
    assert wanted == {p: ends[p] - starts[p] for p in starts}


def test_even_entries_make_exactly_the_tasks_asked_for() -> None:
    tasks = everything([log((100, 1000, 4096))], replace(OPTIONS, min_partitions=4))
    assert [task.ranges[0].entries for task in tasks] == [25, 25, 25, 25]


def test_small_ledgers_share_a_task_across_partitions() -> None:
    (task,) = everything([log((1, 5, 90), (2, 9, 80)), log((1, 1, 10), partition=1)], OPTIONS)
    assert [(part.partition, part.ledger.ledger_id) for part in task.ranges] == [
        (0, 0),
        (0, 1),
        (1, 100),
    ]


def test_tasks_carry_the_addresses_of_their_bookies_only() -> None:
    (task,) = everything([log((1, 1, 1))], OPTIONS)
    assert task.bookies == {id_: BOOKIES[id_] for id_ in ("b1", "b2", "b3")}
    assert [part.topic for part in task.ranges] == ["default/t"]


def test_large_tasks_are_cut_whatever_number_is_asked_for() -> None:
    options = replace(OPTIONS, min_partitions=2, target_partition_bytes=1024)
    assert len(everything([log((100, 1000, 4096))], options)) == 4


def test_nothing_wanted_makes_no_task() -> None:
    answer = log((3, 30, 300))
    assert everything([log()], OPTIONS) == []
    assert plan([answer], {"default/t": {0: 30}}, {"default/t": {0: 30}}, OPTIONS) == []


def test_partitions_without_bounds_are_not_read() -> None:
    answers = [log((3, 30, 300)), log((3, 30, 300), partition=1)]
    assert plan(answers, {}, {}, OPTIONS) == []
    (task,) = plan(answers, {"default/t": {1: 4}}, {"default/t": {1: 9}}, OPTIONS)
    assert [(part.partition, part.start_offset, part.end_offset) for part in task.ranges] == [
        (1, 4, 9)
    ]
