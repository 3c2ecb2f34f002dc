"""One pull: reads candidate messages, decides, and leases the ones that it delivers.

Reads are awaited, decisions are not: they hold for the moment in which they are made, and messages
that were read in vain because of an acknowledgement, a seek or a refusal meanwhile are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelog.broker.dispatch.ack_ranges import ranges_of
from fencelog.broker.read.stored import ReadLimits, StoredBatch
from fencelog.broker.subscriptions.ack_id import ack_id_maker
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.broker.subscriptions.batch import (
    DELIVER_AT,
    REPLAY_FOR,
    Opened,
    OpenedBatch,
    opened_together,
)
from fencelog.broker.subscriptions.state import SubscriptionState
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.record_batch import Message

MAX_LOOKED_AT = 10_000
"""The messages that one pull examines to find deliverable ones; the next pull continues from
there."""

MAX_STRIDE = 1_000
"""The messages that are decoded together: a few ms."""

NEAR = 64
"""The distance within which waiting messages are read together."""

_Headers = Sequence[tuple[str, bytes]]


class PullOperation:
    """One pull: call ``run`` once. The messages that it returns are leased; none is, if it
    raises."""

    def __init__(
        self,
        subscription: SubscriptionState,
        consumer: str,
        *,
        partition: int,
        epoch: int,
        delivery: int,
        host: Host,
        max_messages: int,
        max_bytes: int,
        lease_s: float,
    ) -> None:
        self._subscription = subscription
        self._consumer = consumer
        self._delivery = delivery
        self._host = host
        self._max_messages = max_messages
        self._max_bytes = self._bytes_left = max_bytes
        self._lease_s = lease_s
        self._looked_at = 0
        self._dispatch = subscription.dispatch
        self._rewinds = self._dispatch.rewinds
        self._taken: list[PulledMessage] = []
        self._expires = 0.0
        self._make_ack_id = ack_id_maker(
            subscription.id,
            partition=partition,
            epoch=epoch,
            generation=subscription.cursor.generation,
            delivery=delivery,
        )

    async def run(self) -> list[PulledMessage]:
        """Return the messages. Raises LIMIT_REACHED, SUBSCRIPTION_BUSY, and what reading raises."""
        try:
            while await self._step():
                pass
        except FencelogError as error:
            # What was trimmed while it was read counts as acknowledged: the cursor follows.
            if error.code is not ErrorCode.OFFSET_TRIMMED and not self._leased:
                raise
        except BaseException:
            self._dispatch.give_back([message.offset for message in self._taken])
            raise
        return self._leased

    @property
    def _leased(self) -> list[PulledMessage]:
        """Return what this pull has taken: nothing, if the dispatch was rewound since, as that has
        ended the leases."""
        return self._taken if self._dispatch.rewinds == self._rewinds else []

    def _start_again_if_rewound(self) -> None:
        """Discard what was taken before a rewind: it comes again, after what is before it."""
        if self._dispatch.rewinds != self._rewinds:
            self._rewinds = self._dispatch.rewinds
            self._taken, self._bytes_left = [], self._max_bytes

    async def _step(self) -> bool:
        """Take a step, and tell whether there may be more messages."""
        subscription, dispatch = self._subscription, self._dispatch
        now = subscription.now()
        if self._taken and now >= self._expires:
            return False  # the first messages would be delivered twice
        subscription.refresh()
        if not dispatch.admit(self._consumer, now, self._lease_s):
            return False
        self._start_again_if_rewound()
        capacity = self._capacity
        if capacity <= 0 or (self._taken and self._bytes_left <= 0):
            return False
        waiting = dispatch.waiting(self._consumer, capacity, now)
        if waiting:
            return await self._hand_out_waiting(waiting)
        tail = subscription.reader.tail_offset
        if self._looked_at >= MAX_LOOKED_AT or not dispatch.may_read(now):
            return False
        return dispatch.has_unread(tail) and await self._hand_out_new(capacity)

    @property
    def _capacity(self) -> int:
        return min(self._max_messages - len(self._taken), self._dispatch.capacity)

    # -- waiting messages ------------------------------------------------------------------------

    async def _hand_out_waiting(self, waiting: list[int]) -> bool:
        near = waiting[:1]
        for offset in waiting[1:]:
            if offset - near[-1] > NEAR:
                break
            near.append(offset)
        batches = await self._read(near[0], near[-1] + 1 - near[0])
        if self._subscription.dispatch is not self._dispatch:
            return False  # a seek
        is_there = False
        for stored in batches:
            opened = OpenedBatch(stored)
            offsets = [o for o in near if stored.base_offset <= o < stored.end_offset]
            is_there = is_there or bool(offsets)
            found: dict[int, Message] = {}
            for offset in offsets:
                message = opened.messages(offset, offset + 1)[0]
                if not self._fits(message, is_first=not found):
                    break
                found[offset] = message
            taken = self._dispatch.take(self._consumer, list(found))
            self._hand_out(opened, [(offset, found[offset]) for offset in taken])
            if len(found) < len(offsets):
                return False
        return is_there  # False: trimmed, as the next refresh finds

    # -- new messages ----------------------------------------------------------------------------

    async def _hand_out_new(self, capacity: int) -> bool:
        dispatch = self._dispatch
        rewinds = dispatch.rewinds
        first = self._subscription.cursor.acks.next_unacked(dispatch.next_offset)
        batches = await self._read(first, self._stride(capacity))
        if self._subscription.dispatch is not dispatch:
            return False
        if dispatch.rewinds != rewinds:
            return True  # a refusal, or an expired lease: it starts again
        return all(map(self._hand_out_opened, opened_together(batches, MAX_STRIDE)))

    def _hand_out_opened(self, opened: Opened) -> bool:
        """Deliver from batches, and tell whether all of them was examined."""
        dispatch, now = self._dispatch, self._subscription.now()
        begin = max(dispatch.next_offset, opened.base_offset)
        for first, end in list(self._subscription.cursor.acks.unacked(begin, opened.end_offset)):
            while first < end:
                capacity = self._capacity
                if capacity <= 0 or not dispatch.may_read(now):
                    return False
                count = min(end - first, self._stride(capacity))
                if not self._offer(opened, opened.messages(first, first + count), first):
                    return False
                if self._looked_at >= MAX_LOOKED_AT:
                    return False
                first += count
        dispatch.next_offset = max(dispatch.next_offset, opened.end_offset)
        return True

    def _stride(self, capacity: int) -> int:
        """Return how many messages are examined together: the number grows where hardly any is
        deliverable."""
        return max(capacity, min(2 * self._looked_at, MAX_STRIDE))

    def _offer(self, opened: Opened, messages: list[Message], first: int) -> bool:
        """Offer messages to the dispatch, and tell whether there was space for all deliverable
        ones."""
        dispatch, consumer, capacity = self._dispatch, self._consumer, self._capacity
        chosen: list[tuple[int, Message]] = []
        skipped: list[int] = []
        end = first + len(messages)
        for offset, message in enumerate(messages, first):
            due = None
            if opened.has_marks and message.headers:
                if self._is_for_another(message.headers):
                    skipped.append(offset)
                    continue
                due = self._due(message.headers)
            if len(chosen) == capacity or not self._fits(message, is_first=not chosen):
                end = offset
                break
            if dispatch.offer(consumer, offset, message.key, due):
                chosen.append((offset, message))
            else:
                self._bytes_left += _size(message)
        dispatch.next_offset = end
        self._looked_at += end - first
        if skipped:
            self._subscription.skip(ranges_of(skipped))
        self._hand_out(opened, chosen)
        self._subscription.check_dead_letters()
        return end == first + len(messages)

    def _is_for_another(self, headers: _Headers) -> bool:
        names = [value for name, value in headers if name == REPLAY_FOR]
        return bool(names) and self._subscription.info.name.encode() not in names

    def _due(self, headers: _Headers) -> float | None:
        """Return the time of delivery; None: now."""
        if self._subscription.is_ordered:
            return None
        for name, value in headers:
            if name == DELIVER_AT and value.isdigit() and len(value) < 20:
                left_us = int(value) - self._host.now_us()
                return self._subscription.now() + left_us / 1e6 if left_us > 0 else None
        return None

    # -- both -------------------------------------------------------------------------------------

    async def _read(self, offset: int, count: int) -> list[StoredBatch]:
        reader = self._subscription.reader
        limits = ReadLimits(max_messages=count, max_bytes=max(1, self._bytes_left))
        return (await reader.read(offset, limits)).entries

    def _fits(self, message: Message, *, is_first: bool) -> bool:
        """Subtract the message's bytes from the remaining ones, and tell whether it fits; the first
        one always fits."""
        size = _size(message)
        if size > self._bytes_left and (self._taken or not is_first):
            return False
        self._bytes_left -= size
        return True

    def _hand_out(self, opened: Opened, chosen: list[tuple[int, Message]]) -> None:
        if not chosen:
            return
        now, failures = self._subscription.now(), self._subscription.cursor.failures
        self._dispatch.leases.grant(
            self._consumer,
            self._delivery,
            [offset for offset, _ in chosen],
            granted=now,
            expires=now + self._lease_s,
        )
        self._subscription.heard_of(self._consumer, now + self._lease_s)
        if not self._taken:
            self._expires = now + self._lease_s
        time_us, make = opened.published_us, self._make_ack_id
        self._taken += [
            PulledMessage(
                offset, time_us(offset), message, make(offset), failures.get(offset, 0) + 1
            )
            for offset, message in chosen
        ]


def _size(message: Message) -> int:
    return len(message[0]) + len(message[1] or b"")
