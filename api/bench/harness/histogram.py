"""A histogram of latencies with buckets of one relative width, as HDR histograms have them.

Values are whole microseconds. Up to 127 µs each has a bucket of its own; above, every power of two
is divided into 64 buckets, so a percentile is at most 1.6 % above the true one, and a histogram of
minutes takes no more memory than one of a second.
"""

from __future__ import annotations

from collections import Counter
from math import ceil

_BUCKETS = 64
"""The buckets of each power of two."""


class LatencyHistogram:
    """The latencies of a time. ``max_us`` is exact."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.max_us = 0

    def record(self, latency_s: float) -> None:
        latency_us = max(0, round(latency_s * 1e6))
        self._counts[_bucket_of(latency_us)] += 1
        self.count += 1
        self.max_us = max(self.max_us, latency_us)

    def add(self, other: LatencyHistogram) -> None:
        """Add the latencies of another time."""
        self._counts.update(other._counts)
        self.count += other.count
        self.max_us = max(self.max_us, other.max_us)

    def percentile_ms(self, share: float) -> float:
        """Return the latency that this share (0..1) of all do not exceed; 0.0 of none."""
        wanted, seen = ceil(self.count * share), 0
        for bucket, count in sorted(self._counts.items()):
            seen += count
            if seen >= wanted:
                return min(_last_of(bucket), self.max_us) / 1e3
        return 0.0

    def summary(self) -> dict[str, float]:
        """Return the metrics of a latency, in milliseconds."""
        return {
            "p50_ms": self.percentile_ms(0.5),
            "p99_ms": self.percentile_ms(0.99),
            "p99_9_ms": self.percentile_ms(0.999),
            "max_ms": self.max_us / 1e3,
        }


def _bucket_of(value: int) -> int:
    shift = max(0, value.bit_length() - _BUCKETS.bit_length())
    return _BUCKETS * shift + (value >> shift)


def _last_of(bucket: int) -> int:
    """Return the largest value of a bucket."""
    shift = max(0, bucket // _BUCKETS - 1)
    return ((bucket - _BUCKETS * shift + 1) << shift) - 1
