"""The metrics in Prometheus' text format, and those of HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.metrics.table import Metric, sample, samples, times


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Return metrics in Prometheus' text format. Raises ValueError where two have one name."""
    found = list(metrics)
    names = sorted(metric.name for metric in found)
    if len(set(names)) < len(names):
        raise ValueError(f"metrics of one name: {names}")
    return "".join([metric.text for metric in found]).encode()


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
