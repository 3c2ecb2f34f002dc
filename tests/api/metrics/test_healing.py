"""The metrics of self-healing."""

from __future__ import annotations

from typing import Any

from fencelog.api.metrics.healing import healing_metrics

STATUS: dict[str, Any] = {"is_enabled": True, "auditor": None, "processes": []}


def test_only_checks_that_were_made_to_their_end_move_their_time() -> None:
    results = {
        "bookies": {"finished_us": 1_500_000},
        "cluster": {"finished_us": 9_000_000, "error": "why", "completed_us": 2_000_000},
        "ledgers": {"finished_us": 9_000_000, "error": "why"},
        "placement": {"finished_us": 9_000_000, "skipped": "off", "completed_us": 3_000_000},
    }
    texts = {
        metric.name: metric.text
        for metric in healing_metrics(STATUS, {"results": results}, now_us=10_000_000)
    }
    name = "fencelog_check_finished_timestamp_seconds"
    shown = [line for line in texts[name].splitlines() if not line.startswith("#")]
    assert shown == [
        f'{name}{{check="bookies"}} 1.5',
        f'{name}{{check="cluster"}} 2.0',
        f'{name}{{check="placement"}} 3.0',
    ]
