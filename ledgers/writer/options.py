"""The options for writing a ledger; none of them affects safety."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.ledgers.limits import EXPLICIT_LAC_INTERVAL_MS


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The options of a writer. The defaults suit most ledgers."""

    explicit_lac_interval_ms: int = EXPLICIT_LAC_INTERVAL_MS
    """The idle time after which the LAC is sent to the bookies by itself; 0: never."""

    delay_ensemble_change: bool = False
    """Keep a member that failed as long as every entry can still reach Qa without it, unless it is
    read-only or has lost what it stored. This saves a fragment where bookies are away for a moment,
    as in a rolling restart; meanwhile there are fewer than Qw copies."""
