"""All subscriptions inside one partition: the shell around cursors and dispatch.

A subscription's definition belongs to its topic (``subscription_registry``); this module keeps its
cursor, in the partition's state log, and its leases, in memory. A takeover loses the leases:
messages that were delivered and not acknowledged are delivered again. It never loses a confirmed
acknowledgement, which was in the state log first.

There is no timer: the effects of time are applied at the next request, and a waiting request has
its own time limit. A partition without subscriptions costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from math import ceil

from fencelog.broker.append.rates import DispatchRate, rate_limited
from fencelog.broker.dispatch.ack_ranges import ranges_of
from fencelog.broker.dispatch.cursor_core import Cursors, next_generation
from fencelog.broker.dispatch.ordered import OrderedDispatch
from fencelog.broker.ledger_list.state_log import StateLog
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.policy import Policy
from fencelog.broker.read.log_reader import LogReader
from fencelog.broker.read.stored import ReadLimits
from fencelog.broker.registry.subscription_config import (
    SubscriptionInfo,
    check_consumer,
    check_delay,
    check_lease,
)
from fencelog.broker.subscriptions.ack_id import AckId, parse_ack_ids, partition_of_ack_id
from fencelog.broker.subscriptions.answers import AckResult, DeadLetters, PulledMessage
from fencelog.broker.subscriptions.pull import PullOperation
from fencelog.broker.subscriptions.state import SubscriptionState
from fencelog.broker.subscriptions.table import SubscriptionTable
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

__all__ = ["AckResult", "DeadLetters", "PulledMessage", "Subscriptions", "partition_of_ack_id"]

_DECIDED_BY_CONSUMERS = (ErrorCode.SUBSCRIPTION_BUSY, ErrorCode.LIMIT_REACHED)
"""The refusals that a later owner may not make, as the consumers are others there."""


class Subscriptions(SubscriptionTable):
    """The subscriptions of one partition.

    Every method with an ``info`` raises FencelogError(SUBSCRIPTION_NOT_FOUND) where there is no
    cursor for it: it was not opened, it was dropped, or it was not durable and the owner has
    changed.
    """

    def __init__(
        self,
        reader: LogReader,
        state_log: StateLog,
        cursors: Cursors,
        policy: Policy,
        host: Host,
        *,
        partition: int,
        epoch: int,
        rate: DispatchRate,
        metrics: BrokerCounts,
    ) -> None:
        """Create the subscriptions. ``rate``: the rate limit of deliveries."""
        super().__init__(
            reader, state_log, cursors, policy, partition=partition, epoch=epoch, metrics=metrics
        )
        self._host = host
        self._rate = rate
        self._deliveries = 0
        self._waiting: dict[SubscriptionState, None] = {}
        """The waiting subscriptions, in the order in which they began to wait."""

    # -- delivery --------------------------------------------------------------------------------

    async def pull(
        self,
        info: SubscriptionInfo,
        consumer: str,
        *,
        max_messages: int,
        max_bytes: int,
        lease_ms: int | None = None,
    ) -> list[PulledMessage]:
        """Return the messages that can be delivered now, new ones in offset order; they are leased
        to the consumer.

        Values and keys take ``max_bytes`` at most, unless it is one message. Raises
        SUBSCRIPTION_BUSY, LIMIT_REACHED, NO_OWNER, RATE_LIMITED, BAD_REQUEST, what reading raises.
        """
        check_consumer(consumer)
        lease_s = check_lease(info.config.lease_ms if lease_ms is None else lease_ms) / 1000
        subscription = self._use(info)
        limit = self._rate.limit
        if limit is not None:
            allowed = await limit.admit(ReadLimits(max_messages, max_bytes))
            max_messages, max_bytes, _ = allowed
        async with self._refusing_as_owner(), subscription.turn:
            self._deliveries += 1
            pull = PullOperation(
                subscription,
                consumer,
                partition=self._partition,
                epoch=self._epoch,
                delivery=self._deliveries,
                host=self._host,
                max_messages=max_messages,
                max_bytes=max_bytes,
                lease_s=lease_s,
            )
            pulled = await pull.run()
        self._count(pulled)
        if limit is not None:
            limit.take(len(pulled), sum(len(each.message.value) for each in pulled))
        return pulled

    def _count(self, pulled: Sequence[PulledMessage]) -> None:
        self._metrics.delivered_messages += len(pulled)
        again = [message for message in pulled if message.attempt > 1]
        self._metrics.redelivered_messages += len(again)

    async def wait(self, info: SubscriptionInfo, consumer: str, wait_ms: int) -> bool:
        """Wait until a pull may return messages; return True then, False after ``wait_ms``. A
        waiting consumer is present; the wait has no other effects. Raises SUBSCRIPTION_BUSY,
        NO_OWNER, RATE_LIMITED if there are messages that may not be delivered until then, or the
        error with which the log was closed."""
        subscription = self._use(info)
        subscription.begin_wait(consumer)
        self._waiting[subscription] = None
        deadline = self._loop.time() + wait_ms / 1000
        try:
            async with self._refusing_as_owner():
                while True:
                    subscription.refresh()
                    dispatch, now = subscription.dispatch, self._loop.time()
                    is_ready = dispatch.is_ready(consumer, now, self._reader.tail_offset)
                    owed_s = self._owed_s() if is_ready else 0.0
                    if is_ready and owed_s <= 0:
                        return True
                    if now >= deadline:
                        if is_ready:
                            raise rate_limited("reads", owed_s)
                        return False
                    change = now + owed_s if is_ready else dispatch.next_change(consumer, now)
                    until = deadline if change is None else min(deadline, change)
                    await subscription.notifier.wait(ceil((until - now) * 1000))
                    self._use(info)
        finally:
            subscription.end_wait(consumer)
            if not subscription.waits:
                self._waiting.pop(subscription, None)

    async def hold(
        self, info: SubscriptionInfo, consumer: str, *, lease_ms: int | None, renew: bool = False
    ) -> None:
        """Make the consumer present for ``lease_ms``, as if it had pulled; ``renew``: only if it is
        known. Raises SUBSCRIPTION_BUSY, LIMIT_REACHED, NO_OWNER, BAD_REQUEST, or the error with
        which the log was closed."""
        lease_s = check_lease(info.config.lease_ms if lease_ms is None else lease_ms) / 1000
        subscription = self._use(info)
        async with self._refusing_as_owner(), subscription.turn:
            subscription.refresh()
            now = self._loop.time()
            if renew:
                subscription.heard_of(consumer, now + lease_s)
            else:
                subscription.dispatch.admit(check_consumer(consumer), now, lease_s)

    # -- requests of consumers -------------------------------------------------------------------

    async def ack(self, info: SubscriptionInfo, ack_ids: Sequence[str]) -> AckResult:
        """Acknowledge messages; durable when this returns. Repetition changes nothing, and neither
        does a lease that has run out meanwhile. Raises BAD_REQUEST, OVERLOADED, STATE_UNKNOWN,
        NO_OWNER.

        An owner that was replaced confirms nothing that its successor does not have: what it
        acknowledges now never becomes durable, since the takeover has fenced the state log; what it
        had acknowledged before, the takeover has found there.
        """
        parsed = await self._parsed(info, ack_ids)
        subscription = self._use(info)
        offsets: list[int] = []
        stale: list[str] = []
        for text, ack_id in zip(ack_ids, parsed, strict=True):
            if self._is_known(subscription, ack_id):
                offsets.append(ack_id.offset)
            else:
                stale.append(text)
        acked = len(offsets)
        offsets.sort()
        await self._acknowledge(subscription.id, ranges_of(offsets))
        return AckResult(acked, stale)

    async def ack_through(
        self, info: SubscriptionInfo, ack_id: str, consumer: str | None = None
    ) -> AckResult:
        """Acknowledge everything up to the message of ``ack_id``, included; exclusive and failover
        only. After a seek the id is stale, as in ``ack``: otherwise the messages that the cursor
        went back to would be acknowledged.

        ``consumer``, if given, must be the holder of the subscription, if there is one. Raises as
        ``ack``; SUBSCRIPTION_BUSY.
        """
        (parsed,) = await self._parsed(info, [ack_id])
        subscription = self._use(info)
        dispatch = subscription.dispatch
        if not isinstance(dispatch, OrderedDispatch):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"messages of a {info.config.type} subscription are acknowledged one by one",
                field="through",
            )
        if consumer is not None:
            async with self._refusing_as_owner():
                dispatch.check_holder(consumer, self._loop.time())
        if not self._is_known(subscription, parsed):
            await self._cursors.settled()  # the seek that made it stale
            return AckResult(0, [ack_id])
        end = parsed.offset + 1
        await self._acknowledge(subscription.id, [(subscription.cursor.acks.acked_to, end)])
        return AckResult(1, [])

    async def nack(
        self,
        info: SubscriptionInfo,
        ack_ids: Sequence[str],
        delay_ms: int | None = None,
        *,
        failed: bool = True,
    ) -> list[str]:
        """Give messages back, to be delivered again after the delay, by default the subscription's
        backoff; those that have not ``failed``, since the consumer did not come to them, at once.
        Return the ids of messages that were with no consumer, or with another one. Raises
        BAD_REQUEST, NO_OWNER."""
        parsed = await self._parsed(info, ack_ids)
        subscription = self._use(info)
        delay_s = None if delay_ms is None else check_delay(delay_ms) / 1000
        offsets, stale = self._leased(subscription, ack_ids, parsed)
        if offsets and not failed:
            subscription.released(offsets)
        elif offsets:
            now = self._loop.time()
            subscription.touch(offsets[0], now + info.config.lease_ms / 1000)
            subscription.failed(subscription.dispatch.refuse(offsets, now, delay_s))
        return stale

    async def release(self, info: SubscriptionInfo, consumer: str) -> None:
        """Give back all that a consumer has, as unused: it does not know all of it, as an answer to
        it was lost. A pull of it that takes messages ends before. Raises BAD_REQUEST, NO_OWNER."""
        check_consumer(consumer)
        subscription = self._use(info)
        async with subscription.turn:
            subscription.refresh()
            offsets = subscription.dispatch.leases.of(consumer)
            if offsets:
                subscription.released(offsets)
        await self._reader.check_owner()  # a later one may have leased as well

    async def extend(
        self, info: SubscriptionInfo, ack_ids: Sequence[str], lease_ms: int
    ) -> list[str]:
        """Keep messages for ``lease_ms`` from now. Return the ids of messages that were no longer
        with a consumer, or with another one. Raises BAD_REQUEST, NO_OWNER."""
        parsed = await self._parsed(info, ack_ids)
        subscription = self._use(info)
        until = self._loop.time() + check_lease(lease_ms) / 1000
        offsets, stale = self._leased(subscription, ack_ids, parsed)
        if offsets:
            subscription.touch(offsets[0], until)
            subscription.dispatch.leases.extend(offsets, until)
        return stale

    async def seek(self, info: SubscriptionInfo, offset: int) -> int:
        """Continue from ``offset``, backward or forward, whatever was acknowledged; from the
        earliest existing offset, if that is later. Return the offset. Ack ids that were issued
        before are stale from now on. Durable when this returns; raises as ``ack``,
        OFFSET_BEYOND_TAIL."""
        await self._reader.check_below_tail(offset)
        subscription = self._use(info)
        offset = max(offset, self._reader.earliest_offset)
        generation = next_generation(subscription.cursor.generation, self._epoch)
        self._cursors.change(["seek", subscription.id, offset, generation])
        subscription.restart()
        await self._cursors.settled()
        return offset

    # -- internals -------------------------------------------------------------------------------

    def _refusing_as_owner(self) -> AbstractAsyncContextManager[None]:
        """Return the context within which other consumers are the reason of a refusal only after it
        was verified that this is still the owner. Raises NO_OWNER, or the error with which the log
        was closed."""
        return self._reader.refusing_as_owner(*_DECIDED_BY_CONSUMERS)

    def _owed_s(self) -> float:
        limit = self._rate.limit
        return 0.0 if limit is None else limit.wait_s()

    async def _parsed(self, info: SubscriptionInfo, ack_ids: Sequence[str]) -> list[AckId]:
        """Parse ack ids. One of a later epoch comes from a successor, if it is no forgery: none of
        them is called stale before that is verified. Raises BAD_REQUEST, NO_OWNER, or the error
        with which the log was closed."""
        parsed = parse_ack_ids(ack_ids, info.subscription_id)
        if any(ack_id.epoch > self._epoch for ack_id in parsed):
            await self._reader.check_owner()
        return parsed

    def _is_known(self, subscription: SubscriptionState, ack_id: AckId) -> bool:
        return (
            ack_id.generation == subscription.cursor.generation
            and ack_id.partition == self._partition
            and ack_id.offset < self._reader.tail_offset
        )

    def _leased(
        self, subscription: SubscriptionState, ack_ids: Sequence[str], parsed: Sequence[AckId]
    ) -> tuple[list[int], list[str]]:
        """Return the messages that are still with the consumer that they were delivered to, in
        order, and the stale ids."""
        subscription.refresh()
        leases = subscription.dispatch.leases.by_offset
        offsets: set[int] = set()
        stale: list[str] = []
        for text, ack_id in zip(ack_ids, parsed, strict=True):
            lease = leases.get(ack_id.offset)
            if (
                lease is not None
                and lease.delivery == ack_id.delivery
                and ack_id.epoch == self._epoch
                and self._is_known(subscription, ack_id)
            ):
                offsets.add(ack_id.offset)
            else:
                stale.append(text)
        return sorted(offsets), stale

    def tail_moved(self) -> None:
        """Wake what waits for messages: the tail has moved, or the log was closed."""
        super().tail_moved()
        for subscription in self._waiting:
            subscription.notifier.notify()
