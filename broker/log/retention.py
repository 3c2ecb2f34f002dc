"""Keeps one log within its policy: deletes ledgers, and advances subscriptions that lag too far
behind.

A ledger is first taken out of the ledger list and deleted afterwards; if a crash happens in
between, the sweep finds the ledger. The ledgers to delete are chosen at the moment of the change,
when no cursor can move in front of them any more: the log's ``earliest_offset`` is raised in the
same iteration of the event loop, and a cursor is never opened, or moved back, below that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Protocol

from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.cluster.event_recorder import PartitionEvents
from fencelog.broker.cluster.events_core import EventKind
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.ledger_list.withdrawal import withdrawn_properties
from fencelog.broker.limits import MAX_EVENT_LEDGERS
from fencelog.broker.log.backlog_core import quota_bound
from fencelog.broker.log.log_writer import LogWriter
from fencelog.broker.log.next_cut_core import NextCut, next_cut
from fencelog.broker.log.retention_core import (
    Extent,
    extents,
    is_roll_wanted,
    start_after_trim,
    trimmable,
)
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.policy import BACKLOG_EVICT, Policy
from fencelog.broker.read.log_reader import LogReader
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

PRECISION = 20
"""The number of times that the offset of an age is looked up while a message grows too old: each
look-up costs reads."""

log = logging.getLogger(__name__)


class DurableCursors(Protocol):
    """The part of a partition's subscriptions that retention uses."""

    def all(self) -> list[str]:
        """Return the ids of the subscriptions, of those too that are not durable."""

    def slowest_offset(self) -> int | None:
        """Return the lowest offset that a durable subscription still has to see, counting changes
        that are in flight to the state log; None: there is no such subscription."""

    async def acknowledge_below(self, subscription_id: str, offset: int) -> None:
        """Count everything below the offset as acknowledged; a subscription that is there already
        does not change."""

    async def note_trimmed(self) -> None:
        """Count what is below the log's begin as lost to the subscriptions that had to see it."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The place where the log begins now. ``held_back``: it is lower than requested, since a
    durable subscription has not acknowledged the messages there."""

    earliest_offset: int
    held_back: bool


@dataclass(frozen=True, slots=True)
class HeldSpace:
    """The ledgers that would be deleted if no durable subscription still had to see them.
    ``size``: their payload bytes; ``offset``: the lowest that a subscription has to see."""

    ledgers: int
    size: int
    offset: int


class _NothingToDo(Exception):
    """The signal, raised at the moment of a change, that no change is needed."""


