"""The planning of tasks that read through brokers, by offset: a pure function.

Nothing is known of entries there, so a partition is cut as if its messages were of one size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fencelog.spark_connector.planning.offsets import End, Offsets
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.planner import ScanTask
from fencelog.spark_connector.planning.segments import PartitionSegments


@dataclass(frozen=True, slots=True)
class BrokerRead:
    """The messages of a partition with ``start_offset <= offset < end_offset``, or to the tail as
    it is when the reader arrives (None). ``least_end``: that tail is not before it, since it was
    confirmed when this was planned. ``size_bytes`` is an estimate."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int | None
    size_bytes: int
    least_end: int = 0


@dataclass(frozen=True, slots=True)
class BrokerTask:
    """The reads of one Spark partition through brokers, in this order."""

    reads: tuple[BrokerRead, ...]


ReadTask = ScanTask | BrokerTask
"""The reads of one Spark partition, either way."""


def plan_broker_reads(
    answers: Sequence[PartitionSegments], start: Offsets, end: Offsets, options: ReadOptions
) -> list[BrokerTask]:
    """Return the tasks that read every partition from ``start`` up to but not including ``end``, in
    order; about as many and as large as ``plan`` makes them.

    The compacted view is read by one task for each partition: it changes while it is read, and only
    who reads on to its end, in order, is sure to meet the newest message of every key.
    """
    ranges = [
        (answer, start[answer.topic][answer.partition], end[answer.topic][answer.partition])
        for answer in answers
    ]
    if options.is_compacted:
        to_tail = options.ending.rest is End.LATEST and not options.ending.by_topic
        return [
            BrokerTask((_read(answer, low, None if to_tail else high, 0, least_end=high),))
            for answer, low, high in ranges
            if to_tail or low < high
        ]
    sizes = [_estimated_bytes(answer, low, high) for answer, low, high in ranges]
    smallest = max(1, -(-sum(sizes) // options.min_partitions))
    target = min(options.target_partition_bytes, smallest)
    reads = [
        piece
        for (answer, low, high), size in zip(ranges, sizes, strict=True)
        for piece in _cut(answer, low, high, size, target)
    ]
    return [BrokerTask(tuple(group)) for group in _pack(reads, target)]


def _estimated_bytes(answer: PartitionSegments, low: int, high: int) -> int:
    """Return the bytes of these messages, at least one for each."""
    wanted = 0
    for segment in answer.segments:
        messages = min(high, segment.end_offset) - max(low, segment.base_offset)
        if messages > 0:
            wanted += max(messages, segment.size_bytes * messages // segment.messages)
    return wanted


def _cut(
    answer: PartitionSegments, low: int, high: int, size: int, target: int
) -> Iterator[BrokerRead]:
    messages = high - low
    if messages <= 0:
        return
    count = min(messages, max(1, (size + target // 2) // target))
    bounds = [low + messages * number // count for number in range(count + 1)]
    for begin, end in pairwise(bounds):
        yield _read(answer, begin, end, size // count)


def _read(
    answer: PartitionSegments, low: int, high: int | None, size: int, *, least_end: int = 0
) -> BrokerRead:
    topic, topic_id = answer.topic, answer.topic_id
    return BrokerRead(topic, topic_id, answer.partition, low, high, size, least_end)


def _pack(reads: Sequence[BrokerRead], target: int) -> Iterator[list[BrokerRead]]:
    """Yield groups of neighbouring reads of at most ``target`` bytes, or one that is larger; small
    partitions share a task."""
    group: list[BrokerRead] = []
    total = 0
    for read in reads:
        if group and total + read.size_bytes > target:
            yield group
            group, total = [], 0
        group.append(read)
        total += read.size_bytes
    if group:
        yield group
