"""The creation of cursors, at the owner of a partition."""

from __future__ import annotations

import asyncio
from typing import Any

from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners
from fencelog.broker.names import TopicName
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers

TOPIC = TopicInfo(TopicName("default", "t"), "t1", TopicConfig(), 0)
OTHER = RegisteredSubscription(SubscriptionInfo("other", "0" * 24, SubscriptionConfig()), 1, 0)
WANTED = RegisteredSubscription(SubscriptionInfo("s", "1" * 24, SubscriptionConfig()), 1, 0)


def owners() -> SubscriptionOwners:
    nobody: Any = None
    return SubscriptionOwners(nobody, nobody, nobody, nobody_forwards)


def nobody_forwards(topic: TopicInfo) -> Any:
    return None


async def test_a_second_creator_waits_until_the_cursor_is_durable(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    log = await stage.open()
    await owners().open_cursor(log, TOPIC, OTHER)
    state = ledgers.writer_of(log._node.ledger_list.state_ledger)
    state.auto_ack = False
    creators = [asyncio.create_task(owners().open_cursor(log, TOPIC, WANTED)) for _ in range(2)]
    for _ in range(10):
        await asyncio.sleep(0)
    await owners().prepare(log, Asked(TOPIC, WANTED))  # what confirms nothing waits for nothing
    assert not any(creator.done() for creator in creators)
    state.ack(len(state.payloads) - 1)
    await asyncio.gather(*creators)
    assert log.subscriptions.all() == [OTHER.info.subscription_id, WANTED.info.subscription_id]
