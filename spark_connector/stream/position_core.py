"""The place of a stream in its topics, as a value and as the JSON of Spark's checkpoint.

Spark compares places as text, so equal places have equal text. The id of each topic stands beside
its offsets: a topic that was deleted and created again has the same name and other messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.offsets import Offsets, canonical, parse_offsets

VERSION = 1
"""The form of the JSON. Another one is refused: it was written by another release."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The next offset of every partition, by topic, and the topics' ids."""

    ids: Mapping[str, str]
    offsets: Offsets

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the next offset of a partition: 0 for one that was added later."""
        return self.offsets.get(topic, {}).get(partition, 0)

    def joined(self, other: StreamPosition) -> StreamPosition:
        """Return the later offset of every partition of both; of two ids of a topic, this one's."""
        offsets = {topic: dict(partitions) for topic, partitions in self.offsets.items()}
        for topic, partitions in other.offsets.items():
            mine = offsets.setdefault(topic, {})
            mine |= {p: max(offset, mine.get(p, 0)) for p, offset in partitions.items()}
        return StreamPosition({**other.ids, **self.ids}, offsets)

    def up_to(self, end: StreamPosition) -> StreamPosition:
        """Return the earlier offset of every partition that is in both."""
        offsets = {
            topic: {p: min(offset, ends[p]) for p, offset in partitions.items() if p in ends}
            for topic, partitions in self.offsets.items()
            if (ends := end.offsets.get(topic)) is not None
        }
        return StreamPosition({topic: self.ids[topic] for topic in offsets}, offsets)

    def members(self) -> dict[str, Any]:
        """Return the members of the JSON object, in canonical order. ``offsets`` alone is what the
        option ``startingOffsets`` takes."""
        ids = dict(sorted(self.ids.items()))
        return {"version": VERSION, "ids": ids, "offsets": canonical(self.offsets)}


def parse_position(members: Any) -> StreamPosition:
    """Parse what ``members`` returned, and ignore members beside those.

    Raises FencelogError(BAD_REQUEST) for anything else, as the checkpoint of another source.
    """
    try:
        version, ids = members["version"], members["ids"]
        offsets = parse_offsets(members["offsets"])
        if version != VERSION:
            raise ValueError(f"version {version!r}, not {VERSION}")
        if ids.keys() != offsets.keys() or not all(isinstance(id_, str) for id_ in ids.values()):
            raise ValueError("ids and offsets are not of the same topics")
    except (AttributeError, FencelogError, KeyError, TypeError, ValueError) as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"the checkpoint is none of a fencelog stream: {members!r} ({error!r})",
        ) from None
    return StreamPosition(ids, offsets)
