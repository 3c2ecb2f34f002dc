"""Stats of topics and subscriptions that are open at one broker, as they are now.

Ten thousand topics have ten thousand rows; a monitoring system that stores each of them every few
seconds has little else to do. So only the busiest topics and the longest backlogs have rows of
their own, and all others are one row together (``OTHERS``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import TypeVar

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
from fencelog.broker.partition.broker_services import BrokerServices
from fencelog.broker.partition.open_partitions import OpenPartition, OpenPartitions
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.broker.partition.stats.subscription_names import NamesOf, SubscriptionNames
from fencelog.broker.subscriptions.table import SubscriptionBacklog
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
    """The stats of the partitions that are open at a broker, which are among the slots that
    ``slots`` returns."""

    def __init__(
        self,
        services: BrokerServices,
        slots: Callable[[], Iterable[PartitionSlot]],
        names_of: NamesOf,
    ) -> None:
        self._opened = services.open_partitions
        self._slots = slots
        self._names = SubscriptionNames(names_of)
        self._pending = services.pending

    async def measure(self) -> BrokerStats:
        """Measure what is open; appends go on in between. Rates are those that the balancer has
        measured last. Subscriptions whose names metadata does not tell in time are among the
        others.

        Only what has changed since the last time, and what is shown, is looked at.
        """
        opened, backlogs = self._opened, self._opened.backlogs
        await backlogs.count()
        partitions, total = len(opened), self._total()
        topics = await self._busiest()
        subscriptions = {
            id_: topic_id
            for id_ in await _largest(backlogs.messages, SHOWN_SUBSCRIPTIONS)
            if (topic_id := backlogs.topic_of(id_)) is not None
        }
        others = SubscriptionStats(
            OTHERS, OTHERS, backlogs.total, backlogs.leases, backlogs.dead_letters
        )
        names = await self._learn(subscriptions)
        shown = _Shown(topics, {id_: names[id_] for id_ in subscriptions if id_ in names})
        await shown.fill(opened, subscriptions)
        return BrokerStats(partitions, shown.topic_rows(total), shown.subscription_rows(others))

    def _total(self) -> TopicStats:
        """Return the row of all partitions together."""
        traffic = self._opened.traffic
        return TopicStats(
            OTHERS,
            len(self._opened),
            traffic.in_bytes_per_s,
            traffic.out_bytes_per_s,
            self._pending.total,
        )

    async def _busiest(self) -> list[str]:
        """Return the ids of the topics that are shown: the busiest, the busiest first, then those
        that were opened first."""
        opened = self._opened
        busiest = await _largest(opened.traffic.by_topic, SHOWN_TOPICS)
        if len(busiest) < SHOWN_TOPICS:
            first = islice(opened.topic_ids, SHOWN_TOPICS)
            busiest = list(islice(dict.fromkeys(chain(busiest, first)), SHOWN_TOPICS))
        return busiest

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


class _Shown:
    """The rows that are shown. ``names``: of subscriptions, by id."""

    def __init__(self, topic_ids: Sequence[str], names: Mapping[str, str]) -> None:
        self._topics = {id_: TopicStats("", stored_bytes=0) for id_ in topic_ids}
        self._subscriptions = {
            id_: SubscriptionStats("", name, redelivering=0, lag_bytes=0)
            for id_, name in names.items()
        }

    async def fill(self, opened: OpenPartitions, topics_of: Mapping[str, str]) -> None:
        """Add up the partitions of the rows, as they are now. ``topics_of``: the topic ids of
        subscriptions."""
        with_subscriptions = {topics_of[id_] for id_ in self._subscriptions}
        wanted = dict.fromkeys(chain(self._topics, with_subscriptions))
        places = [each for topic_id in wanted for each in opened.of_topic(topic_id)]
        for first in range(0, len(places), SHOWN_AT_ONCE):
            await asyncio.sleep(0)
            for place in places[first : first + SHOWN_AT_ONCE]:
                log, topic_id = place.held_log, place.info.topic_id
                if log is not None:
                    self._add(place, log, has_subscriptions=topic_id in with_subscriptions)

    def _add(self, place: OpenPartition, log: PartitionLog, *, has_subscriptions: bool) -> None:
        topic = self._topics.get(place.info.topic_id)
        if topic is not None:
            topic.topic = str(place.info.name)
            topic.add(place.meter, log)
        if has_subscriptions:
            self._add_backlogs(place, log)

    def _add_backlogs(self, place: OpenPartition, log: PartitionLog) -> None:
        for backlog in log.subscriptions.backlogs():
            row = self._subscriptions.get(backlog.subscription_id)
            if row is not None:
                row.topic = str(place.info.name)
                row.add(log, backlog)

    def topic_rows(self, total: TopicStats) -> list[TopicStats]:
        """Return the rows, and as the last one what they leave of the total."""
        rows = [row for row in self._topics.values() if row.topic]  # else closed meanwhile
        for row in rows:
            total.subtract(row)
        return [*rows, total]

    def subscription_rows(self, total: SubscriptionStats) -> list[SubscriptionStats]:
        """Return the rows, and as the last one what they leave of the total."""
        rows = [row for row in self._subscriptions.values() if row.topic]  # else dropped meanwhile
        for row in rows:
            total.subtract(row)
        return [*rows, total]


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
    """Return the keys of the largest sizes, the largest first, of equal ones the first first."""
    found: list[tuple[T, float]] = []
    rest = iter(dict(sizes).items())  # as they are now: they may change in between
    while some := list(islice(rest, RANKED_AT_ONCE)):
        found = sorted(chain(found, some), key=itemgetter(1), reverse=True)[:count]
        await asyncio.sleep(0)
    return [name for name, _ in found]
