"""Exclusive and failover: one consumer at a time, everything in order. Pure.

The consumer that came first and is still there holds the subscription. Whenever one of its messages
fails, or another consumer takes its place, all messages that are not acknowledged are delivered
again, from the first one on.
"""

from __future__ import annotations

from fencelog.broker.dispatch.base import Dispatch
from fencelog.broker.dispatch.consumers import ConsumerTable
from fencelog.broker.dispatch.cursor_core import Cursor
from fencelog.broker.registry.subscription_config import EXCLUSIVE, SubscriptionConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError


class OrderedDispatch(Dispatch):
    """The dispatch of exclusive and failover subscriptions. Each message that was refused counts as
    a failure; of a lease that ran out, only the first message does, since those after it were only
    waiting for it."""

    def __init__(
        self, cursor: Cursor, config: SubscriptionConfig, consumers: ConsumerTable
    ) -> None:
        super().__init__(cursor, config, consumers)
        self._holder: str | None = None
        self._resume_at = 0.0

    def admit(self, consumer: str, now: float, lease_s: float) -> bool:
        self.consumers.forget_gone_first(now)
        self._check_not_busy(consumer, now)
        super().admit(consumer, now, lease_s)
        if self.consumers.first(now) != consumer:
            return False
        if self._holder != consumer:
            self._holder = consumer
            self._rewind()
        return True

    def is_ready(self, consumer: str, now: float, tail: int) -> bool:
        self._check_not_busy(consumer, now)
        if self.consumers.first(now) not in (None, consumer):
            return False
        takes_over = consumer != self._holder
        return self.may_read(now) and (
            self.cursor.acks.acked_to < tail
            if takes_over
            else self.capacity > 0 and self.has_unread(tail)
        )

    def next_change(self, consumer: str, now: float) -> float | None:
        times = [self.leases.next_expiry]
        if self._resume_at > now:
            times.append(self._resume_at)
        first = self.consumers.first(now)
        if first is not None and first != consumer:
            times.append(self.consumers.by_name[first].until)
        return min((time for time in times if time is not None and time > now), default=None)

    def may_read(self, now: float) -> bool:
        return now >= self._resume_at and super().may_read(now)

    def check_holder(self, consumer: str, now: float) -> None:
        """Check that no other consumer holds the subscription. Raises SUBSCRIPTION_BUSY if one
        does."""
        first = self.consumers.first(now)
        if first is not None and first != consumer:
            raise FencelogError(
                ErrorCode.SUBSCRIPTION_BUSY, f"consumer {first!r} holds the subscription"
            )

    def _offer(self, consumer: str, offset: int, key: bytes | None, due: float | None) -> bool:
        return offset not in self.dead_letters

    def expire(self, now: float) -> list[int]:
        expired = self.leases.take_expired(now)
        if expired:
            self._count(expired[:1])
            self._rewind()
        return expired[:1]

    def refuse(self, offsets: list[int], now: float, delay_s: float | None) -> list[int]:
        for offset in self._count(offsets):
            self._resume_at = max(self._resume_at, now + self._backoff_s(offset, delay_s))
        self._rewind()
        return offsets

    def release(self, offsets: list[int]) -> None:
        self._rewind()

    def give_back(self, offsets: list[int]) -> None:
        for offset in offsets:
            self.leases.end(offset)
        self.next_offset = min([self.next_offset, *offsets])

    def _returned(self, offsets: list[int]) -> None:
        """Do nothing: no consumer waits for these messages."""

    def _check_not_busy(self, consumer: str, now: float) -> None:
        if self.config.type == EXCLUSIVE:
            self.check_holder(consumer, now)

    def _rewind(self) -> None:
        self.rewinds += 1
        self.leases.clear()
        self.next_offset = self.cursor.acks.acked_to
