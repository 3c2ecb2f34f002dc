"""Figures about a process since its start, as plain numbers: what counts them adds an integer.

An object with labels for each count would cost more than a microsecond an increment, which is a
tenth of an append. The names and units under which they are exposed are a matter of who exposes
them.
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)
"""The upper bounds of counted times: from what memory takes to what a caller gives up after."""

_US_PER_S = 1e6


class Histogram:
    """Times in seconds, counted by upper bound."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def observe_us(self, microseconds: int) -> None:
        """Count a difference of two times of a wall clock, which may have been set back between
        them: then it counts as nothing. ``observe``, without a call: four times for each append."""
        seconds = microseconds / _US_PER_S if microseconds > 0 else 0.0
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return the number of times up to each bound, and the sum of all."""
        total = 0
        buckets = []
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets, self._sum_s


class LedgerCounts:
    """The figures of one ledger client: of all its writers, readers and recoveries."""

    __slots__ = (
        "created",
        "ensemble_changes",
        "ensemble_changes_refused",
        "fenced_writers",
        "recoveries",
        "recoveries_failed",
        "speculative_reads",
    )

    def __init__(self) -> None:
        self.created = 0
        self.ensemble_changes = 0
        self.ensemble_changes_refused = 0
        """Attempts that found no replacement, or no metadata store; the writer tries again."""
        self.fenced_writers = 0
        self.recoveries = 0
        self.recoveries_failed = 0
        self.speculative_reads = 0
        """Requests to another bookie while the first one had not answered yet."""
