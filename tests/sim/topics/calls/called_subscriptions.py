"""The requests of the service's endpoints to a subscription at an instance of the log's owner, for
a call of a client (``oracle/call_history.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.broker.subscriptions.answers import AckResult, DeadLetters, PulledMessage
from fencelog.ledgers.errors import FencelogError
from tests.sim.oracle.call_history import CALL, Call, CallHistory, Leased
from tests.sim.oracle.observed_subscriptions import ObservedSubscriptions
from tests.sim.oracle.subscription_history import SubscriptionHistory
from tests.sim.topics.calls.order_history import HandedOut

T = TypeVar("T")


class CalledSubscriptions(ObservedSubscriptions):
    """Asked by the real code of ``api``."""

    def __init__(
        self, instance: PartitionLog, history: SubscriptionHistory, calls: CallHistory
    ) -> None:
        super().__init__(instance, history)
        self._calls = calls

    @property
    def dead_letters(self) -> DeadLetters | None:
        return self._real.dead_letters

    @dead_letters.setter
    def dead_letters(self, letters: DeadLetters | None) -> None:
        self._real.dead_letters = letters

    async def begin(self, registered: RegisteredSubscription) -> None:
        await self._real.begin(registered)
        stats = self._real.stats(registered.info.subscription_id)
        self.history.opened(self.instance, stats["acked_to"])

    async def pull(
        self, info: SubscriptionInfo, consumer: str, **limits: Any
    ) -> list[PulledMessage]:
        call, began_s = self._begun(info), asyncio.get_running_loop().time()
        messages = await super().pull(info, consumer, **limits)
        now_s = asyncio.get_running_loop().time()
        until_s = began_s + (limits["lease_ms"] or info.config.lease_ms) / 1000
        partition = self.instance.partition
        given = {
            one.ack_id: Leased(consumer, partition, one.offset, now_s, until_s, None)
            for one in messages
        }
        self._calls.leased(call, given)
        if self._calls.order is not None:
            self._calls.order.leased(
                {
                    one.ack_id: HandedOut(
                        call.name,
                        consumer,
                        partition,
                        one.offset,
                        self.instance.epoch,
                        began_s,
                        now_s,
                        until_s + now_s - began_s,
                    )
                    for one in messages
                }
            )
        return messages

    async def hold(
        self, info: SubscriptionInfo, consumer: str, *, lease_ms: int | None, renew: bool = False
    ) -> None:
        call, began_s = self._begun(info), asyncio.get_running_loop().time()
        await super().hold(info, consumer, lease_ms=lease_ms, renew=renew)
        self._calls.held(
            call,
            self.instance,
            began_s=began_s,
            now_s=asyncio.get_running_loop().time(),
            lease_s=(info.config.lease_ms if lease_ms is None else lease_ms) / 1000,
            renews=renew,
        )

    # -- what is done once -----------------------------------------------------------------------

    async def ack(self, info: SubscriptionInfo, ack_ids: Sequence[str]) -> AckResult:
        work = super().ack
        return await self._once(info, lambda: work(info, ack_ids), _stale)

    async def ack_through(
        self, info: SubscriptionInfo, ack_id: str, consumer: str | None = None
    ) -> AckResult:
        work = super().ack_through
        return await self._once(info, lambda: work(info, ack_id, consumer), _stale)

    async def seek(self, info: SubscriptionInfo, offset: int) -> int:
        work = super().seek
        self._calls.sought(self.instance.partition, asyncio.get_running_loop().time())
        if self._calls.order is not None:
            self._calls.order.sought(self.instance.partition)
        return await self._once(
            info, lambda: work(info, offset), lambda found: (f"{self.instance.partition}/{found}",)
        )

    async def nack(
        self,
        info: SubscriptionInfo,
        ack_ids: Sequence[str],
        delay_ms: int | None = None,
        *,
        failed: bool = True,
    ) -> list[str]:
        work = super().nack
        return await self._once(info, lambda: work(info, ack_ids, delay_ms, failed=failed), list)

    async def release(self, info: SubscriptionInfo, consumer: str) -> None:
        work = super().release
        await self._once(info, lambda: work(info, consumer), lambda nothing: ())
        if self._calls.order is not None:
            self._calls.order.gave_back(consumer, self.instance.partition, self.instance.epoch)

    async def extend(
        self, info: SubscriptionInfo, ack_ids: Sequence[str], lease_ms: int
    ) -> list[str]:
        work, now_s = super().extend, asyncio.get_running_loop().time()
        stale = await self._once(info, lambda: work(info, ack_ids, lease_ms), list)
        kept = set(ack_ids).difference(stale)
        self._calls.extended(self._begun(info), kept, now_s + lease_ms / 1000)
        return stale

    async def _once(
        self,
        info: SubscriptionInfo,
        work: Callable[[], Awaitable[T]],
        says: Callable[[T], Iterable[Any]],
    ) -> T:
        call, partition = self._begun(info), self.instance.partition
        self._calls.takes(call, partition)
        try:
            result = await work()
        except FencelogError as error:
            self._calls.failed(call, partition, error)
            raise
        self._calls.did(call, partition, says(result))
        return result

    def _begun(self, info: SubscriptionInfo) -> Call:
        """The call that asks. Its owner has a cursor, whether or not that is durable."""
        if self.instance not in self.history.views:
            acked_to = self._real.stats(info.subscription_id)["acked_to"]
            self.history.noticed(self.instance, acked_to)
        call = CALL.get()
        assert call is not None
        return call


def _stale(result: AckResult) -> Iterable[str]:
    return result.stale
