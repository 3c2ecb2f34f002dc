"""The decision which message to deliver next, and to whom: the common part of the four types of
subscriptions. Pure.

A message that is not acknowledged is in exactly one place: not read yet (from ``next_offset`` on),
with a consumer (``leases``), waiting to be delivered again (the types differ), or in flight to the
dead letter topic (``burying``). Times are seconds of one clock that only goes forward.
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
    """The dispatch of one subscription; the base of the types.

    A consumer that asks for messages is admitted first. Then ``waiting`` and ``take`` deliver held
    messages; ``offer``, one offset after the other from ``next_offset`` on, delivers new ones.
    ``leases.grant`` must follow in the same iteration of the event loop.
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
        """The messages that wait for a time, each with that time."""
        self.next_offset = cursor.acks.acked_to
        self.rewinds = 0
        """The number of times that all leases were ended, to deliver everything again in order."""

    # -- for consumers ---------------------------------------------------------------------------

    def admit(self, consumer: str, now: float, lease_s: float) -> bool:
        """Tell whether this consumer may receive anything now. Raises LIMIT_REACHED,
        SUBSCRIPTION_BUSY."""
        self.consumers.arrive(consumer, now, now + lease_s)
        return True

    @abstractmethod
    def is_ready(self, consumer: str, now: float, tail: int) -> bool:
        """Tell whether there may be messages for this consumer. Changes nothing. Raises
        SUBSCRIPTION_BUSY."""

    @abstractmethod
    def next_change(self, consumer: str, now: float) -> float | None:
        """Return the time at which that may become true without any event meanwhile."""

    @property
    def capacity(self) -> int:
        """Return how many more messages may be with consumers."""
        return self.config.max_outstanding - len(self.leases)

    @property
    def held(self) -> int:
        """Return the number of messages that are remembered because they have to wait."""
        return len(self.dead_letters)

    def may_read(self, now: float) -> bool:
        """Tell whether new messages may be read. Those between acknowledged ranges always may, as
        the ranges merge by them: after a takeover, or in order again, they are read once more."""
        acks = self.cursor.acks
        if len(acks) >= MAX_ACK_RANGES and acks.next_unacked(self.next_offset) >= acks.end:
            return False
        return self.held < MAX_HELD_MESSAGES

    def has_unread(self, tail: int) -> bool:
        return self.cursor.acks.next_unacked(self.next_offset) < tail

    # -- delivery --------------------------------------------------------------------------------

    def waiting(self, consumer: str, limit: int, now: float) -> list[int]:
        """Return messages that may be delivered to this consumer again, in order."""
        return []

    def take(self, consumer: str, offsets: list[int]) -> list[int]:
        """Take those messages of ``waiting`` that still may be delivered: they no longer wait."""
        return []

    def offer(self, consumer: str, offset: int, key: bytes | None, due: float | None) -> bool:
        """Tell whether to deliver a new message; otherwise it is kept. ``due``: not before that
        time."""
        if self.cursor.failures and self._max_deliveries_exceeded(offset):
            self.dead_letters.add(offset)
            return False
        return self._offer(consumer, offset, key, due)

    @abstractmethod
    def _offer(self, consumer: str, offset: int, key: bytes | None, due: float | None) -> bool:
        """Decide as ``offer``, for a message that is not to be forwarded."""

    # -- outcomes of messages --------------------------------------------------------------------

    def acked(self, first: int, end: int) -> None:
        """Record that these are acknowledged, as the cursor says already."""
        ended = within(self.leases.by_offset, first, end)
        for offset in ended:
            self.leases.end(offset)
        self._returned(ended)
        if self.dead_letters:
            self.dead_letters.difference_update(within(self.dead_letters, first, end))

    @abstractmethod
    def _returned(self, offsets: list[int]) -> None:
        """Record that these messages are no longer with a consumer."""

    @abstractmethod
    def expire(self, now: float) -> list[int]:
        """End expired leases; return the messages for which that counts as a failure."""

    @abstractmethod
    def refuse(self, offsets: list[int], now: float, delay_s: float | None) -> list[int]:
        """Take these messages, which are with a consumer, back, to be delivered after ``delay_s``,
        or after a time that grows with the number of their failures; return the messages for which
        that counts as a failure."""

    def release(self, offsets: list[int]) -> None:
        """Take these messages, which are with a consumer, back: they are delivered again at once,
        and that is no failure."""
        self.give_back(offsets)

    @abstractmethod
    def give_back(self, offsets: list[int]) -> None:
        """Undo a delivery of these messages, which were just taken: the state is as if none had
        happened."""

    # -- failures --------------------------------------------------------------------------------

    def _count(self, offsets: Iterable[int]) -> list[int]:
        """Count one more failure of each message; return those that are to be tried again."""
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
