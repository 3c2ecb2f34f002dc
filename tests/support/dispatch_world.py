"""One subscription over a log in memory: cursor and dispatch without shells, beside a naive model.

The model knows the holder of each message, the acknowledged messages, and which of them are durably
so; it fails as soon as a message is delivered wrongly. A takeover rebuilds the cursor from the
durable events, and from some of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencelog.broker.dispatch.ack_ranges import ranges_of
from fencelog.broker.dispatch.base import Dispatch
from fencelog.broker.dispatch.consumers import ConsumerTable
from fencelog.broker.dispatch.cursor_core import Cursors, failure_ranges
from fencelog.broker.dispatch.key_shared import KeySharedDispatch
from fencelog.broker.dispatch.ordered import OrderedDispatch
from fencelog.broker.dispatch.shared import SharedDispatch
from fencelog.broker.registry.subscription_config import (
    KEY_SHARED,
    ORDERED,
    SHARED,
    SubscriptionConfig,
)

TYPES: dict[str, type[Dispatch]] = {
    **dict.fromkeys(ORDERED, OrderedDispatch),
    SHARED: SharedDispatch,
    KEY_SHARED: KeySharedDispatch,
}
LEASE_S = 10.0


@dataclass(slots=True)
class Held:
    consumer: str
    until: float


class World:
    """A subscription with methods ``pull``, ``ack``, … as a consumer calls them; each checks its
    result."""

    def __init__(self, kind: str, **config: Any) -> None:
        self.config = SubscriptionConfig(type=kind, **config)
        self.log: list[tuple[bytes | None, float | None]] = []
        """The messages: the key, and the time of delivery."""
        self.now = 0.0
        self.events: list[list[Any]] = []
        self.acked: list[set[int]] = []
        """The acknowledged offsets after each event."""
        self.durable = 0
        self.held: dict[int, Held] = {}
        self.forwarded: set[int] = set()
        self.pulls = 0
        self.cursors = Cursors()
        self._change(["cursor", "s", 0, 0, 0], set())
        self.confirm()
        self._own()

    @property
    def tail(self) -> int:
        return len(self.log)

    @property
    def done(self) -> set[int]:
        """Return the offsets that this owner knows to be acknowledged."""
        return self.acked[-1]

    @property
    def is_ordered(self) -> bool:
        return self.config.type in ORDERED

    def append(self, key: bytes | None = None, due: float | None = None) -> None:
        self.log.append((key, due))

    # -- consumers -------------------------------------------------------------------------------

    def pull(self, consumer: str, limit: int = 100, lease_s: float = LEASE_S) -> list[int]:
        self.refresh()
        dispatch = self.dispatch
        ready = dispatch.is_ready(consumer, self.now, self.tail)
        if not dispatch.admit(consumer, self.now, lease_s):
            assert not ready
            return []
        capacity = min(limit, dispatch.capacity)
        found = dispatch.take(consumer, dispatch.waiting(consumer, capacity, self.now))
        before, failed = dispatch.next_offset, dict(self.cursor.failures)
        while (
            len(found) < capacity and dispatch.may_read(self.now) and dispatch.has_unread(self.tail)
        ):
            offset = self.cursor.acks.next_unacked(dispatch.next_offset)
            key, due = self.log[offset]
            waits = due is not None and due > self.now and not self.is_ordered
            if dispatch.offer(consumer, offset, key, due if waits else None):
                found.append(offset)
            dispatch.next_offset = offset + 1
        looked = dispatch.next_offset > before or len(failed) < len(dispatch.dead_letters)
        assert ready or not found, "a wait would have gone on"
        assert found or looked or not ready or capacity <= 0 or self._woke(), "waits in vain"
        self._check_pulled(consumer, found)
        self.pulls += 1
        if found:
            until = self.now + lease_s
            dispatch.leases.grant(consumer, self.pulls, found, granted=self.now, expires=until)
            self.held.update({offset: Held(consumer, until) for offset in found})
        self._forward()
        return found

    def _woke(self) -> bool:
        """Tell whether a pull found a message due, and another one of its key before it."""
        return self.config.type == KEY_SHARED

    def ack(self, offsets: list[int]) -> None:
        ranges = ranges_of(sorted(offsets))
        self._change(["ack", "s", ranges], self.done | set(offsets))
        for first, end in ranges:
            self.dispatch.acked(first, end)
        for offset in offsets:
            self.held.pop(offset, None)

    def nack(self, offsets: list[int], delay_s: float | None = None) -> None:
        self.refresh()
        leased = sorted(o for o in offsets if o in self.dispatch.leases.by_offset)
        if leased:
            counted = self.dispatch.refuse(leased, self.now, delay_s)
            self._failed(counted)
            for offset in list(self.held) if self.is_ordered else leased:
                self.held.pop(offset, None)

    def release(self, offsets: list[int]) -> None:
        self.refresh()
        leased = sorted(o for o in offsets if o in self.dispatch.leases.by_offset)
        if leased:
            failures = dict(self.cursor.failures)
            self.dispatch.release(leased)
            assert self.cursor.failures == failures
            for offset in list(self.held) if self.is_ordered else leased:
                self.held.pop(offset, None)
            self._check_places()

    def lengthen(self, offsets: list[int], lease_s: float = LEASE_S) -> None:
        self.refresh()
        leased = [o for o in offsets if o in self.dispatch.leases.by_offset]
        self.dispatch.leases.extend(leased, self.now + lease_s)
        for offset in leased:
            self.held[offset].until = self.now + lease_s

    def seek(self, offset: int) -> None:
        kept = set(range(offset))
        self._change(["seek", "s", offset, self.cursor.generation + 1], kept)
        self.forwarded.clear()
        self.held.clear()
        self.dispatch = self._new_dispatch()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def refresh(self) -> None:
        """Apply the effects of time."""
        expired = {offset for offset, held in self.held.items() if held.until <= self.now}
        counted = self.dispatch.expire(self.now)
        assert set(counted) == ({min(expired)} if expired and self.is_ordered else expired)
        self._failed(counted)
        for offset in list(self.held) if expired and self.is_ordered else expired:
            del self.held[offset]
        self._forward()
        self._check_places()

    # -- owners ----------------------------------------------------------------------------------

    def confirm(self) -> None:
        """Confirm that every recorded event is durable."""
        self.durable = len(self.events)

    def take_over(self, unconfirmed: int) -> None:
        """Take over as another owner, which finds ``unconfirmed`` events that were not
        confirmed."""
        kept = min(self.durable + unconfirmed, len(self.events))
        del self.events[kept:], self.acked[kept:]
        self.cursors = Cursors()
        for event in self.events:
            self.cursors.apply(event)
        again = Cursors()
        for event in self.cursors.snapshot():
            again.apply(event)
        assert list(again.snapshot()) == list(self.cursors.snapshot())
        self.cursors = again
        self.confirm()
        self.held.clear()
        self.forwarded &= self.done
        self._own()

    def drain(self) -> None:
        """Pull and acknowledge as one consumer until nothing is left."""
        for _ in range(10_000):
            if self.cursor.acks.acked_to >= self.tail:
                break
            self.pass_time(LEASE_S * 10)
            self.ack(self.pull("last"))
        assert self.done >= set(range(self.tail))
        assert self.cursor.acks.acked_to == self.tail
        assert not self.dispatch.held
        assert not len(self.dispatch.leases)
        assert not self.cursor.failures

    # -- internals -------------------------------------------------------------------------------

    def _own(self) -> None:
        self.cursor = self.cursors.by_id["s"]
        self.consumers = ConsumerTable()
        self.dispatch = self._new_dispatch()

    def _new_dispatch(self) -> Dispatch:
        return TYPES[self.config.type](self.cursor, self.config, self.consumers)

    def _change(self, event: list[Any], acked: set[int]) -> None:
        self.cursors.apply(event)
        self.events.append(event)
        self.acked.append(acked)

    def _failed(self, offsets: list[int]) -> None:
        if offsets:
            ranges = failure_ranges(self.cursor.failures, sorted(offsets))
            self._change(["failures", "s", ranges], self.done)

    def _forward(self) -> None:
        """Forward the messages that failed too often at once."""
        for offset in sorted(self.dispatch.dead_letters):
            most = self.config.max_deliveries
            assert most is not None
            assert self.cursor.failures[offset] >= most
            self.forwarded.add(offset)
            self.ack([offset])

    def _check_places(self) -> None:
        assert self.held.keys() == self.dispatch.leases.by_offset.keys()
        assert {o for o in range(self.tail) if o in self.cursor.acks} == {
            o for o in self.done if o < self.tail
        }

    def _check_pulled(self, consumer: str, found: list[int]) -> None:
        assert len(set(found)) == len(found)
        for offset in found:
            assert offset not in self.done, f"{offset} is acknowledged"
            assert offset not in self.held, f"{offset} is with {self.held[offset].consumer}"
            key, due = self.log[offset]
            assert self.is_ordered or due is None or due <= self.now
            if self.config.type == KEY_SHARED and key is not None:
                self._check_key(consumer, offset, key, found)
        others = {held.consumer for held in self.held.values()} - {consumer}
        if self.is_ordered and found:
            assert not others, f"{consumer} takes what {others} hold"
            assert found == sorted(found)
            missing = set(range(found[-1])) - self.done - set(found) - self.held.keys()
            assert not missing - self.dispatch.dead_letters, f"{found} without {missing}"

    def _check_key(self, consumer: str, offset: int, key: bytes, found: list[int]) -> None:
        for other in range(self.tail):
            if self.log[other][0] != key or other in self.done or other == offset:
                continue
            held = self.held.get(other)
            if held is not None:
                assert held.consumer == consumer, f"{key!r} is with {held.consumer}"
                assert other < offset, f"{offset} comes after {other}"
            elif other < offset and other not in found and other not in self.dispatch.dead_letters:
                due = self.log[other][1]
                assert due is not None, f"{offset} of {key!r} comes before {other}"
                assert due > self.now or other in self.dispatch.delayed
