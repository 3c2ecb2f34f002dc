"""The forwarding of dead letters by the owner of a partition: what fails is tried again."""

from __future__ import annotations

import asyncio

from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.subscriptions.subscriptions import PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage

INFO = SubscriptionInfo("s", "id-s", SubscriptionConfig(max_deliveries=1), "earliest")


class Letters:
    """Dead letters whose forwarding fails at first, for these reasons."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.forwarded: list[int] = []

    async def forward(self, info: SubscriptionInfo, partition: int, message: PulledMessage) -> None:
        if self.errors and message.offset == 1:
            raise self.errors.pop(0)
        self.forwarded.append(message.offset)


async def test_a_letter_that_fails_for_any_reason_is_forwarded_later(stage: Stage) -> None:
    log = await stage.open()
    letters = Letters(RuntimeError("a bug"), FencelogError(ErrorCode.NO_OWNER, "away"))
    subscriptions = log.subscriptions
    subscriptions.dead_letters = letters
    await subscriptions.open(INFO)
    for number in range(3):
        await log.append_message(Message(b"%d" % number))
    pulled = await subscriptions.pull(INFO, "a", max_messages=9, max_bytes=1 << 20)
    await subscriptions.nack(INFO, [message.ack_id for message in pulled], 0)
    await asyncio.sleep(0.01)
    stats = subscriptions.stats("id-s")
    assert (letters.forwarded, stats["acked_to"], stats["burying"]) == ([0, 2], 1, 1)
    assert "a bug" in stats["burial_error"]
    await asyncio.sleep(60)
    stats = subscriptions.stats("id-s")
    assert (letters.forwarded, stats["acked_to"], stats["burying"]) == ([0, 2, 1], 3, 0)
    assert subscriptions._in_use["id-s"].forward_error is None
