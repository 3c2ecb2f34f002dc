"""Metrics of the HTTP service for Prometheus.

The hot path adds plain integers; ``exposition`` builds prometheus-client's objects from them on
request. A counter with labels costs more than a microsecond an increment, which is a tenth of an
append.
"""

from __future__ import annotations

from bisect import bisect_left

_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Histogram:
    """Latencies in seconds, counted by upper bound."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return the number of latencies up to each bound, and the sum of all."""
        total = 0
        buckets = []
        for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets, self._sum_s


class ApiMetrics:
    """The metrics of one HTTP service since its start."""

    def __init__(self) -> None:
        self.append_latency = Histogram()
        self.append_requests = 0
        self.appended_messages = 0
        self.appended_bytes = 0
        self.read_requests = 0
        self.read_messages = 0
        self.read_bytes = 0
        self.streams = 0
        self.problems: dict[str, int] = {}

    def appended(self, messages: int, body_bytes: int, seconds: float) -> None:
        """Count one append request that was answered here with 201 (not by the owner it was
        forwarded to)."""
        self.append_requests += 1
        self.appended_messages += messages
        self.appended_bytes += body_bytes
        self.append_latency.observe(seconds)

    def read(self, messages: int, body_bytes: int) -> None:
        """Count one read answer, or one piece of a stream, that was sent."""
        self.read_requests += 1
        self.read_messages += messages
        self.read_bytes += body_bytes

    def problem(self, slug: str) -> None:
        """Count one request that was answered with a problem."""
        self.problems[slug] = self.problems.get(slug, 0) + 1
