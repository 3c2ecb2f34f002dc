"""The reads of each task of a micro-batch: slices of offsets as ranges of entries, or as they are
where brokers are asked."""

from __future__ import annotations

from collections.abc import Sequence

from fencelog.spark_connector.planning.broker_reads import BrokerRead, BrokerTask
from fencelog.spark_connector.planning.planner import ScanTask, entry_ranges, scan_task
from fencelog.spark_connector.planning.segments import PartitionSegments
from fencelog.spark_connector.stream.slices_core import OffsetSlice


def scan_tasks(
    groups: Sequence[Sequence[OffsetSlice]], answers: Sequence[PartitionSegments]
) -> list[ScanTask]:
    """Return a task for each group. What the log no longer has is left out of its task; the other
    tasks stay as they are, and so does their number."""
    by_place = {(answer.topic, answer.partition): answer for answer in answers}
    bookies = {id_: address for answer in answers for id_, address in answer.bookies.items()}
    return [
        scan_task(
            [
                found
                for wanted in group
                if (answer := by_place.get((wanted.topic, wanted.partition))) is not None
                for found in entry_ranges(answer, wanted.start, wanted.end)
            ],
            bookies,
        )
        for group in groups
    ]


def broker_tasks(
    groups: Sequence[Sequence[OffsetSlice]], answers: Sequence[PartitionSegments]
) -> list[BrokerTask]:
    """Return a task for each group, which reads through brokers; what the log no longer has is left
    out as in ``scan_tasks``."""
    by_place = {(answer.topic, answer.partition): answer for answer in answers}
    return [
        BrokerTask(
            tuple(
                BrokerRead(wanted.topic, answer.topic_id, wanted.partition, start, end, 0)
                for wanted in group
                if (answer := by_place.get((wanted.topic, wanted.partition))) is not None
                and (start := max(wanted.start, answer.earliest_offset))
                < (end := min(wanted.end, answer.end_offset))
            )
        )
        for group in groups
    ]
