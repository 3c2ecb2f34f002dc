"""The result of a check, and its progress."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fencelog.bookie.auditor.check_core import Violation, ViolationKind
from fencelog.bookie.auditor.limits import MAX_REPORTED_VIOLATIONS


class Unverified(Enum):
    """The reasons why it is not known whether a ledger is whole. None of them is a violation."""

    IN_LIMBO = "in_limbo"
    """A bookie may have lost copies, and is about to find out."""
    UNAVAILABLE = "unavailable"
    """A bookie did not answer."""
    CHANGING = "changing"
    """The metadata changed each time that it was compared."""


@dataclass(slots=True)
class CheckReport:
    """The result of a check. ``ledgers``: all that existed; each of them was ``checked``, or is
    ``not_closed``, ``marked`` as under-replicated, or ``deleted`` meanwhile. ``counts`` are of all
    violations, ``violations`` the first of them."""

    started_us: int
    duration_s: float = 0.0
    ledgers: int = 0
    checked: int = 0
    not_closed: int = 0
    marked: int = 0
    deleted: int = 0
    unverified: Counter[Unverified] = field(default_factory=Counter)
    unknown_entries: int = 0
    """The entries that may or may not be on bookies in limbo."""
    counts: Counter[ViolationKind] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def add(self, violation: Violation) -> None:
        self.counts[violation.kind] += 1
        if len(self.violations) < MAX_REPORTED_VIOLATIONS:
            self.violations.append(violation)

    @property
    def is_clean(self) -> bool:
        """Tell whether no violation was found."""
        return not self.counts

    def summary(self) -> dict[str, Any]:
        """Return everything but the violations, as JSON-compatible values."""
        return {
            "started_us": self.started_us,
            "duration_s": round(self.duration_s, 3),
            "ledgers": self.ledgers,
            "checked": self.checked,
            "not_closed": self.not_closed,
            "marked": self.marked,
            "deleted": self.deleted,
            "unverified": {why.value: self.unverified[why] for why in Unverified},
            "unknown_entries": self.unknown_entries,
            "counts": {kind.value: self.counts[kind] for kind in ViolationKind},
            "violation_count": self.counts.total(),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values."""
        return {**self.summary(), "violations": [v.to_json() for v in self.violations]}


@dataclass(slots=True)
class CheckProgress:
    """The progress of a pass over all ledgers. ``rate`` is in ledgers per second."""

    phase: str = "starting"
    done: int = 0
    total: int = 0
    rate: float = 0.0
    _began: float = 0.0

    def begin(self, phase: str, total: int, now: float) -> None:
        self.phase, self.done, self.total, self.rate, self._began = phase, 0, total, 0.0, now

    def did(self, now: float) -> None:
        self.done += 1
        self.rate = self.done / max(now - self._began, 1e-9)

    def to_json(self) -> dict[str, Any]:
        left = self.total - self.done
        return {
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "ledgers_per_s": round(self.rate, 1),
            "seconds_left": round(left / self.rate, 1) if self.rate else None,
        }
