"""Stats of topics and subscriptions that are open at one broker, as they are now.

Ten thousand topics have ten thousand rows; a monitoring system that stores each of them every few
seconds has little else to do. So only the busiest topics and the longest backlogs have rows of
their own, and all others are one row together (``OTHERS``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from fencelog.broker.cluster.load import Meter
from fencelog.broker.limits import SHOWN_SUBSCRIPTIONS, SHOWN_TOPICS, STATS_AT_ONCE
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.broker.subscriptions.table import SubscriptionBacklog

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
    ``lag_bytes``, ``oldest_us`` (the publish time of the first unacknowledged message): None for
    the others, and ``oldest_us`` without a backlog."""

    topic: str
    subscription: str
    messages: int = 0
    leases: int = 0
    dead_letters: int = 0
    lag_bytes: int | None = None
    oldest_us: int | None = None

    def add(self, backlog: SubscriptionBacklog) -> None:
        self.messages += backlog.messages
        self.leases += backlog.leases
        self.dead_letters += backlog.dead_letters


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """All rows: those with a name of their own, then the others. ``partitions``: open here."""

    partitions: int
    topics: Sequence[TopicStats]
    subscriptions: Sequence[SubscriptionStats]


_Open = tuple[PartitionSlot, PartitionLog]
_Places = dict[str, list[tuple[PartitionSlot, PartitionLog, SubscriptionBacklog]]]
"""The backlogs of each subscription, by its id."""


async def measure(
    slots: Iterable[PartitionSlot],
    names_of: Callable[[], Mapping[str, str]],
    *,
    pending_bytes: int,
) -> BrokerStats:
    """Measure what is open in ``slots``; appends go on in between. ``names_of``: the names of
    subscriptions by id, as far as they are known: one without a name is among the others.
    ``pending_bytes``: of all of them.

    A slot costs a few microseconds: what takes longer is done for the shown rows alone.
    """
    total = TopicStats(OTHERS, pending_bytes=pending_bytes)
    traffic: dict[str, float] = {}
    opened: list[_Open] = []
    places: _Places = {}
    for number, slot in enumerate(slots, 1):
        if number % STATS_AT_ONCE == 0:
            await asyncio.sleep(0)
        log = slot.open_log
        if log is None:
            continue
        opened.append((slot, log))
        topic_id, meter = slot.info.topic_id, slot.meter
        in_bytes_per_s, out_bytes_per_s = meter.in_bytes_per_s, meter.out_bytes_per_s
        total.in_bytes_per_s += in_bytes_per_s
        total.out_bytes_per_s += out_bytes_per_s
        traffic[topic_id] = traffic.get(topic_id, 0.0) + in_bytes_per_s + out_bytes_per_s
        if log.subscriptions.has_cursors:
            for backlog in log.subscriptions.backlogs():
                places.setdefault(backlog.subscription_id, []).append((slot, log, backlog))
    total.partitions = len(opened)
    topics = _shown_topics(total, traffic, opened)
    return BrokerStats(len(opened), topics, _shown_subscriptions(places, names_of()))


def _shown_topics(
    total: TopicStats, traffic: Mapping[str, float], opened: Iterable[_Open]
) -> list[TopicStats]:
    """Return the rows of the busiest topics, and as the last one what is left of ``total``.
    ``traffic``: by topic id."""
    ids = nlargest(SHOWN_TOPICS, traffic, key=traffic.__getitem__)
    shown = {topic_id: TopicStats("", stored_bytes=0) for topic_id in ids}
    for slot, log in opened:
        stats = shown.get(slot.info.topic_id)
        if stats is not None:
            stats.topic = str(slot.info.name)
            stats.add(slot.meter, log)
    for stats in shown.values():
        total.subtract(stats)
    return [*shown.values(), total]


def _shown_subscriptions(places: _Places, names: Mapping[str, str]) -> list[SubscriptionStats]:
    sizes = {id_: sum(backlog.messages for *_, backlog in found) for id_, found in places.items()}
    shown = nlargest(SHOWN_SUBSCRIPTIONS, places.keys() & names.keys(), key=sizes.__getitem__)
    others = SubscriptionStats(OTHERS, OTHERS)
    for subscription_id in places.keys() - set(shown):
        for *_, backlog in places[subscription_id]:
            others.add(backlog)
    return [*(_stats_of(names[id_], places[id_]) for id_ in shown), others]


def _stats_of(
    name: str, found: Sequence[tuple[PartitionSlot, PartitionLog, SubscriptionBacklog]]
) -> SubscriptionStats:
    stats = SubscriptionStats(str(found[0][0].info.name), name, lag_bytes=0)
    oldest: list[int] = []
    for _, log, backlog in found:
        stats.add(backlog)
        if backlog.messages:
            lag_bytes, published_us = log.backlog_of(backlog.acked_to)
            stats.lag_bytes = (stats.lag_bytes or 0) + lag_bytes
            oldest += [] if published_us is None else [published_us]
    stats.oldest_us = min(oldest, default=None)
    return stats
