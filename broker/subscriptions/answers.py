"""The answers of a partition's subscriptions, and the port to the dead letter topic."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.ledgers.record_batch import Message


class PulledMessage(NamedTuple):
    """A delivered message. ``attempt``: 1, and one more for each time that it was refused or that
    its lease ran out; ``ack_id`` is opaque."""

    offset: int
    publish_time_us: int
    message: Message
    ack_id: str
    attempt: int


class AckResult(NamedTuple):
    """The result of an acknowledgement. ``acked``: ids whose messages are acknowledged now, or were
    before; ``stale``: ids that have no effect any more, because of a seek or because the message is
    not there."""

    acked: int
    stale: list[str]


class DeadLetters(Protocol):
    """The port to the dead letter topic, for messages that failed too often."""

    async def forward(self, info: SubscriptionInfo, partition: int, message: PulledMessage) -> None:
        """Append the message to the dead letter topic. It may be called again for a message for
        which it has raised, or whose acknowledgement a takeover has not seen."""
