"""The metrics of self-healing, from what its processes publish: every broker shows the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fencelog.api.metrics.table import Metric, sample, samples
from fencelog.bookie.auditor.audit_store import completed_us

_US_PER_S = 1e6

_OF_RECENT_CHECK = {
    "missing_copies_ledgers": "missing_copies",
    "waiting_ledgers": "ledgers_to_look_at",
    "open_ledgers": "open_ledgers",
    "behind_seconds": "behind_s",
    "looks": "looks",
    "marked": "marked",
}
"""The member of the auditor's status that is each of these metrics."""

_OF_BALANCE = {"distance_ratio": "distance_share", "marked_ledgers": "marked"}
"""The member of the auditor's status of balancing that is each of these metrics."""

_OF_WORKERS = {
    "fencelog_rereplicated_ledgers": "repaired_ledgers",
    "fencelog_rereplicated_bytes": "copied_bytes",
    "fencelog_rereplication_bytes_per_second": "bytes_per_s",
    "fencelog_rereplication_waiting_ledgers": "ledgers_waiting",
    "fencelog_rereplication_lost_ledgers": "ledgers_lost",
    "fencelog_balance_moved_fragments": "moved_fragments",
    "fencelog_balance_moved_bytes": "moved_bytes",
    "fencelog_balance_dropped_moves": "dropped_moves",
}
"""The member of a worker's status that is each of these figures."""


def healing_metrics(
    status: Mapping[str, Any], checks: Mapping[str, Any], *, now_us: int
) -> Iterator[Metric]:
    """Yield the metrics. ``status`` and ``checks``: as ``/v1/admin/autorecovery`` and
    ``/v1/admin/checks`` answer."""
    yield sample("fencelog_autorecovery_enabled", float(status["is_enabled"]))
    auditor = status["auditor"]
    offices = [] if auditor is None else [((auditor["process_id"],), 1)]
    yield samples("fencelog_auditor", offices)
    yield from _cluster(status["processes"], now_us)
    yield from _recent_check(status["processes"])
    yield from _balance(status["processes"])
    for name, member in _OF_WORKERS.items():
        processes = status["processes"]
        yield samples(name, (((p["process_id"],), p["worker"][member]) for p in processes))
    yield from _results(checks["results"])


def _cluster(processes: list[dict[str, Any]], now_us: int) -> Iterator[Metric]:
    """Yield what the auditor says about the whole cluster; nothing while nobody does."""
    for cluster in (process["cluster"] for process in processes if process.get("cluster")):
        yield sample("fencelog_underreplicated_ledgers", cluster["underreplicated_ledgers"])
        oldest_us = cluster["oldest_since_us"]
        age_us = 0 if oldest_us is None else max(0, now_us - oldest_us)
        yield sample("fencelog_underreplicated_oldest_seconds", age_us / _US_PER_S)
        yield sample("fencelog_balance_ledgers_to_move", cluster["ledgers_to_move"])
        return


def _recent_check(processes: list[dict[str, Any]]) -> Iterator[Metric]:
    """Yield what the auditor knows of ledgers that it has not found whole."""
    for recent in (process["recent_check"] for process in processes if process.get("recent_check")):
        for name, member in _OF_RECENT_CHECK.items():
            yield sample(f"fencelog_recent_check_{name}", recent[member])
        return


def _balance(processes: list[dict[str, Any]]) -> Iterator[Metric]:
    """Yield what the auditor knows of the balance, as far as it is on."""
    for balance in (process["balance"] for process in processes if process.get("balance")):
        for name, member in _OF_BALANCE.items():
            if balance[member] is not None:
                yield sample(f"fencelog_balance_{name}", balance[member])
        stored = (((bookie,), size) for bookie, size in balance["ledger_bytes"].items())
        yield samples("fencelog_balance_ledger_bytes", stored)
        return


def _results(results: Mapping[str, Any]) -> Iterator[Metric]:
    ends = {name: completed_us(result) for name, result in results.items()}
    finished = [
        ((name,), end_us / _US_PER_S) for name, end_us in ends.items() if end_us is not None
    ]
    yield samples("fencelog_check_finished_timestamp_seconds", finished)
    counts = results.get("cluster", {}).get("counts", {})
    yield samples("fencelog_check_violations", (((kind,), n) for kind, n in counts.items()))
