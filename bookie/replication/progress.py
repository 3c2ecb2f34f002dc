"""The progress of a replication worker: how fast it is, and how long the rest takes. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW_S = 60.0
"""The time over which rates are averaged."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    ledgers: int
    copied_bytes: int


class ReplicationProgress:
    """Counts since the start, sampled over the last WINDOW_S."""

    def __init__(self, now_s: float) -> None:
        self.repaired_ledgers = 0
        self._samples = deque([_Sample(now_s, 0, 0)])

    def sample(self, now_s: float, copied_bytes: int) -> None:
        """Note the state of the counts now."""
        self._samples.append(_Sample(now_s, self.repaired_ledgers, copied_bytes))
        while len(self._samples) > 2 and self._samples[1].at_s <= now_s - WINDOW_S:
            self._samples.popleft()

    @property
    def bytes_per_s(self) -> float:
        """Return the rate of copying."""
        first, last = self._samples[0], self._samples[-1]
        return (last.copied_bytes - first.copied_bytes) / max(last.at_s - first.at_s, 1.0)

    def seconds_left(self, ledgers: int) -> float | None:
        """Return the time that so many ledgers take at the present rate; None: nothing is being
        repaired, so there is no rate."""
        first, last = self._samples[0], self._samples[-1]
        repaired = last.ledgers - first.ledgers
        if not ledgers:
            return 0.0
        return ledgers * (last.at_s - first.at_s) / repaired if repaired else None
