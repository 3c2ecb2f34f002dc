"""Settings of garbage collection and compaction."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class GarbageConfig:
    """The intervals, thresholds and rates of garbage collection. Raises FencelogError(BAD_REQUEST)
    for invalid values."""

    interval_ms: int = 15 * _MINUTE_MS
    """Time between two checks of the metadata for ledgers that were deleted."""

    grace_ms: int = _HOUR_MS
    """Time for which a ledger has to be gone from the metadata, or other bookies to hold it, before
    it is removed here: a metadata store that is restored from a backup of that time names only what
    bookies still have. It starts again with the process."""

    grace_below: float = 0.8
    """Deleted ledgers have a grace time only while less than this share of the fullest disk is in
    use: it must not become full of what nobody needs."""

    minor_interval_ms: int = _HOUR_MS
    minor_below: float = 0.2
    """A minor compaction takes entry logs of which less than this share is live: this frees most of
    the space for little writing."""

    major_interval_ms: int = 24 * _HOUR_MS
    major_below: float = 0.91
    """A major compaction takes enough entry logs to bring the space back to within a tenth of the
    live bytes: 1 / 0.91 < 1.1."""

    full_interval_ms: int = 30_000
    """While a disk is full, a pass begins at once and after each ``full_interval_ms``, each with a
    major compaction: only so gives what was deleted its space back, whatever it was mixed with."""

    compaction_bytes_per_s: int = 64 * MIB
    """Highest rate of copying, which leaves disk bandwidth for readers and writers."""

    def __post_init__(self) -> None:
        positive = (
            self.interval_ms,
            self.full_interval_ms,
            self.minor_interval_ms,
            self.major_interval_ms,
            self.compaction_bytes_per_s,
        )
        if min(positive) < 1 or self.grace_ms < 0:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"intervals and rates must be positive: {self}"
            )
        shares = (0, self.minor_below, self.major_below, 1)
        if list(shares) != sorted(shares) or not 0 <= self.grace_below <= 1:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"thresholds must be shares, minor below major: {self}"
            )
