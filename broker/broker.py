"""A broker: the topics that it serves, the partitions that it owns, and its place among other
brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from fencelog.broker.background.balancer import Balancer
from fencelog.broker.background.compaction_scheduler import CompactionScheduler
from fencelog.broker.background.cursor_reconciler import CursorReconciler
from fencelog.broker.background.lag_history import LagHistory
from fencelog.broker.background.rate_history import RateHistory
from fencelog.broker.background.retention_scheduler import RetentionScheduler
from fencelog.broker.background.sweep import Sweep, Sweeper
from fencelog.broker.background.unloading import DrainResult, Unloading, few_at_a_time
from fencelog.broker.cluster.balance_core import PartitionKey
from fencelog.broker.cluster.broker_directory import BrokerDirectory
from fencelog.broker.cluster.event_recorder import EventRecorder
from fencelog.broker.cluster.peers import NoPeers, Peers
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.names import TopicName
from fencelog.broker.partition.broker_services import BrokerServices
from fencelog.broker.partition.forwards import ForwardedAppends
from fencelog.broker.partition.ownership import Ownership
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.broker.partition.stats.broker_stats import BrokerStats, PartitionStats, StatsTable
from fencelog.broker.partition.stats.subscription_totals import BacklogTable
from fencelog.broker.partition.stats.topic_totals import TopicTable
from fencelog.broker.partition.stats.troubles import Troubles, find_troubles
from fencelog.broker.partition.transfer import PartitionTransfer
from fencelog.broker.registry.subscription_registry import SubscriptionRegistry
from fencelog.broker.registry.topic_cache import TopicCache
from fencelog.broker.registry.topics import TopicInfo, TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.paths import unavailable
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.registration import BOOKIES_PATH, BROKERS_PATH, ChildrenValues

__all__ = ["Broker", "BrokerConfig"]

T = TypeVar("T")


class Broker:
    """A broker, which serves partitions. ``start`` it before use; ``drain`` transfers every
    partition to another broker while requests continue, ``close`` gives up the rest."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: Ledgers,
        *,
        host: Host,
        config: BrokerConfig,
        peers: Peers | None = None,
    ) -> None:
        """Create a broker. ``peers``: the port to other brokers (None: there are none)."""
        self.config = config
        self.host = host
        self.topics = TopicRegistry(store, host=host, ledgers=ledgers, policy=config.policy)
        self.subscriptions = SubscriptionRegistry(store, host=host)
        self.directory = BrokerDirectory(store, host=host, config=config)
        self.metrics = BrokerCounts()
        self.events = EventRecorder(config, self.metrics, host, self.directory.is_registered)
        self._store = store
        self._cursor_reconciler = CursorReconciler(self.subscriptions, self.open_slots)
        self._ownership = Ownership(store, broker_id=config.broker_id, url=config.url)
        self._services = BrokerServices(
            topics=self.topics,
            ledgers=ledgers,
            ownership=self._ownership,
            others=PartitionTransfer(
                self.directory, peers or NoPeers(), own_id=config.broker_id, policy=config.balance
            ),
            host=host,
            config=config,
            bookie_addresses=self.bookie_addresses,
            complete_cursors=self._cursor_reconciler.complete,
            metrics=self.metrics,
            events=self.events,
        )
        self._slots: dict[PartitionKey, PartitionSlot] = {}
        self._known = TopicCache(
            self.topics, on_change=self._topic_changed, on_gone=self._topic_gone
        )
        self._bookies = ChildrenValues(store, BOOKIES_PATH)
        self._letting_go: set[asyncio.Task[None]] = set()
        self._balancer = Balancer(self._services, self.directory, self._slots)
        self._unloading = Unloading(
            self._slots, self.directory, self._balancer, self.events, config.drain_timeout_s
        )
        self.compaction = CompactionScheduler(self._open_logs, host)
        self._retention = RetentionScheduler(self._open_logs, period_s=config.retention_check_s)
        self.sweep = Sweep(
            store, self.topics, ledgers, LedgerStore(store), host=host, grace_s=config.sweep_grace_s
        )
        self._sweeper = Sweeper(self.sweep, interval_s=config.sweep_interval_s, host=host)
        self._stats = StatsTable(self._services, self._all_slots, self._subscription_names)
        self.topic_table = TopicTable(self.open_slots)
        self.backlog_table = BacklogTable(self.open_slots, self._subscription_names)
        self.lag_history = LagHistory(self.open_slots, host)
        self.rate_history = RateHistory(self.open_slots, host)
        self._closed = False

    async def start(self) -> None:
        """Register the broker. Raises METADATA_UNAVAILABLE, METADATA_UNKNOWN."""
        await self._bookies.start()
        await self.directory.start()
        self._balancer.start()
        self._cursor_reconciler.start()
        self.compaction.start()
        self._retention.start()
        self._sweeper.start()

    async def close(self) -> None:
        """Refuse new requests, finish appends, seal logs, give up every partition."""
        if not self.is_draining:  # which has waited for them
            await self.events.flush()
        await self.events.close()
        self._closed = True
        self.directory.set_draining()
        await self._unloading.stop()
        await self.lag_history.close()
        await self.rate_history.close()
        await self._sweeper.close()
        await self._retention.close()
        await self._cursor_reconciler.close()
        await self.compaction.close()
        self.subscriptions.close()
        self._known.close()
        await few_at_a_time(lambda slot: slot.close(), list(self._slots.values()))
        self._slots.clear()
        if self._letting_go:
            await asyncio.wait(self._letting_go)
        await self.directory.close()
        self._bookies.close()

    # -- transfers -------------------------------------------------------------------------------

    @property
    def is_draining(self) -> bool:
        """Tell whether this broker accepts no more partitions."""
        return self.directory.is_draining

    async def drain(self, *, force: bool = True) -> DrainResult:
        """Transfer all partitions, see ``Unloading.drain``. Raises PRECONDITION_FAILED if no other
        broker takes any, unless ``force``."""
        if not force:
            self._unloading.check_successor()
        return await self._unloading.drain()

    async def leave(self) -> DrainResult:
        """Transfer all partitions before the broker is closed, see ``Unloading.leave``."""
        return await self._unloading.leave()

    async def undrain(self) -> None:
        """Take partitions again, see ``Unloading.undrain``. Raises DRAINING."""
        await self._unloading.undrain()

    async def unload(
        self, topic: TopicName, partition: int, *, to: str | None = None
    ) -> str | None:
        """Transfer one partition, see ``Unloading.unload``. Also raises TOPIC_NOT_FOUND and
        NOT_FOUND (no such partition)."""
        return await self._unloading.unload(await self._slot(topic, partition), to=to)

    async def take(self, topic: TopicName, partition: int) -> PartitionLog:
        """Open a partition as ``partition`` does, for another broker that has chosen this one."""
        return await (await self._slot(topic, partition)).log(take=True)

    def open_slots(self) -> list[PartitionSlot]:
        """Return the slots that are open here now."""
        return [slot for slot in self._slots.values() if slot.open_log is not None]

    def _all_slots(self) -> list[PartitionSlot]:
        return list(self._slots.values())

    def _open_logs(self) -> Iterator[PartitionLog | None]:
        return (slot.open_log for slot in self._slots.values())

    @property
    def pending_bytes(self) -> int:
        """The bytes of appends that are not acknowledged yet."""
        return self._services.pending.total

    async def measure(self) -> BrokerStats:
        """Return the figures of what is open here now."""
        return await self._stats.measure()

    async def measure_partitions(self) -> list[PartitionStats]:
        """Return the figures of the busiest partitions that are open here."""
        return await self._stats.measure_partitions()

    async def troubles(self) -> Troubles:
        """Return what this broker knows of partitions in trouble. Raises METADATA_UNAVAILABLE."""
        return await find_troubles(
            self._all_slots(), self._subscription_names, now_us=self.host.now_us()
        )

    async def _subscription_names(self, topic_id: str) -> dict[str, str]:
        """Return the names of a topic's subscriptions, by id. Raises METADATA_UNAVAILABLE."""
        found = await self.subscriptions.list(topic_id)
        return {each.info.subscription_id: each.info.name for each in found}

    # -- partitions ------------------------------------------------------------------------------

    async def partition(self, topic: TopicName, partition: int) -> PartitionLog:
        """Return the log of a partition that this broker owns; it takes over a partition without an
        owner.

        Where the partition has no owner and another broker is clearly less loaded, or this one is
        draining, the other broker takes it over. Raises FencelogError: NotOwner (with ``url``),
        TOPIC_NOT_FOUND, NOT_FOUND (no such partition), DRAINING, or the error of opening the log.
        """
        slot = self._slots.get((topic, partition))
        if slot is None:
            slot = await self._slot(topic, partition)
        return slot.open_log or await slot.log()

    def known(self, topic: TopicName) -> TopicInfo | None:
        """Return the topic, if it is remembered already."""
        return self._known.get(topic)

    def open_log(self, topic: TopicName, partition: int) -> PartitionLog | None:
        """Return the log of a partition, if it is open here now and serves."""
        slot = self._slots.get((topic, partition))
        return None if slot is None else slot.open_log

    def forwarded_appends(self, topic: TopicName, partition: int) -> ForwardedAppends | None:
        """Return the single messages in flight to the owner of a partition, if that is another
        broker and known."""
        slot = self._slots.get((topic, partition))
        return None if slot is None else slot.forwarded_appends

    async def _slot(self, topic: TopicName, partition: int) -> PartitionSlot:
        info = await self._known.find(topic, partition)
        if self._closed:
            raise FencelogError(ErrorCode.DRAINING, f"{self.config.broker_id} is being closed")
        if not 0 <= partition < info.config.partitions:
            raise FencelogError(
                ErrorCode.NOT_FOUND,
                f"{topic} has partitions 0 to {info.config.partitions - 1}, not {partition}",
            )
        key = (topic, partition)
        if key not in self._slots:
            self._slots[key] = PartitionSlot(info, partition, self._services)
        return self._slots[key]

    async def topic(self, topic: TopicName, partition: int = 0) -> TopicInfo:
        """Return the topic, remembered until a watch reports a change; it is read again if it was
        not known to have the partition.

        Raises FencelogError: TOPIC_NOT_FOUND, METADATA_….
        """
        return await self._known.find(topic, partition)

    def topic_changed(self, info: TopicInfo) -> None:
        """Apply a change of a topic that was made here to its open partitions at once."""
        self._known.changed(info)

    def _topic_changed(self, info: TopicInfo) -> None:
        for partition in range(info.config.partitions):
            slot = self._slots.get((info.name, partition))
            if slot is not None:
                slot.topic_changed(info)

    def _topic_gone(self, info: TopicInfo) -> None:
        error = FencelogError(ErrorCode.TOPIC_NOT_FOUND, f"topic {info.name} was deleted")
        self.events.forget(info.topic_id)
        for partition in range(info.config.partitions):
            slot = self._slots.pop((info.name, partition), None)
            if slot is not None:
                task = asyncio.get_running_loop().create_task(slot.close(error))
                self._letting_go.add(task)
                task.add_done_callback(self._letting_go.discard)

    # -- other brokers ---------------------------------------------------------------------------

    async def owners(self, topic: TopicName) -> list[dict[str, Any]]:
        """Return the owners of a topic, see ``Ownership.owners``. Raises TOPIC_NOT_FOUND,
        METADATA_UNAVAILABLE."""
        info = await self.topics.get(topic)
        return await self._ownership.owners(info.topic_id, info.config.partitions)

    async def report_dead_owner(self, topic: TopicName, partition: int, url: str) -> None:
        """Free the partitions of an owner whose ``url`` refuses connections, for the next requests.

        Leadership is a hint, so this is safe even if the owner lives: fencing protects the log, and
        a living owner creates its node again. Raises TOPIC_NOT_FOUND, METADATA_….
        """
        info = await self.topic(topic)
        if await self._ownership.remove_dead(info.topic_id, partition, url):
            broker_id = self.directory.id_at(url)
            if broker_id is not None:
                self.events.owner_unreachable(broker_id, url, topic, partition)
            for slot in self._slots.values():  # once for all that it owned: they are claimed next
                slot.forget_owner(url)
        else:
            self.forget_owner(topic, partition, url)

    def forget_owner(self, topic: TopicName, partition: int, url: str) -> None:
        """Forget that the broker at ``url`` is the owner, which it is not: the next request reads
        the metadata."""
        slot = self._slots.get((topic, partition))
        if slot is not None:
            slot.forget_owner(url)

    async def while_owner(
        self, topic: TopicName, partition: int, url: str, work: Callable[[], Awaitable[T]]
    ) -> T:
        """Return the result of ``work()``, which asks the owner at ``url``. Raises OwnerLost when
        that broker does not own the partition any more and has not answered; see ``Forwards``."""
        return await (await self._slot(topic, partition)).while_owner(url, work)

    def brokers(self) -> list[dict[str, Any]]:
        """Return the registered brokers, see ``BrokerDirectory.all``."""
        return self.directory.all()

    def bookie_addresses(self) -> dict[str, str]:
        """Return the ``host:port`` of registered bookies by id."""
        return {
            bookie_id: str(json.loads(value)["address"])
            for bookie_id, value in sorted(self._bookies.values.items())
        }

    async def check_ready(self) -> None:
        """Check that this broker can serve what it has. Raises FencelogError if not: DRAINING,
        METADATA_UNAVAILABLE, NOT_ENOUGH_BOOKIES, OUT_OF_SPACE.

        An open partition goes on without the metadata store, and with as many bookies as have to
        acknowledge an entry. A broker without one has to be able to open one: it is registered, and
        there are bookies for a new ledger.
        """
        own_id, replication = self.config.broker_id, self.config.policy.replication
        if self.is_draining:
            raise FencelogError(ErrorCode.DRAINING, f"{own_id} is draining")
        if any(slot.open_log is not None for slot in self._slots.values()):
            self._services.ledgers.check_placement(replication.ack_quorum)
            return
        try:
            await self._store.get(f"{BROKERS_PATH}/{own_id}")
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise
            raise unavailable(f"find {own_id}", "it is not registered") from None
        self._services.ledgers.check_placement(replication.ensemble_size)
