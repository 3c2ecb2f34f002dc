"""One subscription in one partition, as its owner serves it: cursor, dispatch, and waiting
consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fencelog.broker.dispatch.ack_ranges import Range
from fencelog.broker.dispatch.base import Dispatch
from fencelog.broker.dispatch.consumers import ConsumerTable
from fencelog.broker.dispatch.cursor_core import Cursor
from fencelog.broker.dispatch.key_shared import KeySharedDispatch
from fencelog.broker.dispatch.ordered import OrderedDispatch
from fencelog.broker.dispatch.shared import SharedDispatch
from fencelog.broker.read.log_reader import LogReader
from fencelog.broker.read.tail_cache import TailNotifier
from fencelog.broker.registry.subscription_config import (
    KEY_SHARED,
    ORDERED,
    SHARED,
    SubscriptionInfo,
)
from fencelog.broker.subscriptions.cursors import CursorLog
from fencelog.ledgers.errors import FencelogError

_DISPATCH: dict[str, type[Dispatch]] = {
    **dict.fromkeys(ORDERED, OrderedDispatch),
    SHARED: SharedDispatch,
    KEY_SHARED: KeySharedDispatch,
}


class SubscriptionState:
    """The state of a subscription. ``turn``: one pull at a time decides what is next. ``waits``:
    the current waits of consumers."""

    def __init__(
        self,
        info: SubscriptionInfo,
        cursor: Cursor,
        cursors: CursorLog,
        reader: LogReader,
        *,
        on_dead_letters: Callable[[SubscriptionState], None],
    ) -> None:
        """``on_dead_letters`` is called when there are messages to forward."""
        self.info = info
        self.cursor = cursor
        self.cursors = cursors
        self.reader = reader
        self.notifier = TailNotifier()
        self.turn = asyncio.Lock()
        self.waits = 0
        self.forwarding: asyncio.Task[None] | None = None
        self.forward_error: FencelogError | None = None
        """The reason why messages could not be forwarded at the last attempt."""
        self._on_dead_letters = on_dead_letters
        self._loop = asyncio.get_running_loop()
        self._consumers = ConsumerTable()
        self.dispatch = self._new_dispatch()

    @property
    def id(self) -> str:
        return self.info.subscription_id

    @property
    def is_ordered(self) -> bool:
        return self.info.config.type in ORDERED

    def now(self) -> float:
        return self._loop.time()

    def configure(self, info: SubscriptionInfo) -> None:
        """Replace the configuration, which has changed."""
        previous, self.info = self.info, info
        if previous.config.type == info.config.type:
            self.dispatch.config = info.config
        else:
            self.restart()

    def restart(self) -> None:
        """Deliver from the cursor on, as if nothing had been delivered yet."""
        self.dispatch = self._new_dispatch()
        self.notifier.notify()

    def refresh(self) -> None:
        """Apply the effects of time and retention. Raises the error with which the log was
        closed."""
        if self.reader.closed is not None:
            raise FencelogError(self.reader.closed.code, self.reader.closed.detail)
        first = self.cursor.acks.acked_to
        if first < self.reader.earliest_offset:
            self.cursors.note(["trimmed", self.id, self.reader.earliest_offset])
            self.dispatch.acked(first, self.cursor.acks.acked_to)
        expired = self.dispatch.expire(self.now())
        if expired:
            self.failed(expired)

    def failed(self, offsets: list[int]) -> None:
        """Record that these messages, in order, have failed once more, as the dispatch reports."""
        self.cursors.note_failures(self.id, offsets)
        self.check_dead_letters()
        self.notifier.notify()

    def released(self, offsets: list[int]) -> None:
        """Deliver these messages, in order, again, which their consumer has not used."""
        self.dispatch.release(offsets)
        self.notifier.notify()

    def check_dead_letters(self) -> None:
        if self.dispatch.dead_letters:
            self._on_dead_letters(self)

    def skip(self, ranges: list[Range]) -> None:
        """Count these messages, which are with no consumer, as acknowledged."""
        self.cursors.note(["ack", self.id, ranges])

    def acked(self, ranges: list[Range]) -> None:
        """Record that these messages are acknowledged, as the cursor says already."""
        for first, end in ranges:
            self.dispatch.acked(first, end)
        self.notifier.notify()

    def touch(self, offset: int, until: float) -> None:
        """Record activity of the consumer that has this message."""
        lease = self.dispatch.leases.by_offset.get(offset)
        if lease is not None:
            self.heard_of(lease.consumer, until)

    def heard_of(self, consumer: str, until: float) -> None:
        """Record that a consumer is present until then at least."""
        self._consumers.touch(consumer, self.now(), until)

    def begin_wait(self, consumer: str) -> None:
        self.waits += 1
        self._consumers.waits(consumer, 1)

    def end_wait(self, consumer: str) -> None:
        """End a consumer's wait; it stays present for as long as a lease."""
        self.waits -= 1
        self._consumers.waits(consumer, -1)
        self.heard_of(consumer, self.now() + self.info.config.lease_ms / 1000)
        if self.is_ordered:
            self.notifier.notify()  # waiting consumers check again how long it stays

    def stats(self) -> dict[str, Any]:
        """Return the part of the statistics that the cursor does not have, JSON-compatible."""
        now, dispatch = self.now(), self.dispatch
        counts = dispatch.leases.counts()
        oldest, error = dispatch.leases.oldest(), self.forward_error
        return {
            "outstanding": len(dispatch.leases),
            "oldest_lease_ms": None if oldest is None else int((now - oldest) * 1000),
            "delayed": len(dispatch.delayed),
            "held": dispatch.held,
            "burying": len(dispatch.dead_letters),
            "burial_error": str(error) if error and dispatch.dead_letters else None,
            "consumers": [
                {
                    "name": name,
                    "age_ms": int((now - consumer.since) * 1000),
                    "idle_ms": int((now - consumer.seen) * 1000),
                    "outstanding": counts.get(name, 0),
                }
                for name, consumer in self._consumers.there(now).items()
            ],
        }

    def _new_dispatch(self) -> Dispatch:
        config = self.info.config
        return _DISPATCH[config.type](self.cursor, config, self._consumers)
