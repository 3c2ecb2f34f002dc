"""The planning of Spark's tasks from the segments of a topic: a pure function.

The wanted parts of all segments are laid end to end and cut, between entries, where a task is full.
So tasks are even whatever the sizes of ledgers, small ledgers share a task, and only the answers
themselves depend on the moment of planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.spark_connector.planning.offsets import Offsets
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.segments import LedgerSegment, PartitionSegments


@dataclass(frozen=True, slots=True)
class EntryRange:
    """A range of entries to read, ``first_entry`` to ``last_entry`` (inclusive) of a ledger, and of
    their messages those with ``start_offset <= offset < end_offset``. ``size_bytes`` is an
    estimate."""

    topic: str
    topic_id: str
    partition: int
    ledger: LedgerMetadata
    base_offset: int
    """The offset of the ledger's message number 0."""
    first_entry: int
    last_entry: int
    start_offset: int
    end_offset: int
    size_bytes: int
    publish_time_us: int | None = None
    """The publish time of all messages; None: the entries say it."""
    holds_start: bool = True
    """False: the message at ``start_offset`` may be in a range that was cut off before this one."""
    holds_end: bool = True
    """False: the message before ``end_offset`` may be in a range that was cut off behind this
    one."""

    @property
    def entries(self) -> int:
        return self.last_entry - self.first_entry + 1

    def cut(self, entries: int) -> tuple[EntryRange, EntryRange]:
        """Return the first ``entries`` entries, and the others (at least one each)."""
        head_bytes = self.size_bytes * entries // self.entries
        middle = self.first_entry + entries
        tail_bytes = self.size_bytes - head_bytes
        head = replace(self, last_entry=middle - 1, size_bytes=head_bytes, holds_end=False)
        tail = replace(self, first_entry=middle, size_bytes=tail_bytes, holds_start=False)
        return head, tail

    def __str__(self) -> str:
        """Return what the range is of, for messages."""
        return (
            f"ledger {self.ledger.ledger_id} (partition {self.partition} of {self.topic}, "
            f"offsets {self.start_offset} to {self.end_offset - 1})"
        )


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The reads of one Spark partition, in this order, and the addresses of the bookies."""

    ranges: tuple[EntryRange, ...]
    bookies: Mapping[str, str]


def plan(
    answers: Sequence[PartitionSegments], start: Offsets, end: Offsets, options: ReadOptions
) -> list[ScanTask]:
    """Return the tasks that read every partition from ``start`` up to but not including ``end``, in
    order of topic, partition and offset; none if nothing is wanted.

    A partition without both is not read. The offsets are those that the segments hold. There are
    about ``min_partitions`` tasks, or more if these would be larger than
    ``target_partition_bytes``.
    """
    ranges = [wanted for answer in answers for wanted in _wanted(answer, start, end)]
    total = sum(wanted.size_bytes for wanted in ranges)
    target = min(options.target_partition_bytes, max(1, -(-total // options.min_partitions)))
    bookies = {id_: address for answer in answers for id_, address in answer.bookies.items()}
    return [scan_task(group, bookies) for group in _pack(ranges, target)]


def _wanted(answer: PartitionSegments, starts: Offsets, ends: Offsets) -> Iterator[EntryRange]:
    start = starts.get(answer.topic, {}).get(answer.partition, 0)
    end = ends.get(answer.topic, {}).get(answer.partition, start)
    return entry_ranges(answer, start, end)


def entry_ranges(answer: PartitionSegments, start: int, end: int) -> Iterator[EntryRange]:
    """Yield what the partition has of the messages from ``start`` up to but not including ``end``,
    a range for each ledger."""
    for segment in answer.segments:
        low = max(start, answer.earliest_offset, segment.base_offset)
        high = min(end, segment.end_offset)
        if low < high:
            yield EntryRange(
                topic=answer.topic,
                topic_id=answer.topic_id,
                partition=answer.partition,
                ledger=segment.ledger,
                base_offset=segment.base_offset,
                first_entry=segment.first_entry,
                last_entry=segment.last_entry,
                start_offset=low,
                end_offset=high,
                size_bytes=_estimated_bytes(segment, messages=high - low),
                publish_time_us=segment.publish_time_us,
            )


def _estimated_bytes(segment: LedgerSegment, *, messages: int) -> int:
    """Return the share of the wanted messages, at least a byte an entry so that the range can be
    cut."""
    return max(segment.size_bytes * messages // segment.messages, segment.entries)


def _pack(ranges: Iterable[EntryRange], target: int) -> Iterator[list[EntryRange]]:
    """Cut the ranges, laid end to end, into groups of about ``target`` bytes (at most one entry
    more, so there are never more groups than total / target, rounded up)."""
    group: list[EntryRange] = []
    capacity = target
    for wanted in ranges:
        rest: EntryRange | None = wanted
        while rest is not None:
            fitting = -(-capacity * rest.entries // rest.size_bytes)
            head, rest = rest.cut(fitting) if fitting < rest.entries else (rest, None)
            group.append(head)
            capacity -= head.size_bytes
            if capacity <= 0:
                yield group
                group, capacity = [], target
    if group:
        yield group


def scan_task(ranges: Sequence[EntryRange], bookies: Mapping[str, str]) -> ScanTask:
    """Return the task that reads these ranges, with the addresses of the bookies that it needs."""
    needed = {
        bookie
        for wanted in ranges
        for fragment in wanted.ledger.fragments
        for bookie in fragment.bookies
    }
    known = {bookie: bookies[bookie] for bookie in sorted(needed) if bookie in bookies}
    return ScanTask(tuple(ranges), known)
