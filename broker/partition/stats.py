"""Stats of topics and subscriptions that are open at one broker, as they are now.

Ten thousand topics have ten thousand rows; a monitoring system that stores each of them every few
seconds has little else to do. So only the busiest topics and the longest backlogs have rows of
their own, and all others are one row together (``OTHERS``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain, islice
from operator import itemgetter
from typing import TypeVar

from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.cluster.load import Meter
from fencelog.broker.limits import (
    RANKED_AT_ONCE,
    SHOWN_AT_ONCE,
    SHOWN_PARTITIONS,
    SHOWN_SUBSCRIPTIONS,
    SHOWN_TOPICS,
    STATS_AT_ONCE,
    STATS_NAMES_MS,
)
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.broker.partition.subscription_names import NamesOf, SubscriptionNames
from fencelog.broker.subscriptions.table import SubscriptionBacklog, SubscriptionTable
from fencelog.ledgers.errors import FencelogError

T = TypeVar("T")

log = logging.getLogger(__name__)

OTHERS = "_other"
"""The name of the row of all that have none of their own; no topic is called so, as ``NAMESPACE/``
is missing."""


@dataclass(slots=True, eq=False)
class TopicStats:
    """One topic, or all others: of its partitions that are open here. ``stored_bytes``: None for
    the others, since that costs a look at every ledger."""

    topic: str
    partitions: int = 0
    in_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    pending_bytes: int = 0
    stored_bytes: int | None = None

    def add(self, meter: Meter, log: PartitionLog) -> None:
        """Add a partition that is open."""
        self.partitions += 1
        self.in_bytes_per_s += meter.in_bytes_per_s
        self.out_bytes_per_s += meter.out_bytes_per_s
        self.pending_bytes += log.pending_bytes
        self.stored_bytes = (self.stored_bytes or 0) + log.stored_bytes()

    def subtract(self, part: TopicStats) -> None:
        """Subtract a part. No result is below 0: rates are sums of fractions, and a partition may
        have been opened since the total was taken."""
        self.partitions = max(0, self.partitions - part.partitions)
        self.in_bytes_per_s = max(0.0, self.in_bytes_per_s - part.in_bytes_per_s)
        self.out_bytes_per_s = max(0.0, self.out_bytes_per_s - part.out_bytes_per_s)
        self.pending_bytes = max(0, self.pending_bytes - part.pending_bytes)


@dataclass(slots=True, eq=False)
class SubscriptionStats:
    """One subscription of a topic, or all others, in the partitions that are open here.
    ``redelivering``, ``lag_bytes``, ``oldest_us`` (the publish time of the first unacknowledged
    message): None for the others, and ``oldest_us`` without a backlog."""

    topic: str
    subscription: str
    messages: int = 0
    leases: int = 0
    dead_letters: int = 0
    redelivering: int | None = None
    lag_bytes: int | None = None
    oldest_us: int | None = None

    def add(self, log: PartitionLog, backlog: SubscriptionBacklog) -> None:
        """Add a partition that is open."""
        self.messages += backlog.messages
        self.leases += backlog.leases
        self.dead_letters += backlog.dead_letters
        self.redelivering = (self.redelivering or 0) + backlog.redelivering
        if backlog.messages:
            lag_bytes, published_us = log.backlog_of(backlog.acked_to)
            self.lag_bytes = (self.lag_bytes or 0) + lag_bytes
            if published_us is not None:
                oldest_us = self.oldest_us
                self.oldest_us = published_us if oldest_us is None else min(oldest_us, published_us)

    def subtract(self, part: SubscriptionStats) -> None:
        """Subtract a part; no result is below 0, as in ``TopicStats``."""
        self.messages = max(0, self.messages - part.messages)
        self.leases = max(0, self.leases - part.leases)
        self.dead_letters = max(0, self.dead_letters - part.dead_letters)


@dataclass(slots=True, eq=False)
class PartitionStats:
    """One partition that is open here, or all others (``partition``: None). ``stored_bytes``: None
    for the others."""

    topic: str
    partition: int | None
    in_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    pending_bytes: int = 0
    stored_bytes: int | None = None

    def subtract(self, part: PartitionStats) -> None:
        """Subtract a part; no result is below 0, as in ``TopicStats``."""
        self.in_bytes_per_s = max(0.0, self.in_bytes_per_s - part.in_bytes_per_s)
        self.out_bytes_per_s = max(0.0, self.out_bytes_per_s - part.out_bytes_per_s)
        self.pending_bytes = max(0, self.pending_bytes - part.pending_bytes)


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """All rows: those with a name of their own, then the others. ``partitions``: open here."""

    partitions: int
    topics: Sequence[TopicStats]
    subscriptions: Sequence[SubscriptionStats]


class StatsTable:
    """The stats of the slots that ``slots`` returns. ``pending``: the appends of all of them."""

    def __init__(
        self,
        slots: Callable[[], Iterable[PartitionSlot]],
        names_of: NamesOf,
        pending: PendingBytes,
    ) -> None:
        self._slots = slots
        self._names = SubscriptionNames(names_of)
        self._pending = pending

    async def measure(self) -> BrokerStats:
        """Measure what is open; appends go on in between. Subscriptions whose names metadata does
        not tell in time are among the others."""
        found = _Found(self._pending.total)
        slots = iter(self._slots())
        while some := list(islice(slots, STATS_AT_ONCE)):
            found.add(some)
            await asyncio.sleep(0)
        partitions = found.topics.partitions
        topics = await _largest(found.traffic, SHOWN_TOPICS)
        subscriptions = await _largest(found.backlogs, SHOWN_SUBSCRIPTIONS)
        names = await self._learn(found.topics_of(subscriptions))
        shown = _Shown(topics, {id_: names[id_] for id_ in subscriptions if id_ in names})
        await shown.fill(found)
        return BrokerStats(partitions, shown.topic_rows(found), shown.subscription_rows(found))

    async def measure_partitions(self) -> list[PartitionStats]:
        """Measure the busiest partitions, each alone, and all others together."""
        others = PartitionStats(OTHERS, None, pending_bytes=self._pending.total)
        traffic: dict[PartitionSlot, float] = {}
        slots = iter(self._slots())
        while some := list(islice(slots, STATS_AT_ONCE)):
            for slot in some:
                if slot.held_log is not None:
                    meter = slot.meter
                    others.in_bytes_per_s += meter.in_bytes_per_s
                    others.out_bytes_per_s += meter.out_bytes_per_s
                    traffic[slot] = meter.in_bytes_per_s + meter.out_bytes_per_s
            await asyncio.sleep(0)
        busiest = await _largest(traffic, SHOWN_PARTITIONS)
        rows: list[PartitionStats] = []
        for first in range(0, len(busiest), SHOWN_AT_ONCE):
            await asyncio.sleep(0)
            rows += map(_row_of, busiest[first : first + SHOWN_AT_ONCE])
        for row in rows:
            others.subtract(row)
        return [*rows, others]

    async def _learn(self, topic_ids: Mapping[str, str]) -> Mapping[str, str]:
        """Return the names of subscriptions by id, as far as they are known in time."""
        try:
            async with asyncio.timeout(STATS_NAMES_MS / 1000):
                return await self._names.learn(topic_ids)
        except (FencelogError, TimeoutError) as error:
            log.info("metrics without the names of some subscriptions: %s", error)
            return self._names.known()


class _Found:
    """The findings of a look at all partitions: totals, and what decides which rows are shown."""

    def __init__(self, pending_bytes: int) -> None:
        self.topics = TopicStats(OTHERS, pending_bytes=pending_bytes)
        self.subscriptions = SubscriptionStats(OTHERS, OTHERS)
        self.slots: list[PartitionSlot] = []
        self.topic_ids: list[str] = []
        """The topics of the slots."""
        self.traffic: dict[str, float] = {}
        """Bytes per second by topic id: of topics that have any, and of as many as are shown."""
        self.backlogs: dict[str, int] = {}
        """Messages by subscription id: of subscriptions that have any, and of as many as are
        shown."""
        self.topics_of_backlogs: list[str] = []
        """The ids of their topics, in the same order."""

    def add(self, slots: Iterable[PartitionSlot]) -> None:
        traffic, total = self.traffic, self.topics
        for slot in slots:
            log = slot.held_log
            if log is None:
                continue
            meter, topic_id = slot.meter, slot.info.topic_id
            self.slots.append(slot)
            self.topic_ids.append(topic_id)
            in_bytes_per_s, out_bytes_per_s = meter.in_bytes_per_s, meter.out_bytes_per_s
            if in_bytes_per_s or out_bytes_per_s:
                total.in_bytes_per_s += in_bytes_per_s
                total.out_bytes_per_s += out_bytes_per_s
                traffic[topic_id] = traffic.get(topic_id, 0.0) + in_bytes_per_s + out_bytes_per_s
            elif len(traffic) < SHOWN_TOPICS:
                traffic.setdefault(topic_id, 0.0)
            backlogs = log.subscriptions.backlog_messages()
            if backlogs:
                self._add_backlogs(topic_id, log.subscriptions, backlogs)
        total.partitions = len(self.slots)

    def topics_of(self, subscription_ids: Iterable[str]) -> dict[str, str]:
        """Return the ids of the topics of some of these subscriptions, by theirs."""
        some = set(subscription_ids)
        pairs = zip(self.backlogs, self.topics_of_backlogs, strict=True)
        return {id_: topic_id for id_, topic_id in pairs if id_ in some}

    def opened(self) -> Iterator[tuple[str, PartitionSlot]]:
        """Return the slots that were open, with the ids of their topics."""
        return zip(self.topic_ids, self.slots, strict=True)

    def _add_backlogs(
        self, topic_id: str, table: SubscriptionTable, found: Iterable[tuple[str, int]]
    ) -> None:
        backlogs, total = self.backlogs, self.subscriptions
        for subscription_id, messages in found:
            if messages or len(backlogs) < SHOWN_SUBSCRIPTIONS:
                total.messages += messages
                if subscription_id in backlogs:
                    backlogs[subscription_id] += messages
                else:
                    backlogs[subscription_id] = messages
                    self.topics_of_backlogs.append(topic_id)
        leases, dead_letters = table.in_delivery()
        total.leases += leases
        total.dead_letters += dead_letters


class _Shown:
    """The rows that are shown. ``names``: of subscriptions, by id."""

    def __init__(self, topic_ids: Sequence[str], names: Mapping[str, str]) -> None:
        self._topics = {id_: TopicStats("", stored_bytes=0) for id_ in topic_ids}
        self._subscriptions = {
            id_: SubscriptionStats("", name, redelivering=0, lag_bytes=0)
            for id_, name in names.items()
        }

    async def fill(self, found: _Found) -> None:
        """Add up the partitions of the rows, as they are now."""
        with_subscriptions = set(found.topics_of(self._subscriptions).values())
        wanted = with_subscriptions | self._topics.keys()
        places = [slot for topic_id, slot in found.opened() if topic_id in wanted]
        for first in range(0, len(places), SHOWN_AT_ONCE):
            await asyncio.sleep(0)
            for slot in places[first : first + SHOWN_AT_ONCE]:
                log = slot.held_log
                if log is not None:
                    self._add(slot, log, has_subscriptions=slot.info.topic_id in with_subscriptions)

    def _add(self, slot: PartitionSlot, log: PartitionLog, *, has_subscriptions: bool) -> None:
        topic = self._topics.get(slot.info.topic_id)
        if topic is not None:
            topic.topic = str(slot.info.name)
            topic.add(slot.meter, log)
        if has_subscriptions:
            self._add_backlogs(slot, log)

    def _add_backlogs(self, slot: PartitionSlot, log: PartitionLog) -> None:
        for backlog in log.subscriptions.backlogs():
            row = self._subscriptions.get(backlog.subscription_id)
            if row is not None:
                row.topic = str(slot.info.name)
                row.add(log, backlog)

    def topic_rows(self, found: _Found) -> list[TopicStats]:
        """Return the rows, and as the last one what they leave of the total."""
        rows = [row for row in self._topics.values() if row.topic]  # else closed meanwhile
        for row in rows:
            found.topics.subtract(row)
        return [*rows, found.topics]

    def subscription_rows(self, found: _Found) -> list[SubscriptionStats]:
        """Return the rows, and as the last one what they leave of the total."""
        rows = [row for row in self._subscriptions.values() if row.topic]  # else dropped meanwhile
        for row in rows:
            found.subscriptions.subtract(row)
        return [*rows, found.subscriptions]


def _row_of(slot: PartitionSlot) -> PartitionStats:
    """Return the row of a partition. One that was closed meanwhile has nothing."""
    row, log = PartitionStats(str(slot.info.name), slot.partition, stored_bytes=0), slot.held_log
    if log is not None:
        row.in_bytes_per_s = slot.meter.in_bytes_per_s
        row.out_bytes_per_s = slot.meter.out_bytes_per_s
        row.pending_bytes = log.pending_bytes
        row.stored_bytes = log.stored_bytes()
    return row


async def _largest(sizes: Mapping[T, float], count: int) -> list[T]:
    """Return the keys of the largest sizes, the largest first."""
    found: list[tuple[T, float]] = []
    rest = iter(sizes.items())
    while some := list(islice(rest, RANKED_AT_ONCE)):
        found = nlargest(count, chain(found, some), key=itemgetter(1))
        await asyncio.sleep(0)
    return [name for name, _ in found]
