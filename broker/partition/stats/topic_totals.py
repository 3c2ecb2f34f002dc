"""Figures of every topic that is open at one broker, for a list of topics.

Unlike the stats for monitoring (``stats``), each topic has a row: a person sorts and searches them.
A look at all partitions costs a few microseconds for each; it is used again for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fencelog.broker.limits import STATS_AT_ONCE, TOPIC_TOTALS_MS
from fencelog.broker.partition.partition_slot import PartitionSlot

T = TypeVar("T")


@dataclass(slots=True)
class TopicTotals:
    """The figures of a topic, of its partitions that are open at one broker, or at all.
    ``messages``: readable; ``backlog_messages``: the longest backlog of each partition, added
    up."""

    partitions: int = 0
    in_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    size: int = 0
    messages: int = 0
    backlog_messages: int = 0
    pending_bytes: int = 0

    def add(self, other: TopicTotals) -> None:
        """Add other partitions of the topic."""
        for name in TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


TOTALS = tuple(TopicTotals.__dataclass_fields__)
"""The names of the figures."""


class RecentTotals(Generic[T]):
    """Figures that are measured by a look at all partitions, and used again for a while."""

    def __init__(self, measure: Callable[[], Awaitable[T]]) -> None:
        self._measure = measure
        self._found: T | None = None
        self._until_s = float("-inf")
        self._turn = asyncio.Lock()

    async def get(self) -> T:
        """Return the figures, not older than TOPIC_TOTALS_MS. They are not to be changed. Raises
        what measuring raises."""
        async with self._turn:
            loop = asyncio.get_running_loop()
            if self._found is None or loop.time() >= self._until_s:
                self._found = await self._measure()
                self._until_s = loop.time() + TOPIC_TOTALS_MS / 1000
            return self._found


class TopicTable:
    """The figures of the topics that are open in the slots that ``slots`` returns, by name."""

    def __init__(self, slots: Callable[[], Iterable[PartitionSlot]]) -> None:
        self._slots = slots
        self._recent = RecentTotals(self._measure)

    async def totals(self) -> dict[str, TopicTotals]:
        """Return the figures, see ``RecentTotals.get``."""
        return await self._recent.get()

    async def _measure(self) -> dict[str, TopicTotals]:
        found: dict[str, TopicTotals] = {}
        for number, slot in enumerate(self._slots(), 1):
            if number % STATS_AT_ONCE == 0:
                await asyncio.sleep(0)
            part = totals_of(slot)
            if part is not None:
                found.setdefault(str(slot.info.name), TopicTotals()).add(part)
        return found


def totals_of(slot: PartitionSlot) -> TopicTotals | None:
    """Return the figures of one partition; None: it is not open here."""
    log = slot.open_log
    if log is None:
        return None
    return TopicTotals(
        partitions=1,
        in_bytes_per_s=slot.meter.in_bytes_per_s,
        out_bytes_per_s=slot.meter.out_bytes_per_s,
        size=log.stored_bytes(),
        messages=log.tail_offset - log.earliest_offset,
        backlog_messages=max((each.messages for each in log.subscriptions.backlogs()), default=0),
        pending_bytes=log.pending_bytes,
    )
