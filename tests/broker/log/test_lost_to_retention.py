"""Messages that retention removes before a subscription has seen them."""

from __future__ import annotations

import asyncio

from fencelog.broker.policy import Policy
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage

INFO = SubscriptionInfo("s", "s-id", SubscriptionConfig(), "earliest")


async def test_they_count_as_lost_and_are_with_no_consumer_any_more(stage: Stage) -> None:
    policy = Policy(roll_entries=1, retention_bytes=1, trim_unacknowledged=True)
    log = await stage.open(policy=policy)
    await log.subscriptions.open(INFO)
    await log.append_message(Message(b"0"))
    await log.subscriptions.acknowledge_below("s-id", 1)
    for number in range(1, 6):
        await log.append_message(Message(b"%d" % number))
        await asyncio.sleep(0.5)
        if number == 1:
            pulled = await log.subscriptions.pull(INFO, "a", max_messages=1, max_bytes=1 << 20)
            assert [message.offset for message in pulled] == [1]
    await log.retention.tend()
    stats = log.subscriptions.stats("s-id")
    assert log.earliest_offset >= 3
    assert stats["lost_to_retention"] == log.earliest_offset - 1
    assert (stats["acked_to"], stats["outstanding"]) == (log.earliest_offset, 0)
