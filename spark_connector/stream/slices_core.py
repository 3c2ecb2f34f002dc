"""The division of a micro-batch into tasks: a pure function of its start, its end and the options.

Spark repeats a micro-batch that failed with the same start and end, and a task then has to return
the same rows in the same order. So tasks are cut by offsets alone: ledgers and their sizes may have
changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fencelog.spark_connector.stream.position_core import StreamPosition

TASK_MESSAGES = 50_000
"""The messages of one task. A task costs 26 to 72 ms whatever it holds; reading as many takes about
as long."""

MAX_TASKS = 200
"""The number of tasks from which on they get larger instead, unless ``minPartitions`` asks for
more."""


@dataclass(frozen=True, slots=True)
class OffsetSlice:
    """The messages of a partition from ``start`` up to but not including ``end``."""

    topic: str
    partition: int
    start: int
    end: int


def slices(
    start: StreamPosition, end: StreamPosition, *, min_partitions: int
) -> list[list[OffsetSlice]]:
    """Return the slices of each task, in order of topic, partition and offset; none if ``start`` is
    ``end``. Tasks are equally large."""
    wanted = list(_wanted(start, end))
    total = sum(each.end - each.start for each in wanted)
    tasks = max(min_partitions, min(-(-total // TASK_MESSAGES), MAX_TASKS))
    return list(_cut(wanted, max(1, -(-total // tasks))))


def _wanted(start: StreamPosition, end: StreamPosition) -> Iterator[OffsetSlice]:
    for topic, partitions in sorted(end.offsets.items()):
        for partition, last in sorted(partitions.items()):
            first = start.next_offset(topic, partition)
            if first < last:
                yield OffsetSlice(topic, partition, first, last)


def _cut(wanted: list[OffsetSlice], messages: int) -> Iterator[list[OffsetSlice]]:
    """Cut the slices, laid end to end, into groups of so many messages, the last one maybe of
    fewer."""
    group: list[OffsetSlice] = []
    free = messages
    for each in wanted:
        low = each.start
        while low < each.end:
            high = min(each.end, low + free)
            group.append(OffsetSlice(each.topic, each.partition, low, high))
            free -= high - low
            low = high
            if not free:
                yield group
                group, free = [], messages
    if group:
        yield group
