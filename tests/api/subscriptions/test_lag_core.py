"""The lag of partitions added up: as far back as all of them know it."""

from __future__ import annotations

import pytest

from fencelog.api.subscriptions.lag_core import NO_LAG, Lag, added_up, lag_of, recent_part
from fencelog.broker.background.samples import Samples
from fencelog.broker.limits import LAG_SAMPLE_MS, LAG_SAMPLES, RECENT_LAG_SAMPLES

LAG_SAMPLE_US = LAG_SAMPLE_MS * 1000


def lag(begin: int, *messages: int | None) -> Lag:
    return Lag(LAG_SAMPLE_MS, begin * LAG_SAMPLE_US, list(messages))


def test_the_time_of_the_first_sample_follows_from_the_newest() -> None:
    samples = Samples(7, 1, LAG_SAMPLES)
    samples.add(9, 3)
    assert lag_of(samples) == lag(7, 1, None, 3)
    assert lag_of(None) == NO_LAG


@pytest.mark.parametrize(
    ("parts", "sum_"),
    [
        ([], NO_LAG),
        ([lag(5, 1, 2)], lag(5, 1, 2)),
        ([lag(5, 1, 2, 3), lag(6, 10, 20)], lag(6, 12, 23)),
        ([lag(5, 1, 2, 3), lag(5, 10, 20)], lag(5, 11, 22)),  # one owner was asked too early
        ([lag(5, 1, None, 3), lag(5, 1, 1, 1)], lag(5, 2, None, 4)),
        ([lag(5, 1, 2), NO_LAG], NO_LAG),
        ([lag(5, 1, 2), lag(7, 1)], NO_LAG),
    ],
)
def test_samples_of_one_time_are_added_up(parts: list[Lag], sum_: Lag) -> None:
    assert added_up(parts) == sum_


def test_the_recent_part_is_that_of_the_last_minutes() -> None:
    hour = lag(100, *range(LAG_SAMPLES))
    begin = LAG_SAMPLES - RECENT_LAG_SAMPLES
    assert recent_part(hour) == lag(100 + begin, *range(begin, LAG_SAMPLES))
    assert recent_part(lag(5, 1, None)) == lag(5, 1, None)
    assert recent_part(NO_LAG) == NO_LAG
