"""The limit for lines of one message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.processes.logs.rate_limit_core import LeftOut, RateLimit


def limit(**changes: int) -> RateLimit[str]:
    return RateLimit(**{"lines": 2, "interval_s": 10, "max_messages": 3, **changes})


def test_the_first_lines_of_an_interval_are_written_and_the_rest_is_counted() -> None:
    limited = limit()
    assert [limited.admit("a", 0.0 + i) for i in range(5)] == [True, True, False, False, False]
    assert limited.end_intervals(9.9) == []
    assert limited.end_intervals(10.0) == [LeftOut("a", 3)]
    assert limited.end_intervals(10.0) == []
    assert limited.admit("a", 10.0)


def test_messages_have_intervals_of_their_own() -> None:
    limited = limit(lines=1)
    assert limited.admit("a", 0)
    assert limited.admit("b", 5)
    assert not limited.admit("a", 6)
    assert not limited.admit("b", 6)
    assert limited.end_intervals(10) == [LeftOut("a", 1)]
    assert not limited.admit("b", 14)
    assert limited.end_intervals(15) == [LeftOut("b", 2)]


def test_an_interval_in_which_nothing_was_left_out_ends_in_silence() -> None:
    limited = limit()
    assert limited.admit("a", 0)
    assert limited.end_intervals(100) == []


def test_of_too_many_messages_the_oldest_is_forgotten() -> None:
    limited = limit(lines=1)
    for name in "abcd":
        assert limited.admit(name, 0)
    assert limited.admit("a", 1)
    assert not limited.admit("d", 1)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 7)), max_size=60))
def test_every_line_is_written_or_counted(lines: list[tuple[str, int]]) -> None:
    limited = limit()
    now = written = left_out = 0
    for message, pause in lines:
        now += pause
        left_out += sum(each.count for each in limited.end_intervals(now))
        written += limited.admit(message, now)
    left_out += sum(each.count for each in limited.end_intervals(now + 10))
    assert written + left_out == len(lines)
