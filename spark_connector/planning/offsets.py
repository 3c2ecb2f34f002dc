"""Offsets by topic and partition, and one end of a read: a position in each partition.

The JSON of offsets is Kafka's, ``{"default/orders": {"0": 42}}``, in one canonical order: Spark
compares the offsets of a stream as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError

Offsets = Mapping[str, Mapping[int, int]]
"""An offset for each partition of each topic."""


class End(Enum):
    """One of the two ends of a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message published at or after ``time_us`` (µs since 1970 UTC), or the end."""

    time_us: int


Position = End | AtTime | int


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of the wanted messages: a position for each partition that is named, otherwise
    ``rest``."""

    rest: Position
    by_topic: Mapping[str, Mapping[int, Position]] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> Position:
        return self.by_topic.get(topic, {}).get(partition, self.rest)


def canonical(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the members of the JSON object, ordered by topic and by number of partition; equal
    offsets have equal text."""
    return {
        topic: {str(partition): partitions[partition] for partition in sorted(partitions)}
        for topic, partitions in sorted(offsets.items())
    }


def to_json(offsets: Offsets) -> str:
    """Return the canonical JSON of offsets."""
    return json.dumps(canonical(offsets), separators=(",", ":"), ensure_ascii=False)


def parse_offsets(members: Any) -> dict[str, dict[int, int]]:
    """Parse what ``canonical`` returns. Raises FencelogError(BAD_REQUEST) for anything else."""
    try:
        return {
            str(topic): {_number(key): _number(offset) for key, offset in partitions.items()}
            for topic, partitions in members.items()
        }
    except (AttributeError, ValueError) as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"these are no offsets of topics: {members!r} ({error})"
        ) from None


def _number(value: Any) -> int:
    if isinstance(value, bool) or not str(value).isascii() or not str(value).isdigit():
        raise ValueError(f"{value!r} is no number")
    return int(value)
