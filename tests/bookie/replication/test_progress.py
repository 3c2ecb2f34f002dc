"""Rates over the last minute, and the time that the rest takes."""

from __future__ import annotations

from fencelog.bookie.replication.progress import ReplicationProgress


def test_rates_are_those_of_the_last_minute() -> None:
    progress = ReplicationProgress(0.0)
    assert (progress.bytes_per_s, progress.seconds_left(3), progress.seconds_left(0)) == (
        0.0,
        None,
        0.0,
    )
    progress.repaired_ledgers = 2
    progress.sample(10.0, 1_000)
    assert (progress.bytes_per_s, progress.seconds_left(4)) == (100.0, 20.0)
    for second in range(20, 200, 10):
        progress.sample(float(second), 1_000)
    assert (progress.bytes_per_s, progress.seconds_left(4)) == (0.0, None)


def test_the_first_moment_gives_no_endless_rate() -> None:
    progress = ReplicationProgress(5.0)
    progress.sample(5.0, 100)
    assert progress.bytes_per_s == 100.0
