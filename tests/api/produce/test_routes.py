"""The number of partitions that an append under an idempotency key was routed by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.api.produce.once import Once
from fencelog.broker.append.conditions import NO_CONDITIONS
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError

NAME = TopicName.of("shop", "orders")


async def test_a_broker_that_knows_fewer_partitions_routes_nothing() -> None:
    async def topic(name: TopicName, partition: int) -> TopicInfo:
        assert partition == 1
        return TopicInfo(name, "id", TopicConfig(partitions), 0)

    broker: Any = SimpleNamespace(topic=topic)
    once = Once(broker, broker, broker, broker)
    routed = NO_CONDITIONS._replace(routed_by=2)
    partitions = 2
    await once.check(NAME, routed)
    partitions = 3
    with pytest.raises(FencelogError, match="chosen among 2") as raised:
        await once.check(NAME, routed)
    assert raised.value.code is ErrorCode.METADATA_CONFLICT
    for unrouted in (None, NO_CONDITIONS):
        await once.check(NAME, unrouted)
