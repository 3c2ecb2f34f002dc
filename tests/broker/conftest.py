"""Brokers and logs over scripted ledgers and a metadata store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio

from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ReadLimits
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.record_batch import decode_batch
from tests.support.broker_stage import BrokerMaker, ReadAll, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers
from tests.support.until import until as wait_until
from tests.support.virtual_time import VirtualTimeLoop

_WITH_THREADS = ("test_with_bookies.py",)
"""The modules whose bookies write to a disk: virtual time would not wait for it."""


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests in virtual time, which does not pass while there is work."""
    if item.path.name in _WITH_THREADS:
        return {"real time": asyncio.new_event_loop}
    return {"virtual time": VirtualTimeLoop}


@pytest.fixture
def ledgers() -> ScriptedLedgers:
    return ScriptedLedgers()


@pytest_asyncio.fixture
async def stage(ledgers: ScriptedLedgers) -> AsyncIterator[Stage]:
    stage = Stage(MemoryCluster(), ledgers)
    yield stage
    await stage.close()


@pytest.fixture
def until() -> Until:
    return wait_until


async def _values(log: PartitionLog) -> list[bytes]:
    values: list[bytes] = []
    offset = log.earliest_offset
    while offset < log.tail_offset:
        result = await log.read(offset, ReadLimits(max_messages=1000, max_bytes=1 << 20))
        for stored in result.entries:
            assert stored.base_offset == offset
            offset = stored.end_offset
            values += [message.value for message in decode_batch(stored.batch)]
        assert result.next_offset == offset
    return values


@pytest.fixture
def read_all() -> ReadAll:
    """The values of all messages of a log, read through ``read`` from the earliest on."""
    return _values


@pytest_asyncio.fixture
async def make_broker(stage: Stage) -> AsyncIterator[BrokerMaker]:
    """Start brokers over one cluster; they are closed in the end."""
    brokers: list[Broker] = []

    async def make(
        broker_id: str, *, store: MemoryMetadataStore | None = None, record_events: bool = False
    ) -> Broker:
        url = f"http://{broker_id}"
        config = BrokerConfig(broker_id, url, close_timeout_s=2.0, record_events=record_events)
        broker = Broker(store or await stage.store(), stage.ledgers, host=stage.host, config=config)
        await broker.start()
        brokers.append(broker)
        return broker

    yield make
    for broker in brokers:
        await broker.close()
