"""Retention and cursors that are missing: what no cursor holds is not what nobody needs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.log.retention import Trimmed
from fencelog.broker.names import TopicName
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

SUBSCRIPTION = SubscriptionInfo("s", "s-id", SubscriptionConfig(), "earliest")


async def test_nothing_goes_of_a_partition_whose_cursors_are_not_complete(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    """The topic got it after the subscription, and nobody has pulled from it yet."""
    name = TopicName("default", "t")
    config = BrokerConfig("a", "http://a", retention_check_s=0.02)
    broker = Broker(await stage.store(), ledgers, host=stage.host, config=config)
    await broker.start()
    try:
        settings = {"retention_bytes": 1, "roll_entries": 1}
        topic, _ = await broker.topics.create(name, TopicConfig(1, settings))
        registered, _ = await broker.subscriptions.create(
            topic.topic_id, "s", SubscriptionConfig(), "earliest", partitions=1, at_most=10
        )
        broker.topic_changed(await broker.topics.update(name, {}, partitions=2))
        later = await broker.partition(name, 1)
        for number in range(6):
            await later.append_message(Message(b"%d" % number))
        await until(lambda: bool(later.subscriptions.all()))
        await asyncio.sleep(0.2)  # many looks of retention
        assert later.earliest_offset == 0
        stats = later.subscriptions.stats(registered.info.subscription_id)
        assert (stats["acked_to"], stats["lost_to_retention"]) == (0, 0)
        await later.subscriptions.acknowledge_below(registered.info.subscription_id, 6)
        await until(lambda: later.earliest_offset > 0)
    finally:
        await broker.close()


async def test_a_trim_takes_nothing_while_the_cursors_cannot_be_completed(stage: Stage) -> None:
    refusals = [FencelogError(ErrorCode.METADATA_UNAVAILABLE, "no answer")]

    async def complete(subscriptions: Any) -> None:
        if refusals:
            raise refusals.pop()
        await subscriptions.open(SUBSCRIPTION)

    log = await stage.open(complete_cursors=complete)
    for number in range(3):
        await log.append_message(Message(b"%d" % number))
    with pytest.raises(FencelogError, match="no answer"):
        await log.retention.trim(2)
    assert log.earliest_offset == 0
    assert await log.retention.trim(2) == Trimmed(0, held_back=True)
    await log.subscriptions.acknowledge_below("s-id", 1)
    assert await log.retention.trim(2) == Trimmed(1, held_back=True)
