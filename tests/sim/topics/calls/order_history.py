"""The order in which consumers of an exclusive or failover subscription see messages, though
answers to their pulls are lost: the oracle of what is given back by a consumer's name (18).

A consumer gives back all that it has before it pulls again, where the outcome of its previous pull
is unknown; or its leases have ended by then. So, whatever it is told, it was told everything before
that in the partition which may not be over: nothing of a lost pull comes later than what is behind
it. Lawful are

* messages that a pull which it had given up, or which was refused as the subscription was busy, has
  leased since it began to give back, as long as that lease may last;
* deliveries of owners that were replaced before another one gave back: they know nothing of that;
* messages of a partition in which somebody has sought: it is judged no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.sim.oracle.subscription_history import SubscriptionHistory


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A message that an owner of this epoch has leased, for a call of this name. ``began_s``: when
    the pull began there; ``from_s``: when it was answered; ``until_s``: the lease lasts no
    longer."""

    call: str
    consumer: str
    partition: int
    offset: int
    epoch: int
    began_s: float
    from_s: float
    until_s: float


@dataclass(slots=True)
class Seen:
    """What one consumer has seen of one partition. ``floor``: all before it is over."""

    told: set[int] = field(default_factory=set)
    floor: int = 0
    epoch: int = 0
    """The latest owner that has given back what the consumer had."""
    lost: dict[int, HandedOut] = field(default_factory=dict)
    """By offset: what was last leased for it, and it has not been told."""


class OrderHistory:
    """``subscriptions``: by partition."""

    def __init__(self, subscriptions: Sequence[SubscriptionHistory]) -> None:
        self._subscriptions = subscriptions
        self._seen: dict[tuple[str, int], Seen] = defaultdict(Seen)
        self._handed_out: dict[str, HandedOut] = {}
        """By ack id."""
        self._moved_on_s: dict[str, float] = {}
        """When each consumer went on after its last lost pull: by giving back, at best."""
        self._known: set[str] = set()
        """Calls whose outcome their consumers know."""
        self._sought: set[int] = set()

    # -- at owners -------------------------------------------------------------------------------

    def leased(self, given: Mapping[str, HandedOut]) -> None:
        """An owner hands these out."""
        self._handed_out.update(given)
        for one in given.values():
            self._seen[one.consumer, one.partition].lost[one.offset] = one

    def gave_back(self, consumer: str, partition: int, epoch: int) -> None:
        """An owner has given back all that the consumer had."""
        seen = self._seen[consumer, partition]
        seen.epoch = max(seen.epoch, epoch)

    def sought(self, partition: int) -> None:
        self._sought.add(partition)

    # -- at consumers ----------------------------------------------------------------------------

    def moves_on(self, consumer: str, since_s: float) -> None:
        """A consumer that has lost a pull is about to pull again. What was leased for it before
        ``since_s``, and it was not told, was given back, or the leases have ended."""
        self._moved_on_s[consumer] = since_s

    def known(self, call: str) -> None:
        """A consumer knows what became of its pull, and gives nothing back."""
        self._known.add(call)

    def told(self, ack_ids: Iterable[str]) -> None:
        """A consumer is told of these messages."""
        for ack_id in ack_ids:
            one = self._handed_out.get(ack_id)
            if one is None:
                continue  # as the calls' oracle says
            seen = self._seen[one.consumer, one.partition]
            if one.partition not in self._sought and one.epoch >= seen.epoch:
                self._check(one, seen)
            seen.told.add(one.offset)
            seen.lost.pop(one.offset, None)

    def _check(self, one: HandedOut, seen: Seen) -> None:
        subscription = self._subscriptions[one.partition]
        while seen.floor in seen.told or seen.floor < subscription.log.start_offset:
            seen.floor += 1
        for earlier in range(seen.floor, one.offset):
            if earlier in seen.told or subscription.may_be_over(earlier):
                continue
            lost = seen.lost.get(earlier)
            if lost is None or not self._may_be_late(lost, one):
                subscription.violate(
                    18, f"{one.consumer} sees {one.offset}, and has not seen {earlier}"
                )
                return

    def _may_be_late(self, lost: HandedOut, one: HandedOut) -> bool:
        """Tell whether a message is still with the consumer by a pull that it had given up, and
        that took it after the consumer had gone on."""
        moved_on_s = self._moved_on_s.get(lost.consumer, 0.0)
        is_given_up = lost.call not in self._known
        return is_given_up and lost.from_s >= moved_on_s and lost.until_s >= one.began_s
