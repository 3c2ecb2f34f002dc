"""The cost of auditing grows with the number of ledgers, in time alone."""

from __future__ import annotations

import pytest

from tests.bench.audit_scale import in_process, too_much


@pytest.mark.thorough
def test_an_audit_stays_within_time_and_memory() -> None:
    small, large = in_process(500), in_process(4_000)
    assert too_much(large) == []
    assert large["peak_rss_mb"] - small["peak_rss_mb"] < 10


def test_too_much_is_named() -> None:
    measured = {"ledgers": 1000, "cluster_cpu_s": 2.0, "bookies_cpu_s": 2.0, "peak_rss_mb": 301}
    assert too_much(measured) == ["1000 ledgers took 4.0 s of a core", "1000 ledgers took 301 MB"]
    measured = {"ledgers": 1000, "cluster_cpu_s": 2.9, "cluster_wall_s": 9.0, "peak_rss_mb": 300}
    assert too_much(measured) == []
