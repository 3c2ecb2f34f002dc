"""Planning reads through brokers: every wanted offset in exactly one read, tasks even."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.spark_connector.planning.broker_reads import BrokerTask, plan_broker_reads
from fencelog.spark_connector.planning.offsets import Bound, End
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.segments import LedgerSegment, PartitionSegments

T = "default/t"
OPTIONS = ReadOptions(("http://127.0.0.1:1",), (T,), through_brokers=True)
LEDGER = new_metadata(1, ensemble=("b",), write_quorum=1, ack_quorum=1, token="t")


def log(partition: int, *ledgers: tuple[int, int]) -> PartitionSegments:
    """A partition of ledgers, each given as (messages, bytes)."""
    segments, offset = [], 0
    for messages, size in ledgers:
        segments.append(LedgerSegment(LEDGER, offset, messages, 0, 0, size))
        offset += messages
    return PartitionSegments(T, partition, 0, offset, tuple(segments), {}, "id")


def planned(
    answers: list[PartitionSegments], options: ReadOptions, *, start: int = 0
) -> list[BrokerTask]:
    starts = {T: {answer.partition: min(start, answer.end_offset) for answer in answers}}
    ends = {T: {answer.partition: answer.end_offset for answer in answers}}
    return plan_broker_reads(answers, starts, ends, options)


logs = st.lists(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 5000)), max_size=4),
    min_size=1,
    max_size=4,
).map(lambda shapes: [log(number, *ledgers) for number, ledgers in enumerate(shapes)])


@given(logs, st.integers(1, 3000), st.integers(1, 9), st.integers(0, 200))
def test_all_offsets_are_planned_once_in_order(
    answers: list[PartitionSegments], target: int, tasks: int, start: int
) -> None:
    options = replace(OPTIONS, target_partition_bytes=target, min_partitions=tasks)
    reads = [piece for task in planned(answers, options, start=start) for piece in task.reads]
    assert [
        (piece.partition, offset)
        for piece in reads
        for offset in range(piece.start_offset, piece.end_offset or 0)
    ] == [
        (answer.partition, offset)
        for answer in answers
        for offset in range(min(start, answer.end_offset), answer.end_offset)
    ]
    assert all(piece.end_offset != piece.start_offset for piece in reads)


def test_tasks_are_even_and_as_many_as_asked_for() -> None:
    tasks = planned(
        [log(0, (600, 60_000)), log(1, (600, 60_000))], replace(OPTIONS, min_partitions=4)
    )
    assert [len(task.reads) for task in tasks] == [1, 1, 1, 1]
    assert {piece.size_bytes for task in tasks for piece in task.reads} == {30_000}


def test_small_partitions_share_a_task() -> None:
    (task,) = planned([log(0, (5, 50)), log(1, (5, 50)), log(2)], OPTIONS)
    assert [piece.partition for piece in task.reads] == [0, 1]


def test_the_compacted_view_is_one_task_for_each_partition_to_its_tail() -> None:
    answers = [log(0, (600, 60_000)), log(1)]
    options = replace(OPTIONS, is_compacted=True, target_partition_bytes=1)
    tasks = planned(answers, options)
    reads = [piece for task in tasks for piece in task.reads]
    assert [(each.partition, each.end_offset, each.least_end) for each in reads] == [
        (0, None, answers[0].end_offset),
        (1, None, answers[1].end_offset),
    ]
    bounded = replace(options, ending=Bound(End.LATEST, {T: {0: 600}}))
    assert [task.reads[0].end_offset for task in planned(answers, bounded)] == [600]
