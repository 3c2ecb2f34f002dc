"""The events of one subscription in one partition: the oracle of deliveries (18, 19, 20).

Leases are soft: they live in one instance of the log's owner, and so does what it counts as
acknowledged before that is durable (``oracle/owner_view.py``). What it has confirmed is durable in
the state log (``oracle/state_watch.py``), and what is durable there somebody has asked for, or it
is lawful without that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fencelog.broker.broker import Broker
from fencelog.broker.registry.subscription_config import KEY_SHARED, ORDERED, SubscriptionInfo
from fencelog.broker.subscriptions.answers import DeadLetters, PulledMessage
from fencelog.broker.subscriptions.batch import DELIVER_AT
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.oracle.log_history import LogHistory, payload_of
from tests.sim.oracle.owner_view import Ask, View
from tests.sim.oracle.state_watch import DurableCursor

DECIDED_BY_OTHERS = (ErrorCode.SUBSCRIPTION_BUSY, ErrorCode.LIMIT_REACHED)
"""The refusals for the reason that other consumers, or cursors, take the place."""


class Owner(Protocol):
    """An instance of the log's owner."""

    @property
    def epoch(self) -> int: ...

    @property
    def earliest_offset(self) -> int: ...


@dataclass(slots=True, eq=False)
class Seek:
    """A seek that an instance was asked for. ``asks``: so many had been asked for before."""

    number: int
    view: View
    previous: View
    offset: int
    asks: int
    generation: int
    """The generation of the durable cursor when it began."""
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """The delivery that an ack id stands for. ``pulled_at``: seeks that had begun when it was
    given; ``epoch``: that of its owner."""

    offset: int
    pulled_at: int
    epoch: int = 0


