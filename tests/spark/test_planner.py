"""Planning: every wanted entry in exactly one task, tasks even, offsets checked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.spark_connector.options import Bound, ReadOptions
from fencelog.spark_connector.planner import ScanTask, plan
from fencelog.spark_connector.segments import LedgerSegment, PartitionSegments

OPTIONS = ReadOptions(("http://127.0.0.1:1",), "default/t")
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
    return PartitionSegments(partition, earliest, offset, tuple(segments), BOOKIES)


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
    tasks = plan(answers, replace(OPTIONS, target_partition_bytes=target))
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
def test_there_are_at_most_as_many_tasks_as_asked_for(
    answers: list[PartitionSegments], wanted: int
) -> None:
    tasks = plan(answers, replace(OPTIONS, partitions=wanted, target_partition_bytes=1))
    assert len(tasks) <= wanted
    assert len(entries_of(tasks)) == sum(s.entries for a in answers for s in a.segments)


@given(answers, st.data())
def test_offsets_bound_every_range(answers: list[PartitionSegments], data: st.DataObject) -> None:
    starts = {a.partition: data.draw(st.integers(0, a.end_offset)) for a in answers}
    ends = {p: data.draw(st.integers(s, answers[p].end_offset)) for p, s in starts.items()}
    options = replace(OPTIONS, starting=Bound("earliest", starts), ending=Bound("latest", ends))
    wanted = dict.fromkeys(starts, 0)
    seen: set[tuple[int, int, int]] = set()
    for task in plan(answers, options):
        for part in task.ranges:
            bounds = (part.partition, part.start_offset, part.end_offset)
            assert starts[part.partition] <= part.start_offset < part.end_offset
            assert part.end_offset <= ends[part.partition]
            if bounds not in seen:
                seen.add(bounds)
                wanted[part.partition] += part.end_offset - part.start_offset
    assert wanted == {p: ends[p] - starts[p] for p in starts}


def test_even_entries_make_exactly_the_tasks_asked_for() -> None:
    tasks = plan([log((100, 1000, 4096))], replace(OPTIONS, partitions=4))
    assert [task.ranges[0].entries for task in tasks] == [25, 25, 25, 25]


def test_small_ledgers_share_a_task_across_partitions() -> None:
    (task,) = plan([log((1, 5, 90), (2, 9, 80)), log((1, 1, 10), partition=1)], OPTIONS)
    assert [(part.partition, part.ledger.ledger_id) for part in task.ranges] == [
        (0, 0),
        (0, 1),
        (1, 100),
    ]


def test_tasks_carry_the_addresses_of_their_bookies_only() -> None:
    (task,) = plan([log((1, 1, 1))], OPTIONS)
    assert task.bookies == {id_: BOOKIES[id_] for id_ in ("b1", "b2", "b3")}
    assert task.topic == "default/t"


def test_nothing_wanted_makes_no_task() -> None:
    answer = log((3, 30, 300))
    assert plan([log()], OPTIONS) == []
    assert plan([answer], replace(OPTIONS, starting=Bound("latest"))) == []
    assert plan([answer], replace(OPTIONS, ending=Bound("earliest"))) == []


@pytest.mark.parametrize(
    ("starting", "ending", "code", "named"),
    [
        (
            Bound("earliest", {0: 4}),
            Bound("latest"),
            ErrorCode.OFFSET_TRIMMED,
            "begins at offset 5",
        ),
        (Bound("earliest", {0: 31}), Bound("latest"), ErrorCode.OFFSET_BEYOND_TAIL, "offset 30"),
        (Bound("earliest"), Bound("latest", {0: 99}), ErrorCode.OFFSET_BEYOND_TAIL, "to 99"),
        (Bound("earliest", {0: 9}), Bound("latest", {0: 8}), ErrorCode.BAD_REQUEST, "9 is after"),
        (Bound("latest"), Bound("earliest"), ErrorCode.BAD_REQUEST, "30 is after"),
        (Bound("earliest", {2: 0}), Bound("latest"), ErrorCode.BAD_REQUEST, "has 1 partitions"),
    ],
)
def test_offsets_that_are_not_there_are_refused(
    starting: Bound, ending: Bound, code: ErrorCode, named: str
) -> None:
    answer = log((3, 30, 300), earliest=5)
    with pytest.raises(FencelogError) as raised:
        plan([answer], replace(OPTIONS, starting=starting, ending=ending))
    assert raised.value.code is code
    assert named in raised.value.detail
