"""The lease of an exclusive subscription: one consumer at a time for all partitions.

Each partition's owner lets one consumer pull at a time, but for itself. So, where there are several
partitions, the owner of partition 0 decides: a consumer has to hold partition 0 before it pulls
from any of them. When the owner of partition 0 changes, the next one knows no consumer: the first
one that asks becomes the consumer, and the previous one keeps no more than the messages that it has
leased elsewhere.

A consumer has to hold the subscription for as long as it has messages, else another one gets those
of another partition meanwhile. Its leases begin later than the request to the arbiter: after the
way to their owner, or a takeover there. So it holds the subscription a little longer than they
last, and where they have taken longer than that the arbiter is asked once more before they are
reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from fencelog.api.http.targets import Endpoint
from fencelog.api.routing.link_scope import OVER_LINK
from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners
from fencelog.api.subscriptions.requests import Done, LeaseRequest
from fencelog.broker.limits import MAX_LEASE_MS
from fencelog.broker.registry.subscription_config import EXCLUSIVE
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.partition.partition_log import PartitionLog

T = TypeVar("T")

ARBITER = 0
"""The partition whose owner decides."""

MARGIN = 4
"""The divisor of the margin: a consumer holds the subscription for this part of its leases
longer."""


class ExclusiveLease:
    """The lease of a subscription, requested from the arbiter where there is one."""

    def __init__(self, owners: SubscriptionOwners) -> None:
        self._owners = owners

    async def while_held(
        self,
        asked: Asked,
        request: LeaseRequest,
        lease: Callable[[], Awaitable[T]],
        *,
        wait_s: float = 0.0,
    ) -> T:
        """Return the result of ``lease``, which takes or extends leases of ``request.lease_ms``,
        within ``wait_s`` if all is well; the consumer holds the subscription for longer than they
        last.

        The arbiter is not asked for other types, for one partition, or for a request that another
        broker forwarded, since that one has asked. Raises what ``lease`` raises; FencelogError:
        SUBSCRIPTION_BUSY, NO_OWNER, …; if it was taken and another consumer was admitted meanwhile,
        or the arbiter cannot be asked again, STATE_UNKNOWN: there are leases that nobody heard of.
        """
        covered_s = await self._hold(asked, request, wait_s)
        result = await lease()
        if asyncio.get_running_loop().time() <= covered_s:
            return result
        try:
            await self._hold(asked, request)
        except FencelogError as error:
            raise FencelogError(ErrorCode.STATE_UNKNOWN, error.detail) from error
        return result

    async def _hold(self, asked: Asked, request: LeaseRequest, wait_s: float = 0.0) -> float:
        """Have the consumer hold the subscription; leases taken until then end earlier."""
        exchange = asked.exchange
        if (
            asked.subscription.info.config.type != EXCLUSIVE
            or asked.topic.config.partitions == 1
            or (exchange is not None and OVER_LINK in exchange.scope)
        ):
            return inf
        lease_ms = request.lease_ms or asked.subscription.info.config.lease_ms
        longer_ms = min(lease_ms + lease_ms // MARGIN + round(wait_s * 1000), MAX_LEASE_MS)
        begun_s = asyncio.get_running_loop().time()
        await self.at_arbiter(asked, replace(request, lease_ms=longer_ms))
        return begun_s + (longer_ms - lease_ms) / 1000

    async def at_arbiter(self, asked: Asked, request: LeaseRequest) -> Done:
        """Have the consumer hold the subscription. Raises SUBSCRIPTION_BUSY, NO_OWNER, …."""

        async def local(log: PartitionLog) -> Done:
            await log.subscriptions.hold(
                asked.subscription.info,
                request.consumer,
                lease_ms=request.lease_ms,
                renew=request.renew,
            )
            return Done()

        return await self._owners.ask(asked, ARBITER, Endpoint.HOLD, request, local, Done)
