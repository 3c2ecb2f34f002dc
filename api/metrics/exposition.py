"""The metrics in Prometheus' text format, and those of HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.metrics.table import sample, samples, times


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Return metrics in Prometheus' text format. Raises ValueError where two have one name."""
    registry = CollectorRegistry()
    registry.register(_Collected(list(metrics)))
    return generate_latest(registry)


def http_metrics(counted: ApiMetrics) -> Iterator[Metric]:
    """Yield the metrics of the HTTP service of this process."""
    yield sample("fencelog_http_append_requests", counted.append_requests)
    yield sample("fencelog_http_appended_messages", counted.appended_messages)
    yield sample("fencelog_http_appended_bytes", counted.appended_bytes)
    yield sample("fencelog_http_read_requests", counted.read_requests)
    yield sample("fencelog_http_read_messages", counted.read_messages)
    yield sample("fencelog_http_read_bytes", counted.read_bytes)
    problems = counted.problems.items()
    yield samples("fencelog_http_problems", (((slug,), count) for slug, count in problems))
    yield sample("fencelog_http_streams", counted.streams)
    yield times("fencelog_http_append_seconds", [((), counted.append_latency)])


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        names = [metric.name for metric in metrics]
        if len(set(names)) < len(names):
            raise ValueError(f"metrics of one name: {sorted(names)}")
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics
