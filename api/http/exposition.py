"""The metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from fencelog.api.http.metrics import ApiMetrics

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


def exposition(counted: ApiMetrics, *others: Collector) -> bytes:
    """Return the metrics of an HTTP service, and ``others``, in Prometheus' text format."""
    registry = CollectorRegistry()
    for collector in (_ApiCollector(counted), *others):
        registry.register(collector)
    return generate_latest(registry)


class _ApiCollector(Collector):
    def __init__(self, counted: ApiMetrics) -> None:
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        counted = self._counted
        for name, text, value in (
            (
                "fencelog_http_append_requests",
                "Append requests answered with 201",
                counted.append_requests,
            ),
            (
                "fencelog_http_appended_messages",
                "Messages in them",
                counted.appended_messages,
            ),
            ("fencelog_http_appended_bytes", "Bytes of their bodies", counted.appended_bytes),
            (
                "fencelog_http_read_requests",
                "Read answers and pieces of streams",
                counted.read_requests,
            ),
            ("fencelog_http_read_messages", "Messages in them", counted.read_messages),
            ("fencelog_http_read_bytes", "Bytes of their bodies", counted.read_bytes),
        ):
            yield CounterMetricFamily(name, text, value=value)
        problems = CounterMetricFamily(
            "fencelog_http_problems", "Requests answered with a problem", labels=["code"]
        )
        for slug, count in counted.problems.items():
            problems.add_metric([slug], count)
        yield problems
        yield GaugeMetricFamily(
            "fencelog_http_streams", "Event streams open", value=counted.streams
        )
        latency = HistogramMetricFamily(
            "fencelog_http_append_seconds", "From request to durable, for requests with success"
        )
        latency.add_metric([], *counted.append_latency.cumulative())
        yield latency
