"""The messages that one instance of a log's owner has to count as acknowledged, and as delivered.

An instance begins with what its takeover has found in the state log. From then on it changes by
what it is asked for itself: whatever it was asked for and has not refused it may count, confirmed
or not; nothing else. Leases live and die with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.sim.oracle.state_watch import DurableCursor


@dataclass(slots=True)
class Lease:
    """A message that was handed out: certainly held until ``until_s``, by ``ack_id``."""

    consumer: str
    key: bytes | None
    until_s: float
    ack_id: str


@dataclass(slots=True, eq=False)
class Ask:
    """An acknowledgement that an instance was asked for. ``number``: of all asks."""

    number: int
    offsets: list[int]
    began_s: float
    seeks: int
    """Seeks that the instance had taken when it was asked."""
    seeks_begun: int
    """Seeks that had begun anywhere."""


@dataclass(slots=True, eq=False)
class View:
    """One instance's. ``since``: of what is acknowledged above ``acked_to``, when that was asked
    for."""

    epoch: int
    acked_to: int
    since: dict[int, float] = field(default_factory=dict)
    asks: set[Ask] = field(default_factory=set)
    """Requests of unknown outcome, each of which may count."""
    seeks: int = 0
    held: dict[int, Lease] = field(default_factory=dict)
    """Messages that are certainly with a consumer."""
    perhaps: dict[int, Lease] = field(default_factory=dict)
    """Messages that may be with a consumer, until the given time at most."""
    unsure: set[int] = field(default_factory=set)
    """Messages of pulls that met a seek, which may be with a consumer."""
    pulling: Counter[str] = field(default_factory=Counter)
    """Pulls under way, by consumer."""
    giving_back: Counter[str] = field(default_factory=Counter)
    """Requests under way to give back all that a consumer has, by its name."""

    @classmethod
    def of(cls, epoch: int, found: DurableCursor) -> View:
        return cls(epoch, found.acked_to, dict.fromkeys(found.above, -1.0))

    def was_acked(self, offset: int, before_s: float) -> bool:
        return offset < self.acked_to or self.since.get(offset, before_s) < before_s

    def may_be_acked(self, offset: int) -> bool:
        return (
            offset < self.acked_to
            or offset in self.since
            or any(offset in ask.offsets for ask in self.asks)
        )

    # -- leases ----------------------------------------------------------------------------------

    def forget_expired(self, now_s: float) -> None:
        for offset in [o for o, lease in self.held.items() if lease.until_s <= now_s]:
            del self.held[offset]

    def leased(
        self,
        offset: int,
        consumer: str,
        key: bytes | None,
        ack_id: str,
        *,
        least_s: float,
        most_s: float,
    ) -> None:
        if not self.may_be_acked(offset) and not self.giving_back[consumer]:
            # Else somebody acknowledged it, by an id of before, while the pull was under way; or it
            # may be given back at once.
            self.held[offset] = Lease(consumer, key, least_s, ack_id)
        self.perhaps[offset] = Lease(consumer, key, most_s, ack_id)

    def extended(self, offsets: Iterable[int], until_s: float) -> None:
        for offset in offsets:
            for leases in (self.held, self.perhaps):
                if offset in leases:
                    leases[offset].until_s = until_s

    def returned(self, offsets: Iterable[int]) -> None:
        """Record that no consumer has these messages."""
        for offset in offsets:
            self.held.pop(offset, None)
            self.perhaps.pop(offset, None)

    def begin_giving_back(self, consumer: str) -> dict[int, Lease]:
        """Return all that a consumer may have, none of which it certainly has from here on."""
        self.giving_back[consumer] += 1
        had = {o: lease for o, lease in self.perhaps.items() if lease.consumer == consumer}
        self.may_have_ended(had)
        return had

    def end_giving_back(self, consumer: str, given_back: Mapping[int, Lease]) -> None:
        """Record that it has none of these any more, unless it got one again since."""
        self.giving_back[consumer] -= 1
        self.returned([o for o, lease in given_back.items() if self.perhaps.get(o) is lease])

    def may_have_ended(self, offsets: Iterable[int]) -> None:
        """Note leases of messages that may count as acknowledged. They are no longer certain; they
        stay possible, since a message whose age is not known yet may turn out to be young."""
        for offset in offsets:
            self.held.pop(offset, None)

    def clear_leases(self) -> None:
        self.held.clear()
        self.perhaps.clear()

    # -- acknowledgements ------------------------------------------------------------------------

    def asked(self, ask: Ask) -> None:
        self.asks.add(ask)
        for offset in ask.offsets:
            self.held.pop(offset, None)

    def answered(self, ask: Ask, confirmed: Iterable[int]) -> None:
        """Count these since they were requested; the others have done nothing."""
        self.asks.discard(ask)
        if ask.seeks == self.seeks:
            for offset in confirmed:
                self.since.setdefault(offset, ask.began_s)
                self.returned((offset,))

    def sought(self, offset: int) -> View:
        """Continue from there. Return the previous state, in case the seek was refused."""
        previous = View(self.epoch, self.acked_to, self.since, self.asks, self.seeks)
        previous.held, previous.perhaps = self.held, self.perhaps
        self.acked_to, self.since, self.asks = offset, {}, set()
        self.held, self.perhaps = {}, {}
        self.seeks += 1
        return previous

    def restore(self, previous: View) -> None:
        self.acked_to, self.since, self.asks = previous.acked_to, previous.since, previous.asks
        self.held, self.perhaps, self.seeks = previous.held, previous.perhaps, previous.seeks
