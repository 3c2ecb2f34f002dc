"""Whose turn it is: consumers of an ordered subscription between their pulls."""

from __future__ import annotations

import asyncio

from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage

LEASE_MS = 1_000


async def test_who_has_waited_for_longer_than_its_lease_keeps_its_place(stage: Stage) -> None:
    """It pulls again at once, as a rule; another one must not come between."""
    config = SubscriptionConfig(type="failover", lease_ms=LEASE_MS)
    info = SubscriptionInfo("s", "s-id", config, "earliest")
    log = await stage.open()
    await log.subscriptions.open(info)

    async def pull(consumer: str) -> list[int]:
        found = await log.subscriptions.pull(info, consumer, max_messages=9, max_bytes=1000)
        return [message.offset for message in found]

    assert await pull("first") == []
    assert not await log.subscriptions.wait(info, "first", 5 * LEASE_MS)
    await log.append_message(Message(b"x"))
    assert await pull("second") == []
    assert await pull("first") == [0]
    await asyncio.sleep(2 * LEASE_MS / 1000)
    assert await pull("second") == [0]
