"""The planning of Spark's tasks from the segments of a topic: a pure function.

The wanted parts of all segments are laid end to end and cut, between entries, where a task is full.
So tasks are even whatever the sizes of ledgers, small ledgers share a task, and only the answers
themselves depend on the moment of planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.spark_connector.options import ReadOptions
from fencelog.spark_connector.segments import LedgerSegment, PartitionSegments


@dataclass(frozen=True, slots=True)
class EntryRange:
    """A range of entries to read, ``first_entry`` to ``last_entry`` (inclusive) of a ledger, and of
    their messages those with ``start_offset <= offset < end_offset``. ``size_bytes`` is an
    estimate."""

    partition: int
    ledger: LedgerMetadata
    base_offset: int
    """The offset of the ledger's message number 0."""
    first_entry: int
    last_entry: int
    start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def entries(self) -> int:
        return self.last_entry - self.first_entry + 1

    def cut(self, entries: int) -> tuple[EntryRange, EntryRange]:
        """Return the first ``entries`` entries, and the others (at least one each)."""
        head_bytes = self.size_bytes * entries // self.entries
        middle = self.first_entry + entries
        head = replace(self, last_entry=middle - 1, size_bytes=head_bytes)
        tail = replace(self, first_entry=middle, size_bytes=self.size_bytes - head_bytes)
        return head, tail


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The reads of one Spark partition, in this order, and the addresses of the bookies."""

    topic: str
    ranges: tuple[EntryRange, ...]
    bookies: Mapping[str, str]


def plan(answers: Sequence[PartitionSegments], options: ReadOptions) -> list[ScanTask]:
    """Return the tasks of a read, in order of partition and offset; none if nothing is wanted.

    With the option ``partitions`` there are at most that many tasks, and fewer only where there are
    fewer entries. Raises FencelogError: BAD_REQUEST, OFFSET_TRIMMED, OFFSET_BEYOND_TAIL for offsets
    that the topic does not have.
    """
    _check_partitions_exist(answers, options)
    ranges = [wanted for answer in answers for wanted in _wanted(answer, options)]
    total = sum(wanted.size_bytes for wanted in ranges)
    target = options.target_partition_bytes
    if options.partitions is not None:
        target = max(1, -(-total // options.partitions))
    bookies = {id_: address for answer in answers for id_, address in answer.bookies.items()}
    return [_task(options.topic, group, bookies) for group in _pack(ranges, target)]


def _check_partitions_exist(answers: Sequence[PartitionSegments], options: ReadOptions) -> None:
    existing = {answer.partition for answer in answers}
    for bound in (options.starting, options.ending):
        if missing := sorted(bound.by_partition.keys() - existing):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"topic {options.topic} has {len(existing)} partitions, "
                f"offsets are given for partition {missing[0]}",
            )


def _wanted(answer: PartitionSegments, options: ReadOptions) -> Iterator[EntryRange]:
    start, end = _offsets(answer, options)
    for segment in answer.segments:
        low, high = max(start, segment.base_offset), min(end, segment.end_offset)
        if low < high:
            yield EntryRange(
                partition=answer.partition,
                ledger=segment.ledger,
                base_offset=segment.base_offset,
                first_entry=segment.first_entry,
                last_entry=segment.last_entry,
                start_offset=low,
                end_offset=high,
                size_bytes=_estimated_bytes(segment, messages=high - low),
            )


def _offsets(answer: PartitionSegments, options: ReadOptions) -> tuple[int, int]:
    """Return the wanted offsets of a partition, checked against the offsets that it has."""
    earliest, latest = answer.earliest_offset, answer.end_offset
    start = options.starting.of(answer.partition, earliest=earliest, latest=latest)
    end = options.ending.of(answer.partition, earliest=earliest, latest=latest)
    where = f"partition {answer.partition} of {options.topic}"
    if start < earliest:
        raise FencelogError(
            ErrorCode.OFFSET_TRIMMED, f"{where} begins at offset {earliest}, asked from {start}"
        )
    if max(start, end) > latest:
        raise FencelogError(
            ErrorCode.OFFSET_BEYOND_TAIL,
            f"{where} ends at offset {latest}, asked from {start} to {end}",
        )
    if start > end:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"{where}: startingOffsets {start} is after endingOffsets {end}"
        )
    return start, end


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


def _task(topic: str, ranges: Sequence[EntryRange], bookies: Mapping[str, str]) -> ScanTask:
    needed = {
        bookie
        for wanted in ranges
        for fragment in wanted.ledger.fragments
        for bookie in fragment.bookies
    }
    known = {bookie: bookies[bookie] for bookie in sorted(needed) if bookie in bookies}
    return ScanTask(topic, tuple(ranges), known)
