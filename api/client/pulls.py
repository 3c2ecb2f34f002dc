"""The pulls of one consumer, one after the other, also when an answer is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from fencelog.api.client.retry import is_transient
from fencelog.api.client.subscription import LeasedMessage, SubscriptionCalls
from fencelog.ledgers.errors import ErrorCode, FencelogError


class Pulls:
    """The pulls of a consumer. ``is_in_order``: what one of them has leased whose answer was lost,
    or was not waited for, is given back before the next one, which would go on behind it."""

    def __init__(
        self, client: SubscriptionCalls, topic: str, subscription: str, consumer: str
    ) -> None:
        self._client = client
        self._topic = topic
        self._subscription = subscription
        self._consumer = consumer
        self._has_lost = False
        self._leased_until_s: float | None = None
        """The time at which the leases of what was lost have ended, once it is to be given back."""
        self.is_in_order = False
        self.lease_ms = 0

    async def pull(
        self, before_going_back: Callable[[], Awaitable[None]], **options: Any
    ) -> list[LeasedMessage]:
        """Return the messages of a pull. All that the consumer has comes again where something was
        lost; ``before_going_back`` acknowledges what need not. Raises FencelogError."""
        if self._has_lost:
            await before_going_back()
            await self._give_back()
        self._has_lost, self._leased_until_s = self.is_in_order, None
        try:
            messages = await self._client.pull(
                self._topic, self._subscription, consumer=self._consumer, **options
            )
        except FencelogError as error:
            # Another owner may have leased just as the broker that was asked began to close.
            may_be_leased = error.may_have_effect or error.code is ErrorCode.DRAINING
            self._has_lost = self._has_lost and may_be_leased
            raise
        self._has_lost = False
        return messages

    async def _give_back(self) -> None:
        """Give back all that the consumer has, or find that its leases have ended, after which it
        comes in order too: a partition may be without an owner for longer. Raises FencelogError."""
        if self._leased_until_s is None:
            self._leased_until_s = anyio.current_time() + self.lease_ms / 1000
        try:
            await self._client.give_back(self._topic, self._subscription, self._consumer)
        except FencelogError as error:
            if error.code is ErrorCode.BAD_REQUEST:
                # Brokers that are not updated yet give nothing back by a name.
                await anyio.sleep_until(self._leased_until_s)
            elif not is_transient(error) or anyio.current_time() < self._leased_until_s:
                raise
