"""The dead letters of one subscription, and what came back of them: the oracle (invariant 40).

A message is in the dead letter topic once or not at all, only if it has failed as often as it may,
and before it counts as acknowledged where it was. What is replayed is a dead letter, comes back
where it came from, for its subscription, and once; the replay has not come past it before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fencelog.api.subscriptions.dead_letters import (
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_SUBSCRIPTION,
    REPLAY_FOR,
)
from fencelog.broker.append.conditions import FORGOTTEN, AppendConditions, AppendFuture
from fencelog.ledgers.record_batch import Message
from tests.sim.oracle.log_history import AGAIN, LogHistory, Sent
from tests.sim.oracle.subscription_history import SubscriptionHistory

INVARIANT = 40

Answered = Callable[[LogHistory, Sent, Any, AppendFuture], None]
"""Notes what became of an append at an instance of the log's owner."""


class Origin(NamedTuple):
    """The place of a message that failed."""

    partition: int
    offset: int


@dataclass(slots=True)
class LetterHistory:
    """``subscriptions``: by partition; ``answered``: judges appends to their logs."""

    subscriptions: list[SubscriptionHistory]
    answered: Answered
    taken: dict[bytes, Origin] = field(default_factory=dict)
    """Dead letters that an owner of their topic has taken, by value."""
    places: dict[Origin, int] = field(default_factory=dict)
    """The offsets of dead letters, as owners of their topic have told."""
    replayed: set[Origin] = field(default_factory=set)
    """Dead letters that a replay has come past."""

    def violate(self, origin: Origin, text: str) -> None:
        log = self.subscriptions[origin.partition].log
        log.violate(INVARIANT, f"dead letter of {origin.offset}: {text}")

    # -- the dead letter topic -------------------------------------------------------------------

    def forwarding(self, message: Message, future: AppendFuture) -> None:
        """An owner of the dead letter topic takes a message."""
        origin = origin_of(message)
        subscription = self.subscriptions[origin.partition]
        headers, value = dict(message.headers), bytes(message.value)
        if headers[ORIGIN_SUBSCRIPTION] != subscription.info.name.encode():
            self.violate(origin, f"is of {headers[ORIGIN_SUBSCRIPTION]!r}")
        if origin.offset not in subscription.desperate:
            self.violate(origin, "has not failed so often")
        if subscription.log.messages.get(origin.offset) != value:
            self.violate(origin, f"is {value!r}, another message is there")
        self.taken[value] = origin
        when_done(future, lambda: self._stored(origin, future))

    def _stored(self, origin: Origin, future: AppendFuture) -> None:
        """It is durable there: from now on its own subscription may pass it over."""
        if future.cancelled() or future.exception() is not None:
            return
        told, subscription = future.result(), self.subscriptions[origin.partition]
        if told.offset != FORGOTTEN and self.places.setdefault(origin, told.offset) != told.offset:
            self.violate(origin, f"is at {self.places[origin]}, and at {told.offset}")
        if origin.offset not in subscription.forwarded:
            subscription.log.counts["dead letters"] += 1
        subscription.forwarded.add(origin.offset)

    def check_topic(self, found: Iterable[tuple[int, Message]]) -> None:
        """The dead letter topic was read from its beginning to its end, and a replay has come past
        all of it."""
        there: dict[Origin, int] = {}
        for offset, message in found:
            origin = origin_of(message)
            if origin in there:
                self.violate(origin, f"is at {there[origin]}, and at {offset}")
            if self.taken.get(bytes(message.value)) != origin:
                self.violate(origin, "is there, and nobody has forwarded it")
            there.setdefault(origin, offset)
        for origin, offset in self.places.items():
            if there.get(origin) != offset:
                self.violate(origin, f"was acknowledged at {offset}, and is at {there.get(origin)}")
        self.replayed.update(there)

    # -- what comes back -------------------------------------------------------------------------

    def returning(
        self,
        log: LogHistory,
        message: Message,
        conditions: AppendConditions,
        instance: Any,
        future: AppendFuture,
    ) -> None:
        """An owner of the topic takes a message that is replayed."""
        value, name = bytes(message.value), dict(message.headers)[REPLAY_FOR]
        origin = self.taken.get(value)
        if origin is None or origin.partition != log.partition:
            log.violate(INVARIANT, f"{value!r} comes back, it is a dead letter of {origin}")
        if name != self.subscriptions[log.partition].info.name.encode():
            log.violate(INVARIANT, f"{value!r} comes back for {name!r}")
        sent = log.sent.get(AGAIN + value)
        if sent is None:
            sent = log.new(AGAIN + value, is_batch=False, conditions=conditions)
        log.attempted(sent)
        when_done(future, lambda: self._returned(log, sent, instance, future))

    def _returned(self, log: LogHistory, sent: Sent, instance: Any, future: AppendFuture) -> None:
        if not future.cancelled() and future.exception() is None:
            log.counts["replayed"] += 1
        self.answered(log, sent, instance, future)

    def check_replayed(self) -> None:
        """All logs were read: what the replay has come past is back."""
        values = {origin: value for value, origin in self.taken.items()}
        for origin in sorted(self.replayed):
            places = self.subscriptions[origin.partition].log.places
            if AGAIN + values[origin] not in places:
                self.violate(origin, "was replayed, it says, and is not back")


def origin_of(message: Message) -> Origin:
    """Return where a dead letter came from, as its headers say."""
    headers = dict(message.headers)
    return Origin(int(headers[ORIGIN_PARTITION]), int(headers[ORIGIN_OFFSET]))


def when_done(future: AppendFuture, work: Callable[[], None]) -> None:
    """Do the work when the outcome is known: at once for a duplicate, as its answer may be on its
    way before a callback is called."""
    if future.done():
        work()
    else:
        future.add_done_callback(lambda _: work())
