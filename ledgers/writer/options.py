"""What may be chosen about how a ledger is written; nothing of it changes what is safe."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.ledgers.limits import EXPLICIT_LAC_INTERVAL_MS


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The defaults are right for most."""

    explicit_lac_interval_ms: int = EXPLICIT_LAC_INTERVAL_MS
    """How long nothing is sent before the bookies are told the LAC by itself; 0: never."""

    delay_ensemble_change: bool = False
    """Keep a member that failed as long as every entry can still reach Qa without it, unless it is
    read-only or has lost what it stored. Spares a fragment where bookies are away for a moment, as
    in a rolling restart; meanwhile there are fewer than Qw copies."""