class Retention:
    """The retention of one log. It has no task: ``tend`` is called now and then.

    ``ensure_persisted(offset)`` returns when nothing below the offset is needed to rebuild the
    state of the log; it is called before ledgers are deleted. ``over_quota`` is called after every
    check with whether the slowest subscription is over its quota, in so far as the quota's action
    does not resolve that itself. ``complete_cursors()`` returns when every durable subscription
    that was registered before has a cursor here; no ledger is deleted before it has returned once.
    ``unlisted``: ledgers that the takeover has dropped.
    """

    def __init__(
        self,
        node: LedgerListStore,
        writer: LogWriter,
        pipeline: AppendPipeline,
        reader: LogReader,
        ledgers: Ledgers,
        *,
        policy: Policy,
        host: Host,
        cursors: DurableCursors,
        ensure_persisted: Callable[[int], Awaitable[None]],
        over_quota: Callable[[bool], None],
        complete_cursors: Callable[[], Awaitable[None]],
        unlisted: Iterable[int] = (),
        metrics: BrokerCounts,
        events: PartitionEvents,
    ) -> None:
        self._metrics = metrics
        self._events = events
        self.policy = policy
        self._node = node
        self._writer = writer
        self._pipeline = pipeline
        self._reader = reader
        self._ledgers = ledgers
        self._host = host
        self._cursors = cursors
        self._ensure_persisted = ensure_persisted
        self._over_quota = over_quota
        self._complete_cursors = complete_cursors
        self._has_all_cursors = False
        self._loop = asyncio.get_running_loop()
        self._unlisted = frozenset(unlisted)
        """The ledgers to delete as soon as the ledger list does not list them."""
        self._old_below: dict[int, tuple[int, float]] = {}
        self._turn = asyncio.Lock()

    def extents(self) -> list[Extent]:
        """Return the extents of the log's ledgers as they are now."""
        return extents(self._node.ledger_list, self._written())

    def next_cut(self) -> NextCut:
        """Return what retention deletes next, and what that waits for."""
        return next_cut(
            self._node.ledger_list,
            self._written(),
            self.policy,
            now_us=self._host.now_us(),
            unacknowledged=self._cursors.slowest_offset(),
        )

    async def trim(self, before: int) -> Trimmed:
        """Drop everything below ``before``: at once for readers, its space as whole ledgers.

        Raises FencelogError: OFFSET_BEYOND_TAIL, NO_OWNER, or why the log has ended (it may be
        trimmed then).
        """
        await self._reader.check_below_tail(before)
        async with self._turn:
            await self._let_go(before)
        self._roll_if_wanted()
        earliest = self._reader.earliest_offset
        return Trimmed(earliest, held_back=earliest < before)

    def is_due(self) -> bool:
        """Tell whether ``tend`` has anything to do, as far as is known without waiting."""
        policy = self.policy
        if policy.ttl_ms is not None or policy.has_backlog_quota:
            return True
        return (
            bool(self._unlisted)
            or bool(self._trimmable(self._node.ledger_list))
            or self._is_roll_wanted()
        )

    def held_space(self) -> HeldSpace | None:
        """Return what is kept for subscriptions alone; None: nothing is."""
        offset, policy = self._cursors.slowest_offset(), self.policy
        if offset is None or (policy.retention_ms is None and policy.retention_bytes is None):
            return None
        ledger_list = self._node.ledger_list
        held = set(self._trimmable(ledger_list, held_back=False))
        held -= set(self._trimmable(ledger_list))
        sealed = [s.sealed for s in ledger_list.segments if s.ledger_id in held]
        return HeldSpace(len(held), sum(s.size for s in sealed if s), offset) if held else None

    async def tend(self) -> None:
        """Do what the policy asks for now; a step that fails is tried again the next time. Raises
        LedgerListLost."""
        async with self._turn:
            for step in (self._expire, self._check_quota, self._retain, self._delete_unlisted):
                try:
                    await step()
                except LedgerListLost:
                    raise
                except FencelogError as error:
                    log.warning("%s: %s", self._node.path, error)

    # -- retention -------------------------------------------------------------------------------

    async def _retain(self) -> None:
        if self._trimmable(self._node.ledger_list):
            await self._let_go()
        self._roll_if_wanted()

    async def _let_go(self, before: int = 0) -> None:
        """Take out of the ledger list the ledgers that may be deleted, and drop everything below
        ``before``."""
        if not self._has_all_cursors:
            await self._complete_cursors()
            # The creator of a subscription is notified of this partition from now on, or finds it
            # in the registry's topic, and opens a cursor here before it reports that it is done.
            self._has_all_cursors = True
        # A ledger that ends while acknowledgements settle stays for the next time: it may hold
        # messages that were acknowledged since.
        ends = {
            segment.ledger_id: segment.end_offset
            for segment in self._node.ledger_list.segments
            if segment.end_offset is not None
        }
        settled = max([before, *(ends[gone] for gone in self._trimmable(self._node.ledger_list))])
        await self._ensure_persisted(settled)
        lasting = await self._withdraw(before, ends, settled)

        dropped: Sequence[int] = ()

        def next_of(ledger_list: LedgerList) -> LedgerList:
            nonlocal dropped
            started = self._started(ledger_list, before)
            gone = [
                id_
                for id_ in takewhile(lambda id_: id_ not in lasting, self._trimmable(started))
                if ends.get(id_, inf) <= settled
            ]
            if not gone and started.start_offset == ledger_list.start_offset:
                raise _NothingToDo
            trimmed, dropped = started.trimmed(gone), gone
            self._reader.trim(trimmed.start_offset)
            # Now: the caller may go away before the change is made.
            self._unlisted |= frozenset(gone)
            return trimmed

        try:
            await self._node.change(next_of)
        except _NothingToDo:
            return
        now = self._node.ledger_list
        self._events.record(
            EventKind.TRIM,
            epoch=now.epoch,
            count=len(dropped),
            ledgers=list(dropped[:MAX_EVENT_LEDGERS]),
            start_offset=now.start_offset,
        )
        if self.policy.trim_unacknowledged:
            await self._cursors.note_trimmed()
        await self._delete_unlisted()

    def _started(self, ledger_list: LedgerList, before: int) -> LedgerList:
        """Return the list with everything below ``before`` dropped, as far as it may be."""
        return ledger_list.with_start(
            start_after_trim(
                before,
                self._reader.tail_offset,
                unacknowledged=self._cursors.slowest_offset(),
                policy=self.policy,
            )
        )

    async def _withdraw(
        self, before: int, ends: Mapping[int, int], settled: int
    ) -> Collection[int]:
        """Withdraw the ledgers that joined the log by a commit and may be trimmed now: once they
        are off the list, a committer that is forgotten could have them join again. Return the
        others that joined, which have to stay for this time."""
        ledger_list = self._node.ledger_list
        joined = {each.ledger_id for each in ledger_list.segments if each.is_adopted}
        for ledger_id in self._trimmable(self._started(ledger_list, before)):
            if ledger_id in joined and ends.get(ledger_id, inf) <= settled:
                try:
                    await self._ledgers.describe(ledger_id, withdrawn_properties)
                except FencelogError as error:
                    if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                        raise  # else nothing can join any more
                joined.discard(ledger_id)
        return joined

    def _trimmable(self, ledger_list: LedgerList, *, held_back: bool = True) -> Sequence[int]:
        """Return the ledgers that may be deleted; ``held_back``: by subscriptions, too."""
        return trimmable(
            ledger_list,
            self._written(),
            self.policy,
            now_us=self._host.now_us(),
            unacknowledged=self._cursors.slowest_offset() if held_back else None,
        )

    def _is_roll_wanted(self) -> bool:
        return is_roll_wanted(
            self._node.ledger_list,
            self._written(),
            self.policy,
            now_us=self._host.now_us(),
            unacknowledged=self._cursors.slowest_offset(),
        )

    def _roll_if_wanted(self) -> None:
        if self._is_roll_wanted():
            self._writer.want_roll()

    def _written(self) -> Extent | None:
        ledger, pipeline = self._writer.ledger, self._pipeline
        if ledger is None:
            return None
        tail = pipeline.tail_offset
        return Extent(
            tail - pipeline.messages_in_ledger,
            tail,
            ledger.size,
            pipeline.settled_publish_us,
        )

    async def _delete_unlisted(self) -> None:
        for ledger_id in sorted(self._unlisted - self._node.ledger_list.ledgers):
            try:
                await self._ledgers.delete(ledger_id)
            except FencelogError as error:
                log.warning("%s: ledger %d: %s", self._node.path, ledger_id, error)
                break  # the next check tries again; for the caller the log is trimmed already
            self._unlisted -= {ledger_id}
            self._metrics.trimmed_ledgers += 1

    # -- subscriptions ---------------------------------------------------------------------------

    async def _expire(self) -> None:
        """Apply the time to live: older messages count as acknowledged."""
        if self.policy.ttl_ms is not None:
            await self._acknowledge_below(await self._older_than(self.policy.ttl_ms))

    async def _check_quota(self) -> None:
        policy = self.policy
        if not policy.has_backlog_quota:
            return
        too_old_below = None
        if policy.backlog_quota_ms is not None:
            too_old_below = await self._older_than(policy.backlog_quota_ms)
        bound = quota_bound(self.extents(), policy, too_old_below=too_old_below)
        if policy.backlog_action == BACKLOG_EVICT:
            await self._evict_below(bound)
        self._over_quota(self._is_slowest_below(bound))

    def _is_slowest_below(self, offset: int) -> bool:
        """Tell whether a durable subscription still has to see messages below ``offset``: quotas
        are for these alone."""
        slowest = self._cursors.slowest_offset()
        return slowest is not None and slowest < offset

    async def _evict_below(self, offset: int) -> None:
        if self._is_slowest_below(offset):
            await self._acknowledge_below(offset)

    async def _acknowledge_below(self, offset: int) -> None:
        for subscription_id in self._cursors.all():
            try:
                await self._cursors.acknowledge_below(subscription_id, offset)
            except FencelogError as error:
                if error.code is not ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise  # else it was dropped meanwhile

    async def _older_than(self, age_ms: int) -> int:
        """Return the offset below which all messages are older; it is looked up only now and
        then."""
        now_s = self._loop.time()
        offset, again_at_s = self._old_below.get(age_ms, (0, 0.0))
        if now_s >= again_at_s:
            time_us = self._host.now_us() - age_ms * 1000
            offset = await self._reader.offset_for_time(time_us)
            self._old_below[age_ms] = (offset, now_s + age_ms / 1000 / PRECISION)
        return offset
