"""Brokers that know each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from tests.broker.partition.transfer_stage import Make, Network
from tests.support.broker_stage import Stage


@pytest.fixture
def network() -> Network:
    return Network()


@pytest_asyncio.fixture
async def make(stage: Stage, network: Network) -> AsyncIterator[Make]:
    """Start brokers that know each other."""

    async def make(name: str, **settings: Any) -> Broker:
        url = f"http://{name}"
        config = replace(BrokerConfig(name, url, close_timeout_s=1.0), **settings)
        broker = Broker(
            await stage.store(), stage.ledgers, host=stage.host, config=config, peers=network
        )
        network.brokers[url] = broker
        await broker.start()
        return broker

    yield make
    for broker in network.brokers.values():
        await broker.close()
