"""Brokers and logs over scripted ledgers and a metadata store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.store import ChainNode, chain_path
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.record_batch import decode_batch
from tests.support.scripted_ledgers import ScriptedLedgers

PATH = chain_path("t1", 0)


class SteppingHost(SystemHost):
    """A wall clock that a test sets, in µs."""

    def __init__(self) -> None:
        self.clock_us = 1_000_000

    def now_us(self) -> int:
        return self.clock_us


class Stage:
    """One partition's surroundings, shared by all who want to own it."""

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

    async def node(self, store: MemoryMetadataStore | None = None) -> ChainNode:
        node = ChainNode(store or await self.store(), PATH, host=self.host)
        await node.create()
        await node.load()
        return node

    async def open(
        self,
        *,
        store: MemoryMetadataStore | None = None,
        node: ChainNode | None = None,
        max_entries: int = 1000,
        max_age_s: float = 3600.0,
        policy: Policy | None = None,
        patience_s: float = 10.0,
        close_timeout_s: float = 5.0,
        **options: Any,
    ) -> PartitionLog:
        config = BrokerConfig(
            "a",
            "http://a",
            repair_patience_s=patience_s,
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


@pytest.fixture
def ledgers() -> ScriptedLedgers:
    return ScriptedLedgers()


@pytest_asyncio.fixture
async def stage(ledgers: ScriptedLedgers) -> AsyncIterator[Stage]:
    stage = Stage(MemoryCluster(), ledgers)
    yield stage
    await stage.close()


async def _until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for rings no bell
            await asyncio.sleep(0.001)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for a condition, up to 5 s."""
    return _until


async def _values(log: PartitionLog) -> list[bytes]:
    values: list[bytes] = []
    offset = log.earliest_offset
    while offset < log.tail_offset:
        result = await log.read(offset, max_messages=1000, max_bytes=1 << 20)
        for stored in result.entries:
            assert stored.base_offset == offset
            offset = stored.end_offset
            values += [message.value for message in decode_batch(stored.batch)]
        assert result.next_offset == offset
    return values


@pytest.fixture
def read_all() -> Callable[[PartitionLog], Awaitable[list[bytes]]]:
    """The values of all messages of a log, read through ``read`` from the earliest on."""
    return _values


BrokerMaker = Callable[..., Awaitable[Broker]]


@pytest_asyncio.fixture
async def make_broker(stage: Stage) -> AsyncIterator[BrokerMaker]:
    """Start brokers over one cluster; they are closed in the end."""
    brokers: list[Broker] = []

    async def make(broker_id: str, *, store: MemoryMetadataStore | None = None) -> Broker:
        config = BrokerConfig(broker_id, f"http://{broker_id}", close_timeout_s=2.0)
        broker = Broker(store or await stage.store(), stage.ledgers, host=stage.host, config=config)
        await broker.start()
        brokers.append(broker)
        return broker

    yield make
    for broker in brokers:
        await broker.close()
