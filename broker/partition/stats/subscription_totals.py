"""Figures of every subscription with a cursor in a partition that is open at one broker, for a list
of subscriptions.

The figures are in memory; the names of subscriptions are read from metadata, once for each: a
subscription never changes its name, and its id is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fencelog.broker.limits import STATS_AT_ONCE
from fencelog.broker.log.retention import HeldSpace
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.broker.partition.stats.subscription_names import NamesOf, SubscriptionNames
from fencelog.broker.partition.stats.topic_totals import RecentTotals
from fencelog.broker.subscriptions.table import SubscriptionBacklog


class SubscriptionKey(NamedTuple):
    """A subscription, by the name of its topic and its own."""

    topic: str
    subscription: str


@dataclass(slots=True)
class SubscriptionTotals:
    """The figures of a subscription, of its partitions that are open at one broker, or at all.
    ``backlog_messages``: not acknowledged; ``backlog_bytes``: from the first of them on, estimated;
    ``outstanding``: of these, with consumers; ``dead_letters``: on the way to their topic;
    ``held_bytes``: in ledgers that are kept for it alone; ``oldest_us``: the publish time of the
    first message that is not acknowledged, None without one."""

    partitions: int = 0
    backlog_messages: int = 0
    backlog_bytes: int = 0
    outstanding: int = 0
    dead_letters: int = 0
    held_bytes: int = 0
    oldest_us: int | None = None

    def add(self, other: SubscriptionTotals) -> None:
        """Add other partitions of the subscription."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        times = [time for time in (self.oldest_us, other.oldest_us) if time is not None]
        self.oldest_us = min(times, default=None)


SUBSCRIPTION_TOTALS = tuple(SubscriptionTotals.__dataclass_fields__)
"""The names of the figures."""

_SUMS = SUBSCRIPTION_TOTALS[:-1]


class BacklogTable:
    """The figures of the subscriptions in the slots that ``slots`` returns."""

    def __init__(self, slots: Callable[[], Iterable[PartitionSlot]], names_of: NamesOf) -> None:
        self._slots = slots
        self._names = SubscriptionNames(names_of)
        self._recent = RecentTotals(self._measure)
        self.ids: dict[SubscriptionKey, str] = {}
        """The ids of the subscriptions of the last figures."""

    async def totals(self) -> dict[SubscriptionKey, SubscriptionTotals]:
        """Return the figures, see ``RecentTotals.get``. Raises METADATA_UNAVAILABLE."""
        return await self._recent.get()

    async def _measure(self) -> dict[SubscriptionKey, SubscriptionTotals]:
        by_id: dict[str, tuple[PartitionSlot, SubscriptionTotals]] = {}
        looked_at = 0
        for slot in self._slots():
            log = slot.open_log
            if log is None or not log.subscriptions.has_cursors:
                continue
            held = log.retention.held_space()
            for backlog in log.subscriptions.backlogs():
                looked_at += 1
                _, totals = by_id.setdefault(backlog.subscription_id, (slot, SubscriptionTotals()))
                totals.add(_totals_of(log, backlog, held))
            if looked_at >= STATS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        topic_ids = {id_: slot.info.topic_id for id_, (slot, _) in by_id.items()}
        names = await self._names.learn(topic_ids)
        self.ids = {
            SubscriptionKey(str(slot.info.name), names[id_]): id_
            for id_, (slot, _) in by_id.items()
            if id_ in names  # else it was deleted, and its cursor will be
        }
        return {key: by_id[id_][1] for key, id_ in self.ids.items()}


def _totals_of(
    log: PartitionLog, backlog: SubscriptionBacklog, held: HeldSpace | None
) -> SubscriptionTotals:
    lag_bytes, oldest_us = log.backlog_of(backlog.acked_to) if backlog.messages else (0, None)
    holds_back = held is not None and backlog.durable and backlog.acked_to <= held.offset
    return SubscriptionTotals(
        partitions=1,
        backlog_messages=backlog.messages,
        backlog_bytes=lag_bytes,
        outstanding=backlog.leases,
        dead_letters=backlog.dead_letters,
        held_bytes=held.size if held is not None and holds_back else 0,
        oldest_us=oldest_us,
    )
