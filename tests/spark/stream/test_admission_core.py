"""Limits of a trigger: their sum holds, shares follow the backlogs, nobody waits for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.spark_connector.stream.admission_core import (
    NO_LIMITS,
    TriggerLimits,
    advanced,
    shared,
)
from fencelog.spark_connector.stream.backlog_core import backlogs
from fencelog.spark_connector.stream.position_core import StreamPosition
from tests.spark.support.logs import segments

T = "default/t"
START = StreamPosition({}, {})


def end_of(limits: TriggerLimits, *logs: tuple[int, int]) -> list[int]:
    """The end of the first micro-batch in each partition of these (messages, bytes)."""
    answers = [segments(log, partition=number) for number, log in enumerate(logs)]
    end = advanced(START, backlogs(START, answers, None), limits)
    return [end.next_offset(T, number) for number in range(len(logs))]


@given(st.integers(1, 10_000), st.lists(st.integers(0, 5_000), max_size=30))
def test_shares_add_up_to_the_limit_and_never_exceed_what_is_wanted(
    limit: int, wanted: list[int]
) -> None:
    shares = shared(limit, wanted)
    assert sum(shares) == min(limit, sum(wanted))
    assert all(0 <= share <= want for share, want in zip(shares, wanted, strict=True))
    if limit >= len(wanted):
        assert all(share for share, want in zip(shares, wanted, strict=True) if want)


@given(st.integers(100, 10_000), st.lists(st.integers(1, 100_000), min_size=2, max_size=20))
def test_shares_are_in_proportion(limit: int, wanted: list[int]) -> None:
    total = sum(wanted)
    if total > limit:
        for share, want in zip(shared(limit, wanted), wanted, strict=True):
            assert abs(share - limit * want / total) <= 2 + len(wanted) * want / total


@given(st.integers(1, 4), st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_every_partition_is_read_to_its_end_in_the_end(limit: int, wanted: list[int]) -> None:
    left = list(wanted)
    for _ in range(-(-sum(wanted) // limit)):
        left = [have - share for have, share in zip(left, shared(limit, left), strict=True)]
    assert left == [0] * len(wanted)


def test_without_limits_everything_is_read() -> None:
    assert end_of(NO_LIMITS, (500, 1), (0, 0), (7, 99)) == [500, 0, 7]


def test_messages_are_limited_in_proportion_to_the_backlog() -> None:
    assert end_of(TriggerLimits(max_offsets=100), (900, 900), (100, 100), (0, 0)) == [90, 10, 0]
    assert end_of(TriggerLimits(max_offsets=2), (5, 5), (9, 9), (7, 7)) == [0, 1, 1]


def test_bytes_are_limited_in_proportion_to_the_backlog() -> None:
    assert end_of(TriggerLimits(max_bytes=1000), (100, 9_000), (10, 1_000)) == [10, 1]
    assert end_of(TriggerLimits(max_bytes=1 << 40), (100, 9_000), (10, 1_000)) == [100, 10]


def test_a_message_larger_than_the_limit_is_read_alone() -> None:
    assert end_of(TriggerLimits(max_bytes=10), (5, 5_000)) == [1]
    assert end_of(TriggerLimits(max_bytes=1), (5, 5_000), (9, 9_999)) == [0, 1]


def test_the_lower_of_two_limits_holds() -> None:
    logs = ((100, 10_000), (100, 10_000))
    assert end_of(TriggerLimits(max_offsets=10, max_bytes=10_000), *logs) == [5, 5]
    assert end_of(TriggerLimits(max_offsets=100, max_bytes=1_000), *logs) == [5, 5]


def test_the_end_keeps_what_is_not_read_now() -> None:
    start = StreamPosition({T: T, "default/u": "u"}, {T: {0: 3, 1: 4}, "default/u": {0: 9}})
    new = segments((2, 2), topic="default/w")
    waiting = backlogs(start, [segments((5, 5)), segments((4, 4), partition=1), new], None)
    assert advanced(start, waiting, NO_LIMITS) == StreamPosition(
        {T: T, "default/u": "u", "default/w": "default/w"},
        {T: {0: 5, 1: 4}, "default/u": {0: 9}, "default/w": {0: 2}},
    )
    assert start.offsets[T] == {0: 3, 1: 4}


@pytest.mark.parametrize(
    ("limits", "messages", "since_ms", "waits"),
    [
        (NO_LIMITS, 0, 0, False),
        (TriggerLimits(min_offsets=10), 9, 0, True),
        (TriggerLimits(min_offsets=10), 10, 0, False),
        (TriggerLimits(min_offsets=10, max_delay_ms=50), 9, 49, True),
        (TriggerLimits(min_offsets=10, max_delay_ms=50), 9, 50, False),
        (TriggerLimits(min_offsets=10), 1, float("inf"), False),
    ],
)
def test_few_messages_wait_for_more_but_not_for_ever(
    limits: TriggerLimits, messages: int, since_ms: float, waits: bool
) -> None:
    waiting = backlogs(START, [segments((messages, messages))] if messages else [], None)
    assert limits.must_wait(waiting, since_last_ms=since_ms) is waits
