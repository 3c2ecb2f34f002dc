"""Figures about the HTTP service since its start, as plain numbers."""

from __future__ import annotations

from fencelog.ledgers.metrics import Histogram

METRICS = "/metrics"
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


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

    def appended(self, messages: int, body_bytes: int, microseconds: int) -> None:
        """Count one append request that was answered here with 201 (not by the owner it was
        forwarded to)."""
        self.append_requests += 1
        self.appended_messages += messages
        self.appended_bytes += body_bytes
        self.append_latency.observe_us(microseconds)

    def read(self, messages: int, body_bytes: int) -> None:
        """Count one read answer, or one piece of a stream, that was sent."""
        self.read_requests += 1
        self.read_messages += messages
        self.read_bytes += body_bytes

    def problem(self, slug: str) -> None:
        """Count one request that was answered with a problem."""
        self.problems[slug] = self.problems.get(slug, 0) + 1
