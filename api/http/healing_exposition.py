"""The metrics of self-healing, from what its processes publish: every broker shows the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class HealingCollector(Collector):
    """``status`` and ``checks``: as ``/v1/admin/autorecovery`` and ``/v1/admin/checks`` answer."""

    def __init__(self, status: Mapping[str, Any], checks: Mapping[str, Any], now_us: int) -> None:
        self._status = status
        self._checks = checks["results"]
        self._now_us = now_us

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "fencelog_autorecovery_enabled",
            "1: self-healing is on",
            value=float(self._status["is_enabled"]),
        )
        yield from self._cluster()
        yield from self._recent_check()
        yield from self._workers()
        yield from self._results()

    def _cluster(self) -> Iterator[Metric]:
        auditor = GaugeMetricFamily("fencelog_auditor", "1: this process is it", labels=["process"])
        if self._status["auditor"] is not None:
            auditor.add_metric([self._status["auditor"]["process_id"]], 1)
        yield auditor
        for process in self._status["processes"]:
            cluster = process.get("cluster")
            if cluster is None:
                continue
            yield GaugeMetricFamily(
                "fencelog_underreplicated_ledgers",
                "Ledgers that are marked as lacking copies",
                value=cluster["underreplicated_ledgers"],
            )
            oldest_us = cluster["oldest_since_us"]
            age_us = 0 if oldest_us is None else max(0, self._now_us - oldest_us)
            yield GaugeMetricFamily(
                "fencelog_underreplicated_oldest_seconds",
                "The time since when the oldest of them is marked",
                value=age_us / 1_000_000,
            )
            return

    def _recent_check(self) -> Iterator[Metric]:
        """Yield what the auditor knows of ledgers that it has not found whole."""
        gauges = (
            ("missing_copies_ledgers", "Lacked copies when last looked at", "missing_copies"),
            ("waiting_ledgers", "Were not looked at yet", "ledgers_to_look_at"),
            ("open_ledgers", "Are open, and looked at when they change", "open_ledgers"),
            ("behind_seconds", "The time since when the next look has been due", "behind_s"),
        )
        for process in self._status["processes"]:
            recent = process.get("recent_check")
            if recent is None:
                continue
            for name, text, member in gauges:
                yield GaugeMetricFamily(f"fencelog_recent_check_{name}", text, value=recent[member])
            for name, text in (("looks", "Looks at a ledger"), ("marked", "Marks of a ledger")):
                yield CounterMetricFamily(f"fencelog_recent_check_{name}", text, value=recent[name])
            return

    def _workers(self) -> Iterator[Metric]:
        counters = (
            ("fencelog_rereplicated_ledgers", "Ledgers repaired", "repaired_ledgers"),
            ("fencelog_rereplicated_bytes", "Bytes copied to other bookies", "copied_bytes"),
        )
        gauges = (
            ("fencelog_rereplication_bytes_per_second", "Over the last minute", "bytes_per_s"),
            ("fencelog_rereplication_waiting_ledgers", "Cannot be repaired now", "ledgers_waiting"),
            ("fencelog_rereplication_lost_ledgers", "Entries without a copy", "ledgers_lost"),
        )
        for name, text, member in counters:
            counter = CounterMetricFamily(name, text, labels=["process"])
            for process in self._status["processes"]:
                counter.add_metric([process["process_id"]], process["worker"][member])
            yield counter
        for name, text, member in gauges:
            gauge = GaugeMetricFamily(name, text, labels=["process"])
            for process in self._status["processes"]:
                gauge.add_metric([process["process_id"]], process["worker"][member])
            yield gauge

    def _results(self) -> Iterator[Metric]:
        finished = GaugeMetricFamily(
            "fencelog_check_finished_timestamp_seconds", "When it was last made", labels=["check"]
        )
        for name, result in self._checks.items():
            finished.add_metric([name], result["finished_us"] / 1_000_000)
        yield finished
        violations = GaugeMetricFamily(
            "fencelog_check_violations",
            "Violations that the last cluster check found",
            labels=["category"],
        )
        for kind, count in self._checks.get("cluster", {}).get("counts", {}).items():
            violations.add_metric([kind], count)
        yield violations
