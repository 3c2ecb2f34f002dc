"""The surroundings of one partition: scripted ledgers, and a metadata store in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypedDict, Unpack

from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.store import LedgerListStore, ledger_list_path
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.read.read_ahead import BrokerReads
from fencelog.broker.read.tail_cache import TailCaches
from fencelog.broker.subscriptions.table import SubscriptionTable
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from tests.support.scripted_ledgers import ScriptedLedgers

PATH = ledger_list_path("t1", 0)


class SteppingHost(SystemHost):
    """A wall clock that a test sets, in µs."""

    def __init__(self) -> None:
        self.clock_us = 1_000_000

    def now_us(self) -> int:
        return self.clock_us


class LogOptions(TypedDict, total=False):
    """The other arguments of ``PartitionLog.open``."""

    broker_pending: PendingBytes
    broker_caches: TailCaches
    broker_reads: BrokerReads
    bookie_addresses: Callable[[], dict[str, str]]
    is_leader: Callable[[], Awaitable[bool]]
    on_lost: Callable[[], None]
    complete_cursors: Callable[[SubscriptionTable], Awaitable[None]]


class Stage:
    """The surroundings of one partition, shared by all its prospective owners."""

    def __init__(self, cluster: MemoryCluster, ledgers: ScriptedLedgers) -> None:
        self.cluster = cluster
        self.ledgers = ledgers
        self.host = SteppingHost()
        self.stores: list[MemoryMetadataStore] = []
        self.logs: list[PartitionLog] = []

    async def store(self) -> MemoryMetadataStore:
        store = MemoryMetadataStore(self.cluster)
        await store.start()
        self.stores.append(store)
        return store

    async def node(self, store: MemoryMetadataStore | None = None) -> LedgerListStore:
        node = LedgerListStore(store or await self.store(), PATH, host=self.host)
        await node.create()
        await node.load()
        return node

    async def open(
        self,
        *,
        store: MemoryMetadataStore | None = None,
        node: LedgerListStore | None = None,
        max_entries: int = 1000,
        max_age_s: float = 3600.0,
        policy: Policy | None = None,
        timeout_s: float = 10.0,
        close_timeout_s: float = 5.0,
        **options: Unpack[LogOptions],
    ) -> PartitionLog:
        config = BrokerConfig(
            "a",
            "http://a",
            append_timeout_s=timeout_s,
            close_timeout_s=close_timeout_s,
        )
        log = await PartitionLog.open(
            node or await self.node(store),
            self.ledgers,
            partition=0,
            policy=policy or Policy(roll_entries=max_entries, roll_ms=int(max_age_s * 1000)),
            host=self.host,
            config=config,
            **options,
        )
        self.logs.append(log)
        return log

    async def close(self) -> None:
        gone = FencelogError(ErrorCode.DRAINING, "the test is over")
        for log in self.logs:
            await log.abandon(gone)
        for store in self.stores:
            await store.close()


class BrokerMaker(Protocol):
    """A function that starts a broker of the stage's cluster."""

    async def __call__(
        self,
        broker_id: str,
        *,
        store: MemoryMetadataStore | None = None,
        record_events: bool = False,
    ) -> Broker: ...


ReadAll = Callable[[PartitionLog], Awaitable[list[bytes]]]
"""A function that reads the values of all messages of a log."""


class Until(Protocol):
    """A function that waits for a condition."""

    async def __call__(self, condition: Callable[[], bool]) -> None: ...
