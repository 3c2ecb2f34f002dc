"""Shared: each message is delivered to the next consumer that asks, under a lease of its own. Pure.

A message whose lease ran out is delivered again at once, a refused message after its backoff, a
message with a time of delivery at that time; all of these before new ones. None of them delays
others.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from fencelog.broker.dispatch.base import Dispatch
from fencelog.broker.dispatch.consumers import ConsumerTable
from fencelog.broker.dispatch.cursor_core import Cursor, within
from fencelog.broker.dispatch.offsets import OffsetSet
from fencelog.broker.registry.subscription_config import SubscriptionConfig

_SPARE = 64
"""The number of times without a message that may stay in the heap, beside as many as there are
others."""


class SharedDispatch(Dispatch):
    def __init__(
        self, cursor: Cursor, config: SubscriptionConfig, consumers: ConsumerTable
    ) -> None:
        super().__init__(cursor, config, consumers)
        self._ready = OffsetSet()
        self._times: list[tuple[float, int]] = []

    @property
    def held(self) -> int:
        return super().held + len(self._ready) + len(self.delayed)

    def is_ready(self, consumer: str, now: float, tail: int) -> bool:
        return self.capacity > 0 and (
            self._has_waiting(consumer, now) or (self.may_read(now) and self.has_unread(tail))
        )

    def next_change(self, consumer: str, now: float) -> float | None:
        times = (self.leases.next_expiry, self._next_due())
        return min((time for time in times if time is not None and time > now), default=None)

    def waiting(self, consumer: str, limit: int, now: float) -> list[int]:
        self._wake_due(now)
        return self._ready.first(limit)

    def take(self, consumer: str, offsets: list[int]) -> list[int]:
        taken = [offset for offset in offsets if offset in self._ready]
        self._ready.remove(taken)
        return taken

    def _offer(self, consumer: str, offset: int, key: bytes | None, due: float | None) -> bool:
        if due is not None:
            self._delay(offset, due)
        return due is None

    def acked(self, first: int, end: int) -> None:
        super().acked(first, end)
        self._ready.remove(self._ready.within(first, end))
        for offset in within(self.delayed, first, end):
            del self.delayed[offset]

    def expire(self, now: float) -> list[int]:
        expired = self.leases.take_expired(now)
        self._returned(expired)
        self._again(self._count(expired))
        return expired

    def refuse(self, offsets: list[int], now: float, delay_s: float | None) -> list[int]:
        for offset in offsets:
            self.leases.end(offset)
        self._returned(offsets)
        for offset in self._count(offsets):
            self._back_off(offset, now + self._backoff_s(offset, delay_s))
        return offsets

    def give_back(self, offsets: list[int]) -> None:
        given = [offset for offset in offsets if self.leases.end(offset) is not None]
        self._returned(given)
        self._again(given)

    def _returned(self, offsets: list[int]) -> None:
        """Do nothing: no consumer waits for these messages."""

    def _again(self, offsets: list[int]) -> None:
        """Allow these messages to be delivered again now."""
        self._ready.add(offsets)

    def _back_off(self, offset: int, due: float) -> None:
        """Let a refused message wait until ``due``."""
        self._delay(offset, due)

    def _delay(self, offset: int, due: float) -> None:
        self.delayed[offset] = due
        heappush(self._times, (due, offset))
        if len(self._times) > 2 * len(self.delayed) + _SPARE:
            self._times = [(due, offset) for offset, due in self.delayed.items()]
            heapify(self._times)

    def _has_waiting(self, consumer: str, now: float) -> bool:
        due = self._next_due()
        return len(self._ready) > 0 or (due is not None and due <= now)

    def _next_due(self) -> float | None:
        while self._times and self.delayed.get(self._times[0][1]) != self._times[0][0]:
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def _wake_due(self, now: float) -> None:
        woken: list[int] = []
        while (due := self._next_due()) is not None and due <= now:
            _, offset = heappop(self._times)
            del self.delayed[offset]
            woken.append(offset)
        self._again(woken)
