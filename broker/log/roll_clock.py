"""When the present ledger of a log is to be followed by the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencelog.broker.ledger_list.open_ledger import OpenLedger
from fencelog.broker.policy import Policy

ROLL_RETRY_S = 5.0
"""Pause after a roll that could not begin; the old ledger goes on meanwhile."""


class RollClock:
    """Calls ``on_due`` when a roll may have become due without anything having happened."""

    def __init__(self, policy: Policy, on_due: Callable[[], None]) -> None:
        self._policy = policy
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._ledger: OpenLedger | None = None
        self._wanted: OpenLedger | None = None
        self._not_before_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def begin(self, ledger: OpenLedger) -> None:
        """The log goes on in this ledger."""
        self._ledger = ledger
        self._set_timer()

    def apply_policy(self, policy: Policy) -> None:
        """From now on, for the present ledger too."""
        self._policy = policy
        self._set_timer()
        self._on_due()

    def want(self) -> None:
        """Roll the present ledger although its policy does not say so, unless it is empty."""
        if self._wanted is not self._ledger:
            self._wanted = self._ledger
            self._on_due()

    def postpone(self) -> None:
        """A roll could not begin."""
        self._not_before_s = self._loop.time() + ROLL_RETRY_S
        self._set_timer()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def is_due(self) -> bool:
        ledger = self._ledger
        if ledger is None or self._loop.time() < self._not_before_s:
            return False
        if ledger is self._wanted:
            return ledger.entries > 0
        return self._policy.is_roll_due(
            entries=ledger.entries,
            size=ledger.writer.length,
            age_s=self._loop.time() - ledger.opened_at_s,
        )

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._ledger is None or self._stopped:
            return
        now_s = self._loop.time()
        by_age_s = self._ledger.opened_at_s + self._policy.roll_age_ms / 1000
        when_s = min((s for s in (by_age_s, self._not_before_s) if s > now_s), default=None)
        if when_s is not None:
            self._timer = self._loop.call_at(when_s, self._fire)

    def _fire(self) -> None:
        self._on_due()
        self._set_timer()
