"""What to hand out next, and to whom: what the four types of subscriptions have in common. Pure.

A message that is not acknowledged is in exactly one place: not looked at yet (from ``next_offset``
on), with a consumer (``leases``), waiting to be handed out again (the types differ), or on its way
to the dead letter topic (``burying``). Times are seconds of one clock that only goes forward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from fencelog.broker.dispatch.consumers import ConsumerTable
from fencelog.broker.dispatch.cursor_core import Cursor, within
from fencelog.broker.dispatch.leases import Leases
from fencelog.broker.limits import MAX_ACK_RANGES, MAX_HELD_MESSAGES
from fencelog.broker.registry.subscription_config import SubscriptionConfig

_MOST_DOUBLINGS = 40


class Dispatch(ABC):
    """One subscription's dispatch; the base of the types.

    Who asks for messages is admitted first. Then ``waiting`` and ``take`` hand out what was held;
    ``offer``, one offset after the other from ``next_offset`` on, what is new. ``leases.grant``
    must follow in the same turn.
    """

    def __init__(
        self, cursor: Cursor, config: SubscriptionConfig, consumers: ConsumerTable
    ) -> None:
        self.cursor = cursor
        self.config = config
        self.consumers = consumers
        self.leases = Leases()
        self.dead_letters: set[int] = set()
        self.delayed: dict[int, float] = {}
        """Messages that wait for a time, and when it comes."""
        self.next_offset = cursor.acks.acked_to

    # -- for who asks ----------------------------------------------------------------------------

    def admit(self, consumer: str, now: float, lease_s: float) -> bool:
        """Whether this consumer may have anything now. Raises LIMIT_REACHED, SUBSCRIPTION_BUSY."""
        self.consumers.arrive(consumer, now, now + lease_s)
        return True

    @abstractmethod
    def is_ready(self, consumer: str, now: float, tail: int) -> bool:
        """Whether there may be something for it. Changes nothing. Raises SUBSCRIPTION_BUSY."""

    @abstractmethod
    def next_change(self, consumer: str, now: float) -> float | None:
        """When that may become so without anything happening meanwhile."""

    @property
    def room(self) -> int:
        """So many messages more may be with consumers."""
        return self.config.max_outstanding - len(self.leases)

    @property
    def held(self) -> int:
        """Messages that are remembered because they have to wait."""
        return len(self.dead_letters)

    def may_read(self, now: float) -> bool:
        """Whether new messages may be looked at."""
        return len(self.cursor.acks) < MAX_ACK_RANGES and self.held < MAX_HELD_MESSAGES

    def has_unread(self, tail: int) -> bool:
        return self.cursor.acks.next_unacked(self.next_offset) < tail

    # -- handing out -----------------------------------------------------------------------------

    def waiting(self, consumer: str, limit: int, now: float) -> list[int]:
        """Messages that may be handed to it again, in order."""
        return []

    def take(self, consumer: str, offsets: list[int]) -> list[int]:
        """Those of ``waiting`` that still may be: they wait no more."""
        return []

    def offer(self, consumer: str, offset: int, key: bytes | None, due: float | None) -> bool:
        """A new message: whether to hand it out; else it is kept. ``due``: not before then."""
        if self.cursor.failures and self._max_deliveries_exceeded(offset):
            self.dead_letters.add(offset)
            return False
        return self._offer(consumer, offset, key, due)

    @abstractmethod
    def _offer(self, consumer: str, offset: int, key: bytes | None, due: float | None) -> bool:
        """As ``offer``, of a message that is not to be forwarded."""

    # -- what became of messages -----------------------------------------------------------------

    def acked(self, first: int, end: int) -> None:
        """These are acknowledged, as the cursor says already."""
        ended = within(self.leases.by_offset, first, end)
        for offset in ended:
            self.leases.end(offset)
        self._returned(ended)
        if self.dead_letters:
            self.dead_letters.difference_update(within(self.dead_letters, first, end))

    @abstractmethod
    def _returned(self, offsets: list[int]) -> None:
        """These are with nobody any more."""

    @abstractmethod
    def expire(self, now: float) -> list[int]:
        """End leases whose time is over; the messages of which that counts as a failure."""

    @abstractmethod
    def refuse(self, offsets: list[int], now: float, delay_s: float | None) -> list[int]:
        """These, which are with a consumer, are given back, to be handed out after ``delay_s``, or
        the later the oftener they failed; the messages of which that counts as a failure."""

    @abstractmethod
    def give_back(self, offsets: list[int]) -> None:
        """These were just taken and not handed out after all: as if nothing had been."""

    # -- failures --------------------------------------------------------------------------------

    def _count(self, offsets: Iterable[int]) -> list[int]:
        """They failed once more; those that are to be tried again."""
        failures = self.cursor.failures
        again: list[int] = []
        for offset in offsets:
            failures[offset] = failures.get(offset, 0) + 1
            if self._max_deliveries_exceeded(offset):
                self.dead_letters.add(offset)
            else:
                again.append(offset)
        return again

    def _max_deliveries_exceeded(self, offset: int) -> bool:
        most = self.config.max_deliveries
        return most is not None and self.cursor.failures.get(offset, 0) >= most

    def _backoff_s(self, offset: int, delay_s: float | None) -> float:
        if delay_s is not None:
            return delay_s
        doublings = min(self.cursor.failures[offset] - 1, _MOST_DOUBLINGS)
        return min(self.config.backoff_min_ms << doublings, self.config.backoff_max_ms) / 1000
