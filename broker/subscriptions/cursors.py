"""The cursors of a partition, and the path by which their changes become durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain

from fencelog.broker.dispatch.cursor_core import Cursor, Cursors, failure_ranges
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.ledger_list.state_log import StateLog
from fencelog.ledgers.errors import FencelogError


class CursorLog:
    """The changes of cursors, which apply at once in memory, and are written to the state log in
    that order.

    Cursors of subscriptions that are not durable are changed by the same events, which are not
    written.
    """

    def __init__(
        self, durable: Cursors, state_log: StateLog, on_change: Callable[[], None]
    ) -> None:
        """Create the log. ``durable``: the section as the takeover has rebuilt it; ``on_change`` is
        called when any cursor has changed in memory."""
        self._durable = durable
        self._on_change = on_change
        self._volatile = Cursors()
        self._state_log = state_log
        self._last: asyncio.Future[None] | None = None
        for cursor in durable.by_id.values():
            cursor.confirmed_to = cursor.acks.acked_to

    def ids(self) -> list[str]:
        return [*self._durable.by_id, *self._volatile.by_id]

    def items(self) -> Iterable[tuple[str, Cursor]]:
        """Return the ids and cursors of all subscriptions."""
        durable, volatile = self._durable.by_id, self._volatile.by_id
        return chain(durable.items(), volatile.items()) if volatile else durable.items()

    @property
    def has_any(self) -> bool:
        return bool(self._durable.by_id or self._volatile.by_id)

    def find(self, subscription_id: str) -> Cursor | None:
        found = self._durable.by_id.get(subscription_id)
        return found or self._volatile.by_id.get(subscription_id)

    def is_durable(self, subscription_id: str) -> bool:
        return subscription_id in self._durable.by_id

    def slowest_offset(self) -> int | None:
        """Return the offset below which every durable cursor has durably acknowledged everything;
        None if there is no durable cursor."""
        return min((c.confirmed_to for c in self._durable.by_id.values()), default=None)

    def begin(self, subscription_id: str, offset: int, *, durable: bool) -> None:
        """Create a cursor. Raises OVERLOADED, or the error with which the log has ended."""
        event = ["cursor", subscription_id, offset, 0, 0]
        if durable:
            self._state_log.admit()
            self._durable.apply(event)
            self._record(event, None)
        else:
            self._volatile.apply(event)
        self._on_change()

    def drop(self, subscription_id: str) -> None:
        """Drop a cursor. Raises OVERLOADED, or the error with which the log has ended."""
        event = ["cursor_dropped", subscription_id]
        if self.is_durable(subscription_id):
            self._state_log.admit()
            self._durable.apply(event)
            self._record(event, None)
        self._volatile.apply(event)
        self._on_change()

    def change(self, event: Event) -> None:
        """Apply an event to an existing cursor. Raises OVERLOADED, or the error with which the log
        has ended."""
        if self.is_durable(event[1]):
            self._state_log.admit()
        self.note(event)

    def note(self, event: Event) -> None:
        """Apply an event as ``change`` does, but without a caller that waits for it and without
        refusal: a noted event results from a change that was admitted, or from a pull."""
        if self.is_durable(event[1]):
            self._durable.apply(event)
            self._record(event, self.find(event[1]))
        else:
            self._volatile.apply(event)
        self._on_change()

    def note_failures(self, subscription_id: str, offsets: Iterable[int]) -> None:
        """Note how often these messages, in order, have failed by now. While too many events wait
        for the state log, the counts stay in memory only: a consumer that refuses without end must
        not fill it."""
        cursor = self.find(subscription_id)
        if cursor is not None:
            event = ["failures", subscription_id, failure_ranges(cursor.failures, offsets)]
            with suppress(FencelogError):
                self.change(event)

    async def settled(self) -> None:
        """Wait until everything that was changed so far is durable. Raises STATE_UNKNOWN."""
        if self._last is not None:
            await self._state_log.settled(self._last)

    def _record(self, event: Event, cursor: Cursor | None) -> None:
        future = self._last = self._state_log.recorded(event)
        if cursor is not None:
            generation, acked_to = cursor.generation, cursor.acks.acked_to
            future.add_done_callback(lambda done: _confirm(done, cursor, generation, acked_to))


def _confirm(done: asyncio.Future[None], cursor: Cursor, generation: int, acked_to: int) -> None:
    if not done.cancelled() and done.exception() is None and cursor.generation == generation:
        cursor.confirmed_to = max(cursor.confirmed_to, acked_to)
