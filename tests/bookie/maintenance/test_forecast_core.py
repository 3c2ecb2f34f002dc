"""The forecast of a full disk."""

from __future__ import annotations

import pytest

from fencelog.bookie.maintenance.forecast_core import (
    FARTHEST_S,
    MAX_SAMPLES,
    MIN_SPAN_S,
    SAMPLE_INTERVAL_S,
    DiskForecast,
)

GIB = 1024**3


def forecast_of(*left: float) -> DiskForecast:
    """A forecast from one sample each minute."""
    forecast = DiskForecast()
    for minute, left_bytes in enumerate(left):
        forecast.note(minute * SAMPLE_INTERVAL_S, round(left_bytes))
    return forecast


def test_a_disk_that_shrinks_evenly_is_foretold_exactly() -> None:
    left = [100 * GIB - minute * GIB for minute in range(31)]
    assert forecast_of(*left).full_in_s() == 70 * 60


def test_the_steps_of_a_collection_do_not_hide_the_way() -> None:
    """It gives back what was written in each ten minutes, but for one part in ten."""
    left = [100 * GIB - minute // 10 * GIB - minute % 10 * GIB for minute in range(181)]
    found = forecast_of(*left).full_in_s()
    assert found is not None
    assert found == pytest.approx(left[-1] / (GIB / 10) * 60, rel=0.2)


@pytest.mark.parametrize(
    "left",
    [
        [],
        [5.0 * GIB] * 30,
        [GIB * (5.0 + minute) for minute in range(30)],
        [GIB * (5.0 - minute / 10) for minute in range(int(MIN_SPAN_S / SAMPLE_INTERVAL_S))],
        [FARTHEST_S * 1000 - minute for minute in range(30)],
    ],
    ids=["none", "even", "growing", "too short", "too far"],
)
def test_nothing_is_foretold(left: list[float]) -> None:
    assert forecast_of(*left).full_in_s() is None


def test_a_full_disk_is_full_now() -> None:
    assert forecast_of(*(GIB * (5 - minute) for minute in range(30))).full_in_s() == 0


def test_samples_are_a_minute_apart_and_bounded() -> None:
    often = DiskForecast()
    for second in range(1801):
        often.note(float(second), 100 * GIB - second * GIB // 60)
    assert often.full_in_s() == pytest.approx(70 * 60, abs=1)
    old = [200.0 * GIB - minute * GIB / 10 for minute in range(100)]
    new = [150.0 * GIB for _ in range(MAX_SAMPLES)]
    assert forecast_of(*old, *new).full_in_s() is None
