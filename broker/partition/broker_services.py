"""The services that the partitions of one broker share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.cluster.event_recorder import EventRecorder
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.partition.open_partitions import OpenPartitions
from fencelog.broker.partition.opening_gate import OpeningGate
from fencelog.broker.partition.ownership import Ownership
from fencelog.broker.partition.transfer import PartitionTransfer
from fencelog.broker.read.read_ahead import BrokerReads
from fencelog.broker.read.tail_cache import TailCaches
from fencelog.broker.registry.topics import TopicRegistry
from fencelog.broker.subscriptions.table import SubscriptionTable
from fencelog.ledgers.host import Host


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The shared services, passed to every partition. ``bookie_addresses``: ``host:port`` of
    bookies by id; ``complete_cursors``: see ``CursorReconciler.complete``."""

    topics: TopicRegistry
    ledgers: Ledgers
    ownership: Ownership
    others: PartitionTransfer
    host: Host
    config: BrokerConfig
    bookie_addresses: Callable[[], dict[str, str]]
    complete_cursors: Callable[[str, SubscriptionTable], Awaitable[None]]
    events: EventRecorder
    pending: PendingBytes = field(default_factory=PendingBytes)
    caches: TailCaches = field(default_factory=TailCaches)
    reads: BrokerReads = field(default_factory=BrokerReads)
    gate: OpeningGate = field(default_factory=OpeningGate)
    open_partitions: OpenPartitions = field(default_factory=OpenPartitions)
    metrics: BrokerCounts = field(default_factory=BrokerCounts)
