"""The appends that a backlog quota admits: the oracle of ``hold`` and ``refuse`` (27).

An instance compares the backlog with the quota now and then, and what it finds holds until the next
time. What it finds is compared with the backlog as the oracle knows it: the bytes of the messages
in the log's ledgers, and two bounds of the slowest cursor, what was confirmed to consumers and what
is durable. Between two checks every append is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.ledger_list.ledger_list import Segment
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import BACKLOG_HOLD, BACKLOG_REFUSE
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import read_entry_header
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.subscription_history import SubscriptionHistory

LATE_S = 0.1
"""The delay with which appends that were held for long enough may be refused."""


@dataclass(slots=True, eq=False)
class Gate:
    """One instance's. ``turns``: how often it has been opened or shut; ``since_s``: when it was
    last shut."""

    is_over: bool
    since_s: float
    turns: int = 0
    held: dict[AppendFuture, _Asked] = field(default_factory=dict)
    refused_later: set[AppendFuture] = field(default_factory=set)
    """Appends that are refused as soon as the owner has been checked: no quota holds those."""

    def turn(self, is_over: bool, now_s: float) -> None:
        if is_over != self.is_over:
            self.is_over, self.turns = is_over, self.turns + 1
            if is_over:
                self.since_s = now_s


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """An append as it was asked for."""

    was_over: bool
    turns: int
    at_s: float


class QuotaWatch:
    """The oracle of one partition's quota. ``subscriptions``: all that have a durable cursor in
    it."""

    def __init__(
        self,
        log: LogHistory,
        action: str,
        quota: int,
        hold_s: float,
        subscriptions: Sequence[SubscriptionHistory],
    ) -> None:
        self._log = log
        self._action = action
        self._quota = quota
        self._hold_s = hold_s
        self._subscriptions = subscriptions
        self._gates: dict[object, Gate] = {}

    def append(self, instance: PartitionLog, append: Callable[[], AppendFuture]) -> AppendFuture:
        """Return what ``append`` gives, which asks the instance."""
        gate = self._gates.get(instance)
        if gate is None:
            gate = self._gates[instance] = self._observed(instance)
        asked = _Asked(gate.is_over, gate.turns, asyncio.get_running_loop().time())
        future = append()
        if asked.was_over and self._action == BACKLOG_REFUSE and not _has_failed(future):
            self._log.violate(27, "an append is let in over the quota")
        if asked.was_over and self._action == BACKLOG_HOLD:
            gate.held[future] = asked
        future.add_done_callback(partial(self._answered, gate, asked))
        return future

    def _answered(self, gate: Gate, asked: _Asked, future: AppendFuture) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._action == BACKLOG_HOLD:
            self._check_held(gate, asked, future, now_s)
        if not _is_over_quota(future):
            return
        self._log.counts[f"over quota: {self._action}"] += 1
        if self._action == BACKLOG_REFUSE and not asked.was_over:
            self._log.violate(27, "an append is refused within the quota")
        elif self._action == BACKLOG_HOLD and now_s - gate.since_s < self._hold_s - 1e-6:
            self._log.violate(27, f"refused after {now_s - gate.since_s:.6f} s over the quota")

    def _check_held(self, gate: Gate, asked: _Asked, future: AppendFuture, now_s: float) -> None:
        """Check that an append which was held all the time was not written, and was refused in
        time."""
        gate.held.pop(future, None)
        if future in gate.refused_later:
            gate.refused_later.discard(future)
            return
        if not (asked.was_over and gate.is_over and asked.turns == gate.turns):
            return
        self._check_time(asked, now_s)
        is_written = not future.cancelled() and future.exception() is None
        if is_written and not future.result().duplicate:
            self._log.violate(27, "an append is acknowledged while appends are held")

    def _check_time(self, asked: _Asked, now_s: float) -> None:
        if now_s - asked.at_s > self._hold_s + LATE_S:
            self._log.violate(27, f"an append was held for {now_s - asked.at_s:.6f} s")

    # -- what the instance finds -----------------------------------------------------------------

    def _observed(self, instance: PartitionLog) -> Gate:
        admission: Any = instance._admission
        retention: Any = instance.retention
        over_quota, loop = admission.over_quota, asyncio.get_running_loop()
        gate = Gate(admission.is_over_quota, -inf if admission.is_over_quota else inf)

        def told(is_over: bool) -> None:
            for future, asked in gate.held.items():
                if future not in gate.refused_later:
                    self._check_time(asked, loop.time())
            if not is_over:
                gate.held.clear()
            over_quota(is_over)
            gate.turn(is_over and not admission._closed, loop.time())

        def checked(is_over: bool) -> None:
            self._check(instance, is_over)
            told(is_over)

        admission.over_quota, retention._over_quota = told, checked
        _note_owner_checks(instance, gate)
        return gate

    def _check(self, instance: PartitionLog, is_over: bool) -> None:
        self._log.counts["quotas checked"] += 1
        least, most = self._backlog(instance)
        if is_over and most <= self._quota:
            self._log.violate(27, f"{most:.0f} bytes are over the quota of {self._quota}")
        if not is_over and least > self._quota:
            self._log.violate(27, f"{least:.0f} bytes are within the quota of {self._quota}")

    def _backlog(self, instance: PartitionLog) -> tuple[float, float]:
        """Return the least and the most bytes of the slowest subscription's backlog."""
        confirmed, durable = inf, inf
        for subscription in self._subscriptions:
            first, last = self._cursor(subscription, instance)
            confirmed, durable = min(confirmed, first), min(durable, last)
        segments, tail = instance._node.ledger_list.segments, instance.tail_offset
        if any(segment.base_offset is None for segment in segments):
            return 0.0, inf  # it rolls: where the last ledger begins is not listed yet
        least = most = 0.0
        for segment in segments:
            is_last = segment is segments[-1]
            if segment.sealed is not None or is_last:
                least += self._bytes_from(segment, durable, tail)
            most += self._bytes_from(segment, confirmed, tail, is_all=segment.sealed is None)
        return least, most

    def _cursor(
        self, subscription: SubscriptionHistory, instance: PartitionLog
    ) -> tuple[float, float]:
        """Bounds of where its cursor is. It may not be there yet: then it holds nothing back."""
        durable, view = subscription.durable, subscription.views.get(instance)
        if view is None:
            found = self._log.state.openings.get(instance.epoch, {})
            cursor = found.get(subscription.info.subscription_id)
            first = instance.earliest_offset if cursor is None else cursor.acked_to
            return first, inf if cursor is None or durable is None else durable.acked_to
        first = view.acked_to
        while first in view.since:
            first += 1
        return first, inf if durable is None else max(first, durable.acked_to)

    def _bytes_from(
        self, segment: Segment, offset: float, tail: int, *, is_all: bool = False
    ) -> float:
        """Return the bytes of its messages from there on, as if all had one size. ``is_all``: count
        also what is not acknowledged."""
        if segment.base_offset is None:
            return 0.0
        payloads = self._log.history.ledgers[segment.ledger_id].payloads
        if segment.sealed is not None:
            payloads = payloads[: segment.sealed.entries]
        size, messages = 0, 0
        for payload in payloads:
            count = read_entry_header(payload).count
            is_settled = segment.base_offset + messages + count <= tail
            if not (is_all or is_settled or segment.sealed is not None):
                break
            messages += count if is_settled or segment.sealed is not None else 0
            size += len(payload)
        left = min(messages, segment.base_offset + messages - offset)
        return size * left / messages if left > 0 else 0.0


def _note_owner_checks(instance: PartitionLog, gate: Gate) -> None:
    """Have the gate know the appends that are refused after a check of the owner, which takes as
    long as the metadata store needs."""
    conditional: Any = instance._pipeline.conditional
    decide, check_owner = conditional._decide, conditional._check_owner
    checks = 0

    def decided(append: Any) -> bool:
        before = checks
        is_decided: bool = decide(append)
        if checks > before and not append.future.done():
            gate.refused_later.add(append.future)
        return is_decided

    def checked() -> asyncio.Future[bool]:
        nonlocal checks
        checks += 1
        begun: asyncio.Future[bool] = check_owner()
        return begun

    conditional._decide = decided
    if check_owner is not None:
        conditional._check_owner = checked


def _has_failed(future: AppendFuture) -> bool:
    return future.done() and not future.cancelled() and future.exception() is not None


def _is_over_quota(future: AppendFuture) -> bool:
    error = None if future.cancelled() else future.exception()
    return isinstance(error, FencelogError) and error.code is ErrorCode.BACKLOG_QUOTA_EXCEEDED
