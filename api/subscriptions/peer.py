"""The requests of a broker to a partition's owner when a subscription is created or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.targets import Target
from fencelog.api.subscriptions.owners import SubscriptionOwners
from fencelog.api.subscriptions.parts import the_partition
from fencelog.api.subscriptions.requests import CursorRequest, Done, read_body
from fencelog.api.subscriptions.verbs import respond
from fencelog.broker.registry.subscription_registry import decode_registered
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_ADMIN_BYTES

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker


class CursorRequests:
    """The endpoints ``:open-cursor`` and ``:drop-cursor``, for one partition that this broker owns.

    They carry the subscription to be opened or dropped, because this broker may not see the change
    in metadata yet, or see another subscription under the name.
    """

    def __init__(self, broker: Broker, owners: SubscriptionOwners, bodies: BodyReader) -> None:
        self._broker = broker
        self._owners = owners
        self._bodies = bodies

    async def open(self, exchange: Exchange, target: Target) -> None:
        """Open the cursor of the subscription whose node is the body."""
        body = await self._bodies.read(exchange, MAX_ADMIN_BYTES)
        try:
            subscription = decode_registered(body)
        except FencelogError as error:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"the body: {error.detail}") from None
        topic = await self._broker.topic(target.topic)
        log = await self._broker.partition(target.topic, the_partition(exchange, topic))
        await self._owners.open_cursor(log, topic, subscription)
        await respond(exchange, Done())

    async def drop(self, exchange: Exchange, target: Target) -> None:
        """Drop the cursor of a subscription that was deleted."""
        body = await self._bodies.read(exchange, MAX_ADMIN_BYTES)
        request = read_body(exchange, body, CursorRequest)
        topic = await self._broker.topic(target.topic)
        log = await self._broker.partition(target.topic, the_partition(exchange, topic))
        await log.subscriptions.drop(request.subscription_id)
        await respond(exchange, Done())
