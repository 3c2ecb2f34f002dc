"""The pulls of one consumer, one after the other, also when an answer is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

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
        self.is_in_order = False

    async def pull(
        self, before_going_back: Callable[[], Awaitable[None]], **options: Any
    ) -> list[LeasedMessage]:
        """Return the messages of a pull. All that the consumer has comes again where something was
        lost; ``before_going_back`` acknowledges what need not. Raises FencelogError."""
        if self._has_lost:
            await before_going_back()
            await self._client.give_back(self._topic, self._subscription, self._consumer)
        self._has_lost = self.is_in_order
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
