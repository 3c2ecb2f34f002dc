"""The machine's limits are measured for real, if only for a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.api.bench.harness.limits import measure_limits, percentile


def test_limits_are_measured_and_nothing_is_left_behind(tmp_path: Path) -> None:
    limits = measure_limits(tmp_path, 0.05)

    assert limits.fdatasync_per_s > 1
    assert 0 < limits.fdatasync_p50_ms < 1000
    assert limits.loopback_mb_per_s > 1
    assert limits.sequential_sync_mb_per_s > 0.1
    assert limits.new_page_mb_per_s > 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, 0.0),
        ([7.0], 0.99, 7.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([float(n) for n in range(100)], 0.99, 99.0),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected
