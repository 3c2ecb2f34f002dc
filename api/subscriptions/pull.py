"""The lease of a subscription's messages, over all partitions of its topic.

A lease is taken by an answer that may be lost, so nothing is leased before it can be sent: first
the available messages are taken; if there is none, every owner is asked to report when there is one
(``subscription_wait``), and only then is it taken. The messages that a lost answer had leased are
delivered again when their leases have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.structs import replace

from fencelog.api.http.json_render import (
    StoredMessage,
    ValueForm,
    encode_objects,
    message_object,
)
from fencelog.api.http.targets import Endpoint
from fencelog.api.routing.partitioner import RoundRobin
from fencelog.api.subscriptions.exclusive_lease import ExclusiveLease
from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners
from fencelog.api.subscriptions.requests import LeaseRequest, Pulled, PullRequest
from fencelog.api.subscriptions.wait import SubscriptionWaits
from fencelog.broker.registry.subscription_config import (
    ORDERED,
    SubscriptionInfo,
    check_consumer_is_named,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog
    from fencelog.broker.subscriptions.subscriptions import PulledMessage

Raws = list[Raw]

ERROR_PAUSE_S = 0.25
"""The pause before partitions that could not be read are read again, within one pull."""


class DeliveredMessage(StoredMessage, kw_only=True):
    """A message that is leased: ``ack_id`` acknowledges it."""

    ack_id: str
    attempt: int


class DeliveredMessages(Struct):
    """The answer to a pull: ``Pulled`` as clients see it."""

    messages: list[DeliveredMessage]


class PullService:
    """Takes messages for consumers."""

    def __init__(
        self, broker: Broker, owners: SubscriptionOwners, exclusive_lease: ExclusiveLease
    ) -> None:
        self._broker = broker
        self._owners = owners
        self._exclusive_lease = exclusive_lease
        self._waiting = SubscriptionWaits(broker, owners)
        self._round_robin = RoundRobin()

    async def pull(self, asked: Asked, partitions: Sequence[int], request: PullRequest) -> Raws:
        """Return messages as JSON, perhaps none: then there was none for ``request.wait`` seconds.

        Raises FencelogError when nothing was found and a partition could not be asked; BAD_REQUEST
        for a consumer that has to have a name.
        """
        check_consumer_is_named(asked.subscription.info.config.type, request.consumer)
        lease = LeaseRequest(request.consumer, request.lease_ms)
        if len(partitions) == 1:
            from_one = partial(self._from_one, asked, partitions[0], request)
            return await self._exclusive_lease.while_held(
                asked, lease, from_one, wait_s=request.wait
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait
        at_once = replace(request, wait=0)
        place = self._round_robin.next(asked.subscription.info.subscription_id, len(partitions))
        first, *others = [*partitions[place:], *partitions[:place]]
        near = [p for p in others if self._broker.open_log(asked.topic.name, p) is not None]
        from_many = partial(self._from_many, asked, request=at_once)
        found, errors = await self._exclusive_lease.while_held(
            asked, lease, partial(from_many, [first, *near])
        )
        while not found:
            left_s = max(0.0, deadline - loop.time())
            ready, errors = await self._waiting.wait(
                asked, [first, *others], request.consumer, left_s
            )
            if not ready:
                break
            found, errors = await self._exclusive_lease.while_held(
                asked, lease, partial(from_many, ready)
            )
            if not left_s:
                break
            if not found and errors:  # what cannot be read is ready at once again
                await asyncio.sleep(min(left_s, ERROR_PAUSE_S))
        if errors and not found:
            raise next((error for error in errors if error.may_have_effect), errors[0])
        return found

    async def _from_many(
        self, asked: Asked, partitions: Sequence[int], request: PullRequest
    ) -> tuple[Raws, list[FencelogError]]:
        """Return the available messages, from one partition after the other. Once some are leased,
        no request to another broker is waited for, since the leases run already. Raises
        STATE_UNKNOWN where order matters and an owner's answer was lost: what comes next of its
        partition is behind what it may have leased."""
        is_ordered = asked.subscription.info.config.type in ORDERED
        found: Raws = []
        size = 0
        errors: list[FencelogError] = []
        for partition in partitions:
            if found and self._broker.open_log(asked.topic.name, partition) is None:
                continue
            rest = replace(
                request, max=request.max - len(found), max_bytes=request.max_bytes - size
            )
            try:
                more = await self._from_one(asked, partition, rest)
            except FencelogError as error:
                if is_ordered and error.code is ErrorCode.STATE_UNKNOWN:
                    raise
                errors.append(error)
                continue
            found += more
            size += sum(memoryview(message).nbytes for message in more)
            if len(found) >= request.max or size >= request.max_bytes:
                break
        return found, errors

    async def _from_one(self, asked: Asked, partition: int, request: PullRequest) -> Raws:
        info = asked.subscription.info

        async def local(log: PartitionLog) -> Pulled:
            messages = await take(log, info, request)
            return Pulled(render(messages, partition, request.value_form))

        ask = self._owners.ask(asked, partition, Endpoint.PULL, request, local, Pulled)
        exchange = asked.exchange
        if exchange is None:
            return (await ask).messages
        has_leased = exchange.may_have_effect
        # A pull that is ended here gives back, and another owner hardly ever leases as it is ended
        # while it waits.
        is_here = self._broker.open_log(asked.topic.name, partition) is not None
        exchange.may_have_effect = has_leased or not (is_here or request.wait)
        try:
            messages = (await ask).messages
        except FencelogError as error:
            exchange.may_have_effect = has_leased or error.may_have_effect
            raise
        exchange.may_have_effect = has_leased or bool(messages)
        return messages


async def take(
    log: PartitionLog, info: SubscriptionInfo, request: PullRequest
) -> list[PulledMessage]:
    """Lease messages of one log; if there are none, or none may be read yet, wait for some."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.wait
    while True:
        left_ms = round((deadline - loop.time()) * 1000)
        messages: list[PulledMessage] = []
        try:
            messages = await log.subscriptions.pull(
                info,
                request.consumer,
                max_messages=request.max,
                max_bytes=request.max_bytes,
                lease_ms=request.lease_ms,
            )
        except FencelogError as error:
            if error.code is not ErrorCode.RATE_LIMITED or left_ms <= 0:
                raise
        if messages or left_ms <= 0:
            return messages
        if not await log.subscriptions.wait(info, request.consumer, left_ms):
            return []


def render(messages: Sequence[PulledMessage], partition: int, form: ValueForm) -> Raws:
    """Render messages as ``DeliveredMessage`` describes them."""
    objects = []
    for offset, publish_time_us, message, ack_id, attempt in messages:
        shown = message_object(partition, offset, publish_time_us, message, form)
        shown["ack_id"] = ack_id
        shown["attempt"] = attempt
        objects.append(shown)
    return list(map(Raw, encode_objects(objects)))
