"""The histogram against the exact percentiles of the same latencies."""

from __future__ import annotations

import random  # noqa: TID251 - the seed is fixed

import pytest

from fencelog.api.bench.harness.histogram import LatencyHistogram


def of(latencies_us: list[int]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for latency_us in latencies_us:
        histogram.record(latency_us / 1e6)
    return histogram


@pytest.mark.parametrize("share", [0.0001, 0.5, 0.99, 0.999, 1.0])
def test_a_percentile_is_at_most_a_bucket_above_the_exact_one(share: float) -> None:
    dice = random.Random(13)
    latencies_us = sorted(round(dice.lognormvariate(8, 2)) for _ in range(20_000))
    exact_ms = latencies_us[max(0, round(len(latencies_us) * share) - 1)] / 1000
    assert exact_ms <= of(latencies_us).percentile_ms(share) <= exact_ms * (1 + 1 / 64)


@pytest.mark.parametrize("latency_us", [0, 1, 63, 64, 127, 128, 129, 255, 256, 10**6, 2**40 + 1])
def test_the_largest_latency_is_exact(latency_us: int) -> None:
    histogram = of([0, latency_us])
    assert histogram.percentile_ms(1.0) == latency_us / 1000
    assert histogram.max_us == latency_us


def test_buckets_join_without_a_gap_or_an_overlap() -> None:
    """Each value is in a bucket that ends at it or above it, and buckets grow with values."""
    ends_ms = [of([value, 10**9]).percentile_ms(0.5) for value in range(5000)]
    assert ends_ms == sorted(ends_ms)
    assert all(end_ms >= value / 1000 for value, end_ms in enumerate(ends_ms))
    assert len(set(ends_ms[:130])) == 129  # 128 and 129 share the first wider bucket


def test_histograms_add_up() -> None:
    first, second = of([10] * 98), of([2000, 5000])
    first.add(second)
    assert first.count == 100
    summary = first.summary()
    assert summary["p50_ms"] == 0.01
    assert 2.0 <= summary["p99_ms"] <= 2.04
    assert summary["max_ms"] == summary["p99_9_ms"] == 5.0


def test_no_latency_has_no_percentile() -> None:
    assert LatencyHistogram().summary() == dict.fromkeys(
        ("p50_ms", "p99_ms", "p99_9_ms", "max_ms"), 0.0
    )


def test_a_clock_that_goes_back_is_no_latency_below_zero() -> None:
    assert of([-5]).percentile_ms(1.0) == 0.0
