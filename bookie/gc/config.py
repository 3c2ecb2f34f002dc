"""Settings of garbage collection and compaction."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class GarbageConfig:
    """When what is removed, and how fast. Raises FencelogError(BAD_REQUEST) for what makes no
    sense."""

    interval_ms: int = 15 * _MINUTE_MS
    """Between two looks at the metadata for ledgers that were deleted."""

    grace_ms: int = _HOUR_MS
    """How long others have to hold a ledger before it is removed here. It begins anew with the
    process."""

    minor_interval_ms: int = _HOUR_MS
    minor_below: float = 0.2
    """A minor compaction takes entry logs of which less than this share is live: most of the
    space for little writing."""

    major_interval_ms: int = 24 * _HOUR_MS
    major_below: float = 0.91
    """A major compaction takes what it needs to bring the space back to within a tenth of the live
    bytes: 1 / 0.91 < 1.1."""

    compaction_bytes_per_s: int = 64 * MIB
    """At most: the disks have readers and writers to serve."""

    def __post_init__(self) -> None:
        positive = (
            self.interval_ms,
            self.minor_interval_ms,
            self.major_interval_ms,
            self.compaction_bytes_per_s,
        )
        if min(positive) < 1 or self.grace_ms < 0:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"intervals and rates must be positive: {self}"
            )
        if not 0 <= self.minor_below <= self.major_below <= 1:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"thresholds must be shares, minor below major: {self}"
            )
