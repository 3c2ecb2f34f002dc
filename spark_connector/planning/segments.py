"""The answer of a partition's owner to the request for its segments, as values.

A segment is a ledger and its place in the log. The answer is bounded by the owner's *confirmed*
end: every entry it names is acknowledged, so it can be read from bookies without asking again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, from_json

DELETED = (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_FOUND)
"""The answers for a partition that was there: its topic was deleted; another one of that name may
have fewer partitions. NOT_FOUND as ``check_deleted`` lets it pass."""


@dataclass(frozen=True, slots=True)
class LedgerSegment:
    """A ledger of a partition: entries ``first_entry`` to ``last_entry`` hold ``messages``
    messages, from ``base_offset`` on. ``size_bytes``: payload, as far as the service knows.
    ``publish_time_us``: of all messages, whatever the entries say; None: the entries say it."""

    ledger: LedgerMetadata
    base_offset: int
    messages: int
    first_entry: int
    last_entry: int
    size_bytes: int
    publish_time_us: int | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.messages

    @property
    def entries(self) -> int:
        return self.last_entry - self.first_entry + 1


@dataclass(frozen=True, slots=True)
class PartitionSegments:
    """One partition of a topic (NAMESPACE/NAME) at one moment: readable offsets are
    ``earliest_offset`` up to but not including ``end_offset``. ``topic_id`` tells the topic from
    others of the same name. ``bookies`` maps bookie ids to ``host:port``."""

    topic: str
    partition: int
    earliest_offset: int
    end_offset: int
    segments: tuple[LedgerSegment, ...]
    bookies: Mapping[str, str]
    topic_id: str


def parse_segments(topic: str, answer: Any, *, from_offset: int = 0) -> PartitionSegments:
    """Parse the answer of ``GET …/partitions/{p}/segments?from_offset={from_offset}``; segments
    without entries are left out.

    Raises FencelogError(CORRUPT) for an answer that no fencelog server gives.
    """
    try:
        segments = [_parse_segment(segment) for segment in answer["segments"]]
        parsed = PartitionSegments(
            topic=topic,
            partition=int(answer["partition"]),
            earliest_offset=int(answer["earliest_offset"]),
            end_offset=int(answer["end_offset"]),
            segments=tuple(segment for segment in segments if segment.entries > 0),
            bookies={str(key): str(value) for key, value in answer["bookies"].items()},
            topic_id=str(answer["topic_id"]),
        )
        _check_order(parsed, from_offset)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FencelogError(
            ErrorCode.CORRUPT, f"the server's list of segments is not valid: {error!r}"
        ) from error
    return parsed


def check_one_topic_each(answers: Sequence[PartitionSegments]) -> None:
    """Check that all answers of one name are of one topic. Raises FencelogError: READ_UNKNOWN, if
    it was deleted and created again while its partitions were asked; ask again."""
    ids: dict[str, str] = {}
    for answer in answers:
        if ids.setdefault(answer.topic, answer.topic_id) != answer.topic_id:
            raise FencelogError(
                ErrorCode.READ_UNKNOWN,
                f"topic {answer.topic} was deleted and created again meanwhile",
            )


def _parse_segment(fields: Any) -> LedgerSegment:
    ledger = from_json(fields["ledger"])
    return LedgerSegment(
        ledger=ledger,
        base_offset=int(fields["base_offset"]),
        messages=int(fields["messages"]),
        first_entry=int(fields["first_entry"]),
        last_entry=int(fields["last_entry"]),
        size_bytes=int(fields.get("bytes") or ledger.length),
        publish_time_us=int(fields["publish_time"]) if "publish_time" in fields else None,
    )


def _check_order(answer: PartitionSegments, from_offset: int) -> None:
    """Check that segments follow each other without a gap from the wanted offset up to the end; a
    hole would be silent data loss."""
    expected: int | None = None
    for segment in answer.segments:
        if expected is not None and segment.base_offset != expected:
            raise ValueError(f"segment at {segment.base_offset}, expected at {expected}")
        expected = segment.end_offset
    first = answer.segments[0].base_offset if answer.segments else answer.end_offset
    wanted = max(answer.earliest_offset, from_offset)
    if (expected is not None and expected != answer.end_offset) or first > wanted:
        raise ValueError(
            f"segments cover {first} to {expected}, the log {wanted} to {answer.end_offset}"
        )
