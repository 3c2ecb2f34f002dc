"""The check that is due: the most overdue one, and none before its time."""

from __future__ import annotations

from fencelog.bookie.auditor.schedule_core import CheckName, next_check

BOOKIES, LEDGERS, CLUSTER = CheckName.BOOKIES, CheckName.LEDGERS, CheckName.CLUSTER
EVERY = {BOOKIES: 10, LEDGERS: 100, CLUSTER: 0}
"""Intervals in ms; times below in µs."""


def test_first_checks_wait_for_the_beginning() -> None:
    assert next_check(EVERY, {}, began_us=5_000, now_us=1_000) == (None, 4_000)
    assert next_check(EVERY, {}, began_us=5_000, now_us=5_000) == (BOOKIES, 0)


def test_the_most_overdue_check_comes_first() -> None:
    finished = {BOOKIES: 0, LEDGERS: -200_000}
    assert next_check(EVERY, finished, began_us=-500_000, now_us=20_000) == (LEDGERS, 0)
    finished = {BOOKIES: 15_000, LEDGERS: 0}
    assert next_check(EVERY, finished, began_us=0, now_us=20_000) == (None, 5_000)


def test_an_interval_of_zero_is_never() -> None:
    assert next_check({CLUSTER: 0}, {}, began_us=0, now_us=1)[0] is None


def test_a_check_of_the_future_counts_as_none() -> None:
    assert next_check({BOOKIES: 10}, {BOOKIES: 9_000}, began_us=0, now_us=1_000) == (BOOKIES, 0)
