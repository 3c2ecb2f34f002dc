"""One consumer at a time for all partitions of an exclusive subscription.

Each partition's owner lets one consumer pull at a time, but for itself. So, where there are several
partitions, the owner of partition 0 says who it is: whoever pulls from any of them has to hold
partition 0 first. When that one changes its owner, the next one knows no consumer: whoever asks
first is it, and the former one keeps no more than the messages that it has leased elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencelog.api.forward import FORWARDED
from fencelog.api.subscription_owners import Asked, SubscriptionOwners
from fencelog.api.subscription_requests import Done, HoldRequest
from fencelog.api.targets import Endpoint
from fencelog.broker.subscription_config import EXCLUSIVE

if TYPE_CHECKING:
    from fencelog.broker.partition_log import PartitionLog

ARBITER = 0
"""The partition whose owner decides."""


class Holds:
    """Asks the arbiter, where there is one."""

    def __init__(self, owners: SubscriptionOwners) -> None:
        self._owners = owners

    async def hold(self, asked: Asked, request: HoldRequest) -> None:
        """Have the consumer hold the subscription. Does nothing for other types, one partition, or
        what another broker passed on: that one has asked.

        Raises FencelogError: SUBSCRIPTION_BUSY, NO_OWNER, STATE_UNKNOWN, ….
        """
        exchange = asked.exchange
        if (
            asked.subscription.info.config.type == EXCLUSIVE
            and asked.topic.config.partitions > 1
            and (exchange is None or exchange.header(FORWARDED) is None)
        ):
            await self.at_arbiter(asked, request)

    async def at_arbiter(self, asked: Asked, request: HoldRequest) -> Done:
        """Raises as ``hold``."""

        async def local(log: PartitionLog) -> Done:
            await log.subscriptions.hold(
                asked.subscription.info,
                request.consumer,
                lease_ms=request.lease_ms,
                renew=request.renew,
            )
            return Done()

        return await self._owners.ask(asked, ARBITER, Endpoint.HOLD, request, local, Done)
