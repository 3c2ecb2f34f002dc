"""What happened to one subscription in one partition: the oracle of deliveries (18, 19, 20).

Leases are soft: they live in one instance of the log's owner, so who holds what is remembered for
each instance. Acknowledgements are durable: what one instance has confirmed, no later one hands
out again. (A former owner that has not noticed yet may: it cannot take an acknowledgement.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker_history import LogHistory

from fencelog.broker.subscription_answers import PulledMessage
from fencelog.broker.subscription_config import KEY_SHARED, ORDERED, SubscriptionInfo


@dataclass(slots=True)
class Lease:
    """A message that was handed out. ``until_s``: certainly held until then."""

    consumer: str
    key: bytes | None
    until_s: float


@dataclass(slots=True)
class SubscriptionHistory:
    log: LogHistory
    info: SubscriptionInfo
    leases: dict[object, dict[int, Lease]] = field(default_factory=dict)
    """By instance of the owner, then by offset."""
    confirmed: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Offsets whose acknowledgement was confirmed, by which epoch first, and when."""
    tried: set[int] = field(default_factory=set)
    """Offsets that somebody tried to acknowledge: they need not come again."""
    passed: int = 0
    """Everything below was let go before there was a cursor, or jumped over by a seek."""
    seeks_begun: int = 0
    sought_last: int = 0
    """Number of the latest seek that was confirmed: ids from before it say nothing any more."""
    is_open: bool = False
    """There is a cursor, and it is durable."""
    seeks: int = 0
    """Under way, or of unknown outcome: as long as there is one, anything may come next."""
    blurred_s: dict[object, float] = field(default_factory=dict)
    """By instance: until when nobody knows all that it has handed out."""

    def violate(self, invariant: int, text: str) -> None:
        self.log.violate(invariant, f"{self.info.name}: {text}")

    # -- deliveries ------------------------------------------------------------------------------

    def handed_out(
        self,
        messages: Sequence[PulledMessage],
        consumer: str,
        *,
        instance: object,
        epoch: int,
        began_s: float,
        now_s: float,
        lease_s: float,
    ) -> None:
        """A pull that began then was answered now, in the owner's process."""
        self.log.counts["messages pulled"] += len(messages)
        held = self.leases.setdefault(instance, {})
        for offset in [o for o, lease in held.items() if lease.until_s <= now_s]:
            del held[offset]
        for message in messages:
            self._check_one(message, consumer, held, epoch, began_s)
            self.log.seen(message.offset, (message.message.value,), "pulled")
            held[message.offset] = Lease(consumer, message.message.key, began_s + lease_s)
        is_clear = now_s >= self.blurred_s.get(instance, 0.0) and not self.seeks
        if self.info.config.type in ORDERED and messages and is_clear:
            self._check_order([message.offset for message in messages], held)

    def _check_one(
        self,
        message: PulledMessage,
        consumer: str,
        held: dict[int, Lease],
        epoch: int,
        began_s: float,
    ) -> None:
        offset, kind = message.offset, self.info.config.type
        if message.attempt > 1:
            self.log.counts["redeliveries"] += 1
        by, when_s = self.confirmed.get(offset, (epoch + 1, 0.0))
        if by <= epoch and when_s < began_s:
            self.violate(19, f"{offset} was acknowledged, and is handed out again")
        if offset in held and kind not in ORDERED:
            self.violate(18, f"{offset} is with {held[offset].consumer}, and with {consumer}")
        if kind in ORDERED:  # where one message fails all come again, to the same consumer
            others = {lease.consumer for lease in held.values()} - {consumer}
            if others:
                self.violate(18, f"{offset} goes to {consumer} while {others} hold messages")
        key = message.message.key
        if kind == KEY_SHARED and key is not None:
            for other, lease in held.items():
                if lease.key == key and (lease.consumer != consumer or other > offset):
                    self.violate(
                        18, f"{offset} of {key!r} goes to {consumer}, {other} is with {lease}"
                    )

    def _check_order(self, offsets: list[int], held: dict[int, Lease]) -> None:
        """Nothing is handed out before what comes before it."""
        if offsets != sorted(offsets):
            self.violate(18, f"handed out as {offsets}")
        for offset in range(max(self.passed, self.log.start_offset), offsets[-1]):
            if offset not in self.tried and offset not in held:
                self.violate(18, f"{offsets[-1]} is handed out before {offset}")
                return

    def pull_lost(self, instance: object, until_s: float) -> None:
        """Nobody knows what a pull has handed out."""
        self.blurred_s[instance] = max(until_s, self.blurred_s.get(instance, 0.0))

    # -- what consumers say ----------------------------------------------------------------------

    def returned(self, offsets: Iterable[int]) -> None:
        """A consumer refuses them, or has begun to acknowledge them: they are nobody's."""
        for offset in offsets:
            for held in self.leases.values():
                held.pop(offset, None)

    def extended(self, offsets: Iterable[int], instance: object, until_s: float) -> None:
        held = self.leases.get(instance, {})
        for offset in offsets:
            if offset in held:
                held[offset].until_s = until_s

    def acknowledging(self, offsets: Iterable[int]) -> None:
        """An acknowledgement begins; whatever comes of it, they need not come again."""
        offsets = list(offsets)
        self.tried.update(offsets)
        self.returned(offsets)

    def acknowledged(self, offsets: Iterable[int], epoch: int, now_s: float) -> None:
        self.log.counts["acknowledgements"] += 1
        for offset in offsets:
            self.confirmed.setdefault(offset, (epoch, now_s))

    def seeking(self, offset: int) -> frozenset[int]:
        """A seek begins: from here on nothing is certain of what lies behind. What ``sought`` has
        to be given."""
        self.seeks += 1
        self.seeks_begun += 1
        self.leases.clear()
        self.confirmed = {o: told for o, told in self.confirmed.items() if o < offset}
        return frozenset(self.tried)

    def sought(self, number: int, offset: int, before: frozenset[int]) -> None:
        """It was confirmed: everything from there on has to come again, nothing before it."""
        self.sought_last = max(self.sought_last, number)
        self.log.counts["seeks"] += 1
        self.seeks -= 1
        since = self.tried - before
        # What was confirmed meanwhile may have been recorded before it.
        self.confirmed = {o: told for o, told in self.confirmed.items() if o < offset}
        self.tried = {o for o in before if o < offset} | since
        self.passed = offset

    def seek_lost(self, offset: int) -> None:
        """Nobody knows what became of it."""
        self.passed = max(self.passed, offset)

    # -- what may go -----------------------------------------------------------------------------

    @property
    def needed(self) -> int:
        """The first offset that nobody has tried to acknowledge."""
        offset = self.passed
        while offset in self.tried:
            offset += 1
        return offset

    def check_trimmed(self, start_offset: int) -> None:
        """Everything below was let go (20)."""
        if not self.is_open:
            self.passed = max(self.passed, start_offset)
        elif start_offset > self.needed:
            self.violate(20, f"trimmed to {start_offset}, nobody acknowledged {self.needed}")
