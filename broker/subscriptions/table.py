"""The subscriptions with a cursor in a partition: their creation, removal and statistics.

The state of deliveries (``SubscriptionState``) is created at the first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from fencelog.broker.dispatch.ack_ranges import Range
from fencelog.broker.dispatch.cursor_core import Cursors
from fencelog.broker.ledger_list.state_log import StateLog
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.policy import Policy
from fencelog.broker.read.log_reader import LogReader
from fencelog.broker.registry.subscription_config import SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.broker.subscriptions.answers import DeadLetters
from fencelog.broker.subscriptions.cursors import CursorLog
from fencelog.broker.subscriptions.dead_letters import DeadLetterForwarder
from fencelog.broker.subscriptions.state import SubscriptionState
from fencelog.ledgers.errors import ErrorCode, FencelogError

_UNUSED: dict[str, Any] = {
    "outstanding": 0,
    "oldest_lease_ms": None,
    "delayed": 0,
    "held": 0,
    "burying": 0,
    "burial_error": None,
    "consumers": [],
}
"""The statistics of a subscription that was not used since the log was opened here."""


_VIEWED = (
    "acked_to",
    "backlog_messages",
    "burial_error",
    "delayed",
    "durable",
    "generation",
    "holes",
    "lost_to_retention",
    "outstanding",
    "redelivering",
)


class SubscriptionBacklog(NamedTuple):
    """The backlog of a subscription in one partition. ``messages``: not acknowledged; ``leases``:
    of these, with consumers; ``dead_letters``: on the way to their topic; ``redelivering``: have
    failed before; ``durable``: it holds back trimming."""

    subscription_id: str
    acked_to: int
    messages: int
    leases: int
    dead_letters: int
    redelivering: int
    durable: bool


class SubscriptionTable:
    """The base of ``Subscriptions``. ``dead_letters`` is set by the application; ``policy`` may be
    replaced at any time."""

    def __init__(
        self,
        reader: LogReader,
        state_log: StateLog,
        cursors: Cursors,
        policy: Policy,
        *,
        partition: int,
        epoch: int,
        metrics: BrokerCounts,
    ) -> None:
        """Create the table. ``cursors``: the section of the state that ``state_log`` writes, as
        rebuilt."""
        self.dead_letters: DeadLetters | None = None
        self.policy = policy
        self._metrics = metrics
        self._reader = reader
        self._cursors = CursorLog(cursors, state_log, self._backlogs_changed)
        self._partition = partition
        self._epoch = epoch
        self._loop = asyncio.get_running_loop()
        self._in_use: dict[str, SubscriptionState] = {}
        self._counted: tuple[tuple[str, int], ...] | None = None
        self._on_backlogs_changed: Callable[[], object] | None = None

    async def close(self) -> None:
        """End all work after the log was closed. Never raises."""
        forwardings = [s.forwarding for s in self._in_use.values() if s.forwarding is not None]
        for forwarder in forwardings:
            forwarder.cancel()
        await asyncio.gather(*forwardings, return_exceptions=True)

    async def begin(self, registered: RegisteredSubscription) -> None:
        """Create the cursor of a subscription at its start, if there is none yet; it is durable
        when this returns. Raises as ``open``, and what reading raises."""
        start: int | None = None
        if self._partition >= registered.partitions:
            start = self._reader.earliest_offset  # the partition came later
        elif isinstance(registered.info.start, Mapping) and "time_us" in registered.info.start:
            start = await self._reader.offset_for_time(registered.info.start["time_us"])
        await self.open(registered.info, start_offset=start)

    async def open(self, info: SubscriptionInfo, *, start_offset: int | None = None) -> None:
        """Create the cursor if there is none yet; it is durable when this returns.

        It begins at ``start_offset``, otherwise at ``info.start``, but within the log. Raises
        LIMIT_REACHED, NO_OWNER, OVERLOADED, STATE_UNKNOWN, or the error with which the log has
        ended.
        """
        if self._cursors.find(info.subscription_id) is None:
            count = len(self._cursors.ids())
            if count >= self.policy.max_subscriptions:
                await self._reader.check_owner()  # a later one may have fewer
                raise FencelogError(
                    ErrorCode.LIMIT_REACHED, f"partition {self._partition} has {count} cursors"
                )
            start = self._start_of(info) if start_offset is None else start_offset
            start = max(self._reader.earliest_offset, min(start, self._reader.tail_offset))
            self._cursors.begin(info.subscription_id, start, durable=info.config.durable)
        await self._cursors.settled()

    async def drop(self, subscription_id: str) -> None:
        """Drop the cursor, durably, if there is one."""
        self._cursors.drop(subscription_id)
        subscription = self._in_use.pop(subscription_id, None)
        if subscription is not None:
            if subscription.forwarding is not None:
                subscription.forwarding.cancel()
            subscription.notifier.notify()
        await self._cursors.settled()

    def all(self) -> list[str]:
        """Return the ids of all subscriptions that have a cursor here."""
        return self._cursors.ids()

    def slowest_offset(self) -> int | None:
        """Return the offset below which every durable subscription has durably acknowledged
        everything; None if there is no durable subscription. Messages below it may be removed."""
        return self._cursors.slowest_offset()

    async def acknowledge_below(self, subscription_id: str, offset: int) -> None:
        """Acknowledge everything below ``offset`` for a subscription that may not keep it longer.
        Raises as ``ack``; SUBSCRIPTION_NOT_FOUND."""
        cursor = self._cursors.find(subscription_id)
        if cursor is None:
            raise self._not_found(subscription_id)
        end = min(offset, self._reader.tail_offset)
        if end > cursor.acks.acked_to:
            await self._acknowledge(subscription_id, [(cursor.acks.acked_to, end)])

    async def note_trimmed(self) -> None:
        """Count what retention has removed as lost to the subscriptions that still had to see it;
        durable when this returns. Raises as ``ack``."""
        earliest = self._reader.earliest_offset
        for subscription_id in self._cursors.ids():
            cursor = self._cursors.find(subscription_id)
            if cursor is None or (first := cursor.acks.acked_to) >= earliest:
                continue
            self._cursors.change(["trimmed", subscription_id, earliest])
            if (subscription := self._in_use.get(subscription_id)) is not None:
                subscription.acked([(first, cursor.acks.acked_to)])
        await self._cursors.settled()

    def stats(self, subscription_id: str) -> dict[str, Any]:
        """Return statistics, JSON-compatible. ``backlog_messages``: not acknowledged; of these
        ``outstanding`` are with consumers, ``delayed`` wait for a time; ``redelivering`` have
        failed before. ``holes``: ranges of acknowledged messages above ``acked_to``, which is the
        first unacknowledged offset; ``burial_error``: the reason why the ``burying`` are not in the
        dead letter topic yet."""
        cursor = self._cursors.find(subscription_id)
        if cursor is None:
            raise self._not_found(subscription_id)
        subscription = self._in_use.get(subscription_id)
        if subscription is not None and self._reader.closed is None:
            subscription.refresh()
        acks, tail = cursor.acks, self._reader.tail_offset
        backlog = acks.unacked_below(tail)
        stats = _UNUSED if subscription is None else subscription.stats()
        return {
            "acked_to": acks.acked_to,
            "confirmed_to": cursor.confirmed_to,
            "oldest_unacked": acks.acked_to if backlog else None,
            "backlog_messages": backlog,
            "holes": len(acks),
            "redelivering": len(cursor.failures),
            "lost_to_retention": cursor.lost,
            "generation": cursor.generation,
            "durable": self._cursors.is_durable(subscription_id),
            **stats,
        }

    def cursor_view(self, subscription_id: str) -> dict[str, Any]:
        """Return those statistics that change only when something happens, and the id."""
        stats = self.stats(subscription_id)
        return {"subscription_id": subscription_id} | {name: stats[name] for name in _VIEWED}

    @property
    def has_cursors(self) -> bool:
        """Tell whether any subscription has a cursor here."""
        return self._cursors.has_any

    def backlogs(self) -> Iterator[SubscriptionBacklog]:
        """Yield a few figures of every subscription, without an effect on any."""
        tail = self._reader.tail_offset
        for subscription_id, cursor in self._cursors.items():
            acks, used = cursor.acks, self._in_use.get(subscription_id)
            yield SubscriptionBacklog(
                subscription_id,
                acks.acked_to,
                acks.unacked_below(tail),
                0 if used is None else len(used.dispatch.leases),
                0 if used is None else len(used.dispatch.dead_letters),
                len(cursor.failures),
                self._cursors.is_durable(subscription_id),
            )

    def count_backlogs(self) -> tuple[tuple[str, int], ...]:
        """Return of ``backlogs`` the ids and ``messages`` alone. The next change of them, or the
        first use of a subscription, is told once, see ``call_when_backlogs_change``."""
        tail = self._reader.tail_offset
        # Kept for each partition: the garbage collector does not visit tuples of plain values.
        found = self._counted = tuple(
            [(id_, cursor.acks.unacked_below(tail)) for id_, cursor in self._cursors.items()]
        )
        return found

    def call_when_backlogs_change(self, on_change: Callable[[], object] | None) -> None:
        """Call ``on_change`` when something has changed since ``count_backlogs``."""
        self._on_backlogs_changed = on_change

    def tail_moved(self) -> None:
        """Note that the tail has moved, or that the log was closed."""
        if self._counted:  # without cursors there is nothing to count
            self._backlogs_changed()

    def _backlogs_changed(self) -> None:
        if self._counted is not None:
            self._counted = None
            if self._on_backlogs_changed is not None:
                self._on_backlogs_changed()

    @property
    def is_used(self) -> bool:
        """Tell whether messages may be with consumers."""
        return bool(self._in_use)

    def in_delivery(self) -> tuple[int, int]:
        """Return ``leases`` and ``dead_letters`` of all backlogs together."""
        if not self._in_use:
            return 0, 0
        dispatches = [used.dispatch for used in self._in_use.values()]
        leases = sum(len(dispatch.leases) for dispatch in dispatches)
        return leases, sum(len(dispatch.dead_letters) for dispatch in dispatches)

    # -- for subclasses -------------------------------------------------------------------------

    def _use(self, info: SubscriptionInfo) -> SubscriptionState:
        """Return the subscription's state in memory, created at its first use."""
        self._reader.was_asked = True
        subscription = self._in_use.get(info.subscription_id)
        if subscription is None:
            cursor = self._cursors.find(info.subscription_id)
            if cursor is None:
                raise self._not_found(info.name)
            subscription = SubscriptionState(
                info,
                cursor,
                self._cursors,
                self._reader,
                on_dead_letters=self._start_forwarding,
            )
            self._in_use[info.subscription_id] = subscription
            self._backlogs_changed()
        elif subscription.info != info:
            subscription.configure(info)
        return subscription

    def _not_found(self, name: str) -> FencelogError:
        return FencelogError(
            ErrorCode.SUBSCRIPTION_NOT_FOUND,
            f"subscription {name[:80]!r} has no cursor in partition {self._partition}",
        )

    def _start_of(self, info: SubscriptionInfo) -> int:
        match info.start:
            case "earliest":
                return 0
            case "latest":
                return self._reader.tail_offset
            case {"offset": int(offset)}:
                return offset
        raise FencelogError(
            ErrorCode.BAD_REQUEST, "a start by time has to be looked up before", field="start"
        )

    async def _acknowledge(self, subscription_id: str, ranges: list[Range]) -> None:
        cursor = self._cursors.find(subscription_id)
        if cursor is None:
            raise self._not_found(subscription_id)
        subscription = self._in_use.get(subscription_id)
        if subscription is not None and ranges:
            lease_s = subscription.info.config.lease_ms / 1000
            subscription.touch(ranges[-1][1] - 1, self._loop.time() + lease_s)
        fresh = [part for first, end in ranges for part in cursor.acks.unacked(first, end)]
        if fresh:
            self._cursors.change(["ack", subscription_id, ranges])
            if subscription is not None:
                subscription.acked(fresh)
        await self._cursors.settled()

    def _start_forwarding(self, subscription: SubscriptionState) -> None:
        if subscription.forwarding is None:
            forwarder = DeadLetterForwarder(
                subscription,
                lambda: self.dead_letters,
                partition=self._partition,
                epoch=self._epoch,
                metrics=self._metrics,
            )
            subscription.forwarding = self._loop.create_task(forwarder.run())
            subscription.forwarding.add_done_callback(partial(self._forwarding_ended, subscription))

    def _forwarding_ended(self, subscription: SubscriptionState, done: asyncio.Task[None]) -> None:
        subscription.forwarding = None
        if not done.cancelled() and self._reader.closed is None:
            done.result()
            subscription.check_dead_letters()  # a seek began anew
