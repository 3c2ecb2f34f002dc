"""All subscriptions inside one partition: the shell around cursors and dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencelog.broker.subscription_ack_id import partition_of_ack_id
from fencelog.broker.subscription_answers import AckResult, DeadLetters, PulledMessage
from fencelog.broker.subscription_config import SubscriptionInfo

__all__ = ["AckResult", "DeadLetters", "PulledMessage", "Subscriptions", "partition_of_ack_id"]


class Subscriptions:
    """One partition's subscriptions. ``dead_letters`` is set by the application."""

    def __init__(self) -> None:
        self.dead_letters: DeadLetters | None = None

    async def open(self, info: SubscriptionInfo, *, start_offset: int | None = None) -> None:
        raise NotImplementedError

    async def drop(self, subscription_id: str) -> None:
        raise NotImplementedError

    async def pull(
        self,
        info: SubscriptionInfo,
        consumer: str,
        *,
        max_messages: int,
        max_bytes: int,
        lease_ms: int | None = None,
    ) -> list[PulledMessage]:
        raise NotImplementedError

    async def wait(self, info: SubscriptionInfo, consumer: str, wait_ms: int) -> bool:
        raise NotImplementedError

    async def ack(self, info: SubscriptionInfo, ack_ids: Sequence[str]) -> AckResult:
        raise NotImplementedError

    async def ack_through(
        self, info: SubscriptionInfo, offset: int, consumer: str | None = None
    ) -> None:
        raise NotImplementedError

    def nack(
        self, info: SubscriptionInfo, ack_ids: Sequence[str], delay_ms: int | None = None
    ) -> list[str]:
        raise NotImplementedError

    def extend(self, info: SubscriptionInfo, ack_ids: Sequence[str], lease_ms: int) -> list[str]:
        raise NotImplementedError

    async def seek(self, info: SubscriptionInfo, offset: int) -> None:
        raise NotImplementedError

    def stats(self, subscription_id: str) -> dict[str, Any]:
        raise NotImplementedError

    def all(self) -> list[str]:
        raise NotImplementedError

    def slowest_offset(self) -> int | None:
        raise NotImplementedError

    async def acknowledge_below(self, subscription_id: str, offset: int) -> None:
        raise NotImplementedError