@dataclass(slots=True)
class SubscriptionHistory:
    log: LogHistory
    info: SubscriptionInfo
    views: dict[object, View] = field(default_factory=dict)
    """Views by instance of the owner."""
    latest: View | None = None
    """The view of the instance that was asked last."""
    asks: int = 0
    asked: dict[int, set[int]] = field(default_factory=dict)
    """Requests that have not been refused, by offset."""
    seeks: list[Seek] = field(default_factory=list)
    """Seeks that have not been refused."""
    seeks_begun: int = 0
    given: dict[str, Given] = field(default_factory=dict)
    """Deliveries by ack id."""
    is_open: bool = False
    """True if there is a cursor, and it is durable."""
    letters: Callable[[Broker], DeadLetters] | None = None
    """Gives the way of its dead letters from a broker."""
    desperate: set[int] = field(default_factory=set)
    """Messages that were delivered as often as allowed, and may be in flight to the dead letter
    topic."""
    forwarded: set[int] = field(default_factory=set)
    """Messages in the dead letter topic."""
    lawful: list[Callable[[int], bool]] = field(default_factory=list)
    """Reasons for which a message may be passed over that nobody has acknowledged."""

    latest_us: Callable[[], int] = lambda: 0
    """No owner's clock is later."""

    def follow(self) -> None:
        """Be told of what happens to its log, after those that are told already."""
        log = self.log
        on_trim, on_acked = log.on_trim, log.state.on_acked

        def trimmed(offset: int) -> None:
            on_trim(offset)
            self.check_trimmed(offset)

        def acked(subscription_id: str, offsets: list[int]) -> None:
            on_acked(subscription_id, offsets)
            if subscription_id == self.info.subscription_id:
                self.check_acked(offsets)

        log.on_trim, log.state.on_acked = trimmed, acked

    def violate(self, invariant: int, text: str) -> None:
        self.log.violate(invariant, f"{self.info.name}: {text}")

    @property
    def is_ordered(self) -> bool:
        return self.info.config.type in ORDERED

    @property
    def durable(self) -> DurableCursor | None:
        """Return what a takeover would find now."""
        return self.log.state.cursors().get(self.info.subscription_id)

    def opened(self, owner: Owner, acked_to: int) -> View:
        """Note that an instance has reported its durable cursor, at ``acked_to``."""
        view = self.noticed(owner, acked_to)
        if self.info.config.durable:
            self.is_open = True
            if self.durable is None:
                self.violate(19, "its cursor was confirmed, and is not durable")
        return view

    def noticed(self, owner: Owner, acked_to: int) -> View:
        """Note the cursor of an instance, which may not be durable yet."""
        view = self.views.get(owner)
        if view is None:
            found = self.log.state.openings.get(owner.epoch, {}).get(self.info.subscription_id)
            if found is not None:
                view = View.of(owner.epoch, found)
            else:
                view = View(owner.epoch, acked_to)
                begun = range(owner.earliest_offset, acked_to)
                if not all(self._is_lawful(offset) for offset in begun):
                    self.violate(18, f"begins at {acked_to}, the log at {owner.earliest_offset}")
            self.views[owner] = view
        self.latest = view
        return view

    # -- deliveries ------------------------------------------------------------------------------

    def handed_out(
        self,
        messages: Sequence[PulledMessage],
        consumer: str,
        *,
        owner: Owner,
        seeks: int,
        began_s: float,
        now_s: float,
        lease_s: float,
    ) -> None:
        """A pull that began then was answered now, in the owner's process. ``seeks``: that the
        instance had taken when it began."""
        self.log.counts["messages pulled"] += len(messages)
        view = self.views[owner]
        if len({message.offset for message in messages}) < len(messages):
            self.violate(18, f"handed out twice at once: {[each.offset for each in messages]}")
        for message in messages:
            self.log.seen(message.offset, (payload_of(message.message),), "pulled")
        if view.seeks != seeks:
            view.unsure.update(message.offset for message in messages)
            return  # it may have begun before the seek, and then these are with nobody
        view.forget_expired(now_s)
        first = owner.earliest_offset
        view.may_have_ended([o for o in view.held if o < first or self._is_lawful(o)])
        for message in messages:
            self._check_one(message, consumer, view, began_s)
            view.held.pop(message.offset, None)
        if self.is_ordered and messages:
            offsets = [message.offset for message in messages]
            self._check_order(offsets, consumer, view, owner.earliest_offset, began_s)
        for message in messages:
            view.leased(
                message.offset,
                consumer,
                message.message.key,
                message.ack_id,
                least_s=began_s + lease_s,
                most_s=now_s + lease_s,
            )

    def check_leases(self, leases: Mapping[int, str], owner: Owner) -> None:
        """Check the owner's view of who holds what: each holder was given it, or is about to be
        (18). A pull that was given up has given nothing."""
        view = self.views[owner]
        for offset, consumer in leases.items():
            is_known = offset in view.perhaps or offset in view.unsure or self._is_lawful(offset)
            if not is_known and not view.pulling[consumer]:
                self.violate(18, f"{offset} is kept for {consumer}, which was not given it")
                return

    def _check_one(self, message: PulledMessage, consumer: str, view: View, began_s: float) -> None:
        offset, held = message.offset, view.held
        most = self.info.config.max_deliveries
        if most is not None and message.attempt >= most:
            self.desperate.add(offset)
        name = self.log.only_for.get(payload_of(message.message), self.info.name)
        if name != self.info.name:
            self.violate(18, f"{offset} is for {name} alone")
        self._check_due(message)
        if message.attempt > 1:
            self.log.counts["redeliveries"] += 1
        if view.was_acked(offset, began_s):
            self.violate(19, f"{offset} was acknowledged, and is handed out again")
        if offset in held and not self.is_ordered:
            self.violate(18, f"{offset} is with {held[offset].consumer}, and with {consumer}")
        if self.is_ordered:  # where one message fails all come again, to the same consumer
            others = {lease.consumer for lease in held.values()} - {consumer}
            if others:
                self.violate(18, f"{offset} goes to {consumer} while {others} hold messages")
        key = message.message.key
        if self.info.config.type == KEY_SHARED and key is not None:
            for other, lease in held.items():
                if lease.key == key and (lease.consumer != consumer or other > offset):
                    self.violate(
                        18, f"{offset} of {key!r} goes to {consumer}, {other} is with {lease}"
                    )

    def _check_due(self, message: PulledMessage) -> None:
        """Check that it is not early by any owner's clock."""
        due = dict(message.message.headers).get(DELIVER_AT)
        if due is not None and not self.is_ordered and int(due) > self.latest_us():
            self.violate(18, f"{message.offset} is handed out before its time")

    def _check_order(
        self, offsets: list[int], consumer: str, view: View, earliest: int, began_s: float
    ) -> None:
        """Check the order of deliveries: what comes before a message is acknowledged, or with the
        same consumer."""
        if offsets != sorted(offsets):
            self.violate(18, f"handed out as {offsets}")
        given = set(offsets)
        for offset in range(max(view.acked_to, earliest), offsets[-1]):
            lease = view.perhaps.get(offset)
            is_held = lease and lease.consumer == consumer and lease.until_s >= began_s
            if offset not in given and not is_held and not self._may_be_passed(offset, view):
                self.violate(18, f"{offsets[-1]} is handed out before {offset}")
                return

    def _may_be_passed(self, offset: int, view: View) -> bool:
        return view.may_be_acked(offset) or offset in self.desperate or self._is_lawful(offset)

    def may_be_over(self, offset: int) -> bool:
        """Tell whether it need not be delivered: somebody may have acknowledged it, anywhere, or it
        is lawful."""
        is_trimmed = offset < self.log.start_offset
        return is_trimmed or bool(self.asked.get(offset)) or self._is_lawful(offset)

    def _is_lawful(self, offset: int) -> bool:
        if offset in self.forwarded or self._is_for_another(offset):
            return True
        return any(reason(offset) for reason in self.lawful)

    def _is_for_another(self, offset: int) -> bool:
        """Tell whether it is for another subscription only, or not known yet."""
        log = self.log
        if not log.only_for:
            return False
        found = log.messages.get(offset)
        return found is None or log.only_for.get(found, self.info.name) != self.info.name

    # -- what consumers say ----------------------------------------------------------------------

    def named(self, ack_ids: Iterable[str], owner: Owner, now_s: float) -> list[int]:
        """Return the messages whose leases an owner has changed by these ids. An id of another
        delivery changes nothing of who has the message now (18)."""
        held, offsets = self.views[owner].held, list[int]()
        for ack_id in ack_ids:
            offset = self.given[ack_id].offset
            lease = held.get(offset)
            if lease is not None and lease.until_s > now_s and lease.ack_id != ack_id:
                self.violate(18, f"{offset} is with {lease.consumer}, and another id changes that")
            offsets.append(offset)
        return sorted(offsets)

    def called_stale(self, ack_ids: Iterable[str], owner: Owner) -> None:
        """Check that an owner has said that of no id of a successor's (25)."""
        epoch = self.views[owner].epoch
        for ack_id in ack_ids:
            given = self.given[ack_id]
            if given.epoch > epoch:
                self.violate(25, f"epoch {epoch} calls {given.offset} of {given.epoch} stale")
                return

    def turned_away(self, error: FencelogError, owner: Owner, newest_epoch: int) -> None:
        """Check that an owner did not say for certain that others take the place if it had been
        replaced when it was asked: those of its successor are others (25)."""
        if error.code not in DECIDED_BY_OTHERS:
            return
        self.log.counts[f"turned away: {error.code.slug}"] += 1
        if newest_epoch > owner.epoch:
            self.violate(
                25, f"epoch {owner.epoch} says {error.code.slug}, {newest_epoch} had begun"
            )

    def refusing(self, offsets: Iterable[int], owner: Owner) -> None:
        """A consumer has given these back, which it had."""
        view, offsets = self.views[owner], list(offsets)
        if self.is_ordered and offsets:
            view.clear_leases()
        view.returned(offsets)

    def extended(self, offsets: Iterable[int], owner: Owner, until_s: float) -> None:
        self.views[owner].extended(offsets, until_s)

    def acknowledging(self, offsets: Iterable[int], owner: Owner, now_s: float) -> Ask:
        """An acknowledgement begins."""
        view = self.views[owner]
        self.asks += 1
        ask = Ask(self.asks, list(offsets), now_s, view.seeks, self.seeks_begun)
        for offset in ask.offsets:
            self.asked.setdefault(offset, set()).add(ask.number)
        view.asked(ask)
        return ask

    def acknowledged(self, ask: Ask, stale: Iterable[int], owner: Owner) -> list[int]:
        """Record a confirmation, except for these, which have no effect. Return what was
        confirmed."""
        self.log.counts["acknowledgements"] += 1
        view, nothing = self.views[owner], set(stale)
        confirmed = [offset for offset in ask.offsets if offset not in nothing]
        self._refuse(ask, nothing)
        view.answered(ask, confirmed)
        if self.info.config.durable and not self._was_sought_since(ask, view):
            durable = self.durable
            missing = [o for o in confirmed if durable is None or o not in durable]
            if missing:
                self.violate(19, f"acks of {missing[:5]} are confirmed, and not durable")
        return confirmed

    def refused(self, ask: Ask, owner: Owner) -> None:
        """Record that the request had no effect."""
        self.views[owner].answered(ask, ())
        self._refuse(ask, ask.offsets)

    def _refuse(self, ask: Ask, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.asked[offset].discard(ask.number)

    def _was_sought_since(self, ask: Ask, view: View) -> bool:
        """Tell whether a seek may stand behind it in the state log."""
        return any(
            seek.view.epoch > view.epoch or (seek.view is view and seek.number > ask.seeks_begun)
            for seek in self.seeks
        )

    # -- seeks -----------------------------------------------------------------------------------

    def seeking(self, offset: int, owner: Owner) -> Seek:
        """A seek begins. ``sought`` or ``not_sought`` has to follow, unless nobody knows."""
        view, durable = self.views[owner], self.durable
        self.seeks_begun += 1
        begin = max(offset, owner.earliest_offset)
        generation = -1 if durable is None else durable.generation
        previous = view.sought(begin)
        seek = Seek(self.seeks_begun, view, previous, begin, self.asks, generation)
        self.seeks.append(seek)
        return seek

    def sought(self, seek: Seek, offset: int) -> None:
        """Record a confirmed seek: everything from there on has to be delivered again, nothing
        before it."""
        self.log.counts["seeks"] += 1
        seek.is_confirmed = True
        durable = self.durable  # what it has come to by now was asked for before
        if offset != seek.offset:
            self.violate(19, f"sought {offset}, it had to be {seek.offset}")
        for numbers in (self.asked[o] for o in self.asked if o >= offset):
            numbers.difference_update([n for n in numbers if n <= seek.asks])
        if self.info.config.durable and (durable is None or durable.generation <= seek.generation):
            self.violate(19, f"a seek to {offset} is confirmed, and not durable")

    def not_sought(self, seek: Seek) -> None:
        """Record a seek that was refused at once, without effect."""
        self.seeks.remove(seek)
        seek.view.restore(seek.previous)

    def outdates(self, pulled_at: int, owner: Owner) -> bool:
        """Tell whether ids say nothing at this instance that were given when so many seeks had
        begun."""
        view, is_durable = self.views[owner], self.info.config.durable
        return any(
            seek.number > pulled_at
            and seek.is_confirmed
            and (seek.view is view or (is_durable and seek.view.epoch <= view.epoch))
            for seek in self.seeks
        )

    # -- what may go -----------------------------------------------------------------------------

    def check_acked(self, offsets: Iterable[int]) -> None:
        """Check that messages which are durably acknowledged were acknowledged by a request
        (18)."""
        for offset in offsets:
            if not self.asked.get(offset) and not self._is_lawful(offset):
                self.violate(18, f"{offset} counts as acknowledged, and nobody has asked for it")
                return

    def check_trimmed(self, start_offset: int) -> None:
        """Check a trim of everything below (20)."""
        durable = self.durable if self.info.config.durable else None
        if durable is not None and start_offset > durable.acked_to:
            self.violate(
                20, f"trimmed to {start_offset}, {durable.acked_to} is not acknowledged durably"
            )

    @property
    def is_finished(self) -> bool:
        """Tell whether nothing has to come any more."""
        end = self.log.known_end
        if self.info.config.durable:
            durable = self.durable
            return durable is not None and durable.acked_to >= end
        view = self.latest
        return view is not None and all(
            offset in view.since or self._is_lawful(offset)
            for offset in range(max(view.acked_to, self.log.start_offset), end)
        )
