"""The messages that a stream has not read yet, and the checks that it can go on at all.

A partition that was added later, and with a pattern a topic, is read from offset 0. Messages that
the log no longer has are a loss, which is refused or passed over (``failOnDataLoss``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.offsets import Offsets
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.segments import PartitionSegments
from fencelog.spark_connector.stream.position_core import StreamPosition


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages of a partition from ``start`` up to but not including ``end``."""

    partition: PartitionSegments
    start: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.start

    @property
    def size_bytes(self) -> int:
        """Return the stored bytes, estimated: messages of one ledger count as equally large."""
        return sum(size for _, size in self._parts())

    def messages_within(self, size_bytes: int) -> int:
        """Return how many messages from ``start`` on have this size together."""
        found = 0
        for messages, size in self._parts():
            if size > size_bytes:
                return found + messages * size_bytes // size
            found += messages
            size_bytes -= size
        return found

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield the messages of each ledger and their size, at least a byte each."""
        for segment in self.partition.segments:
            low, high = max(self.start, segment.base_offset), min(self.end, segment.end_offset)
            if low < high:
                size = (high - low) * segment.size_bytes // segment.messages
                yield high - low, max(size, high - low)


def check_topics(start: StreamPosition, ids: Mapping[str, str], options: ReadOptions) -> None:
    """Check that a stream at ``start`` is one of these topics, given by their ids.

    Raises FencelogError: BAD_REQUEST for a topic that the options do not select, TOPIC_NOT_FOUND
    for one that is another topic now.
    """
    for topic, topic_id in sorted(start.ids.items()):
        if not options.selects(topic):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"the checkpoint is of topic {topic}, the query reads {options.what}: "
                f"another query needs another checkpoint",
            )
        if ids.get(topic, topic_id) != topic_id:
            raise FencelogError(
                ErrorCode.TOPIC_NOT_FOUND,
                f"topic {topic} was deleted and created again: the checkpoint is of the topic with "
                f"id {topic_id}, now its id is {ids[topic]}; read it with a new checkpoint",
            )


def check_complete(start: StreamPosition, answers: Sequence[PartitionSegments]) -> None:
    """Check that the log has every message from ``start`` on. An answer that ``is_doubtful`` has to
    be a confirmed one.

    Raises FencelogError: OFFSET_TRIMMED, OFFSET_BEYOND_TAIL, TOPIC_NOT_FOUND, naming what is lost.
    """
    ask = "(failOnDataLoss=false goes on without)"
    for answer in answers:
        offset = start.next_offset(answer.topic, answer.partition)
        where = f"partition {answer.partition} of {answer.topic}"
        if offset < answer.earliest_offset:
            raise FencelogError(
                ErrorCode.OFFSET_TRIMMED,
                f"messages {offset} to {answer.earliest_offset - 1} of {where} were trimmed before "
                f"the stream has read them {ask}",
            )
        if offset > answer.end_offset:
            raise FencelogError(
                ErrorCode.OFFSET_BEYOND_TAIL,
                f"the stream has read {where} up to offset {offset}, it ends at "
                f"{answer.end_offset} {ask}",
            )
    if gone := sorted(start.offsets.keys() - {answer.topic for answer in answers}):
        raise FencelogError(
            ErrorCode.TOPIC_NOT_FOUND, f"topic {gone[0]} of the stream was deleted {ask}"
        )


def check_partitions(position: StreamPosition, found: StreamPosition) -> None:
    """Check that every partition of ``position`` was found whose topic was. A topic never gets
    fewer of them, so a missing one is no loss: a server of the metadata store lags behind.

    Raises FencelogError: READ_UNKNOWN, naming the partition.
    """
    for topic, partitions in sorted(position.offsets.items()):
        missing = partitions.keys() - found.offsets.get(topic, partitions).keys()
        if missing:
            number = min(missing)
            raise FencelogError(
                ErrorCode.READ_UNKNOWN,
                f"the stream has offset {partitions[number]} of partition {number} of {topic}, "
                f"which the service does not show as yet",
            )


def backlogs(
    start: StreamPosition, answers: Sequence[PartitionSegments], target: Offsets | None
) -> list[Backlog]:
    """Return what there is to read, in order of topic and partition, without what was trimmed.
    Nothing beyond ``target``, where there is one, and nothing of partitions that it lacks."""
    found = []
    for answer in answers:
        offset = start.next_offset(answer.topic, answer.partition)
        low, end = max(offset, answer.earliest_offset), answer.end_offset
        if target is not None:
            end = min(end, target.get(answer.topic, {}).get(answer.partition, 0))
        if low < end:
            found.append(Backlog(answer, low, end))
    return found


def covers(answers: Sequence[PartitionSegments], end: StreamPosition) -> bool:
    """Tell whether the answers reach to ``end`` in every partition."""
    ends = ends_of(answers).offsets
    return all(
        ends.get(topic, {}).get(partition, 0) >= offset
        for topic, offsets in end.offsets.items()
        for partition, offset in offsets.items()
    )


def is_doubtful(answers: Sequence[PartitionSegments], known: StreamPosition) -> bool:
    """Tell whether a partition ends below an offset that is known of it, or is of another topic of
    that name than the one that is known."""
    return any(
        answer.end_offset < known.next_offset(answer.topic, answer.partition)
        or answer.topic_id != known.ids.get(answer.topic, answer.topic_id)
        for answer in answers
    )


def within(position: StreamPosition, answers: Sequence[PartitionSegments]) -> StreamPosition:
    """Return the position, or the end of each partition that ends below it."""
    ends = ends_of(answers).offsets
    offsets = {
        topic: {p: min(offset, ends.get(topic, {}).get(p, offset)) for p, offset in each.items()}
        for topic, each in position.offsets.items()
    }
    return StreamPosition(position.ids, offsets)


def ends_of(answers: Sequence[PartitionSegments]) -> StreamPosition:
    """Return the ends of all partitions."""
    offsets: dict[str, dict[int, int]] = {}
    for answer in answers:
        offsets.setdefault(answer.topic, {})[answer.partition] = answer.end_offset
    return StreamPosition({answer.topic: answer.topic_id for answer in answers}, offsets)
