"""Histograms, and what a ledger client counts."""

from __future__ import annotations

from fencelog.ledgers.metrics import BOUNDS_S, Histogram


def test_a_time_counts_for_every_bound_that_it_is_not_above() -> None:
    times = Histogram()
    for seconds in (0.0001, 0.0003, 99.0):
        times.observe(seconds)
    buckets, sum_s = times.cumulative()
    assert buckets[:3] == [("0.0001", 1.0), ("0.0002", 1.0), ("0.0005", 2.0)]
    assert buckets[-2:] == [("5.0", 2.0), ("+Inf", 3.0)]
    assert sum_s == 0.0001 + 0.0003 + 99.0
    assert times.count == 3


def test_the_bounds_ascend() -> None:
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))


def test_a_clock_that_was_set_back_counts_as_no_time() -> None:
    times = Histogram()
    times.observe_us(-5_000_000)
    times.observe_us(2_000)
    buckets, sum_s = times.cumulative()
    assert buckets[0] == ("0.0001", 1.0)
    assert sum_s == 0.002
