"""The partitions that are open at one broker, and what is kept of all of them together, so that
nobody who asks has to look at each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fencelog.broker.cluster.load import Meter
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.topics import TopicInfo
from fencelog.broker.subscriptions.backlog_counts import BacklogCounts


class OpenPartition(Protocol):
    """The part of a ``PartitionSlot`` that figures need. ``held_log``: None once it was closed."""

    info: TopicInfo
    meter: Meter

    @property
    def held_log(self) -> PartitionLog | None: ...


@dataclass(slots=True, eq=False)
class Traffic:
    """Bytes per second of all partitions, and of each topic by id, in and out added up; topics
    without traffic are left out."""

    in_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    by_topic: dict[str, float] = field(default_factory=dict)

    def add(self, topic_id: str, meter: Meter) -> None:
        """Add a partition."""
        into, out = meter.in_bytes_per_s, meter.out_bytes_per_s
        if into or out:
            self.in_bytes_per_s += into
            self.out_bytes_per_s += out
            self.by_topic[topic_id] = self.by_topic.get(topic_id, 0.0) + into + out

    def subtract(self, topic_id: str, meter: Meter) -> None:
        """Subtract a partition. No result is below 0: rates are sums of fractions."""
        into, out = meter.in_bytes_per_s, meter.out_bytes_per_s
        self.in_bytes_per_s = max(0.0, self.in_bytes_per_s - into)
        self.out_bytes_per_s = max(0.0, self.out_bytes_per_s - out)
        if topic_id in self.by_topic:
            self.by_topic[topic_id] = max(0.0, self.by_topic[topic_id] - into - out)


class OpenPartitions:
    """The open partitions. ``traffic``: of them, as the balancer has measured it last;
    ``backlogs``: those of their subscriptions."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.backlogs = BacklogCounts()
        self._by_topic: dict[str, dict[OpenPartition, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def topic_ids(self) -> Mapping[str, object]:
        """The ids of the topics with open partitions, in the order in which they were opened."""
        return self._by_topic

    def of_topic(self, topic_id: str) -> Iterator[OpenPartition]:
        """Yield the open partitions of a topic."""
        return iter(self._by_topic.get(topic_id, ()))

    def opened(self, partition: OpenPartition, log: PartitionLog) -> None:
        """Add a partition, whose log is open now."""
        topic_id = partition.info.topic_id
        self._by_topic.setdefault(topic_id, {})[partition] = None
        self._count += 1
        self.backlogs.opened(log.subscriptions, topic_id)

    def closed(self, partition: OpenPartition, log: PartitionLog) -> None:
        """Remove a partition, whose log is given up."""
        topic_id = partition.info.topic_id
        partitions = self._by_topic[topic_id]
        del partitions[partition]
        self._count -= 1
        self.traffic.subtract(topic_id, partition.meter)
        if not partitions:
            del self._by_topic[topic_id]
            self.traffic.by_topic.pop(topic_id, None)
        self.backlogs.closed(log.subscriptions)
