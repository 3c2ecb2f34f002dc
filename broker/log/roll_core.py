"""The decision when the current ledger of a log is to be followed by the next one."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import FencelogError

ROLL_RETRY_S = 5.0
"""Pause after a roll that could not begin; the old ledger continues meanwhile."""


@dataclass(slots=True, eq=False)
class CurrentLedger:
    """A ledger that this instance writes, or has written. Times are on the loop's clock."""

    ledger_id: int
    opened_at_s: float
    last_entry_id: int = -1
    """The last acknowledged entry."""
    size: int = 0
    """Payload bytes up to that entry."""
    failure: FencelogError | None = None
    is_drained: bool = False
    """True when nothing is outstanding in the ledger, and nothing more is sent to it."""


class RollRule:
    """Decides by the policy of the log, and by the requests of retention."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._wanted: int | None = None
        self._not_before_s = 0.0

    def want(self, ledger: CurrentLedger) -> bool:
        """Roll this ledger although the policy does not say so, unless it is empty; return whether
        this is a new request."""
        is_news = self._wanted != ledger.ledger_id
        self._wanted = ledger.ledger_id
        return is_news

    def postpone(self, now_s: float) -> None:
        """Try no roll for a while, since one could not begin."""
        self._not_before_s = now_s + ROLL_RETRY_S

    def is_due(self, ledger: CurrentLedger, now_s: float) -> bool:
        """Return whether the ledger is to be followed by the next one now."""
        if now_s < self._not_before_s:
            return False
        if ledger.ledger_id == self._wanted:
            return ledger.last_entry_id >= 0
        return self.policy.is_roll_due(
            entries=ledger.last_entry_id + 1,
            size=ledger.size,
            age_s=now_s - ledger.opened_at_s,
        )

    def times_of(self, ledger: CurrentLedger) -> tuple[float, ...]:
        """Return the times at which a roll may become due without any event; some may be past."""
        return (ledger.opened_at_s + self.policy.roll_age_ms / 1000, self._not_before_s)
