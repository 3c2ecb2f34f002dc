"""Ranges of acknowledged offsets, against a set of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.dispatch.ack_ranges import AckRanges, ranges_of

RANGE = st.tuples(st.integers(0, 40), st.integers(0, 8))
ASKED = st.lists(st.integers(0, 60), min_size=2, max_size=2)


def test_what_lies_between_two_ranges_is_not_acknowledged() -> None:
    ranges = AckRanges()
    assert (ranges.add(4, 6), ranges.add(2, 3), list(ranges)) == (2, 1, [(2, 3), (4, 6)])
    assert (ranges.add(3, 4), list(ranges)) == (1, [(2, 6)])


@given(st.integers(0, 10), st.lists(RANGE, max_size=30), ASKED)
def test_it_holds_what_was_added(
    start: int, added: list[tuple[int, int]], asked: list[int]
) -> None:
    ranges, model = AckRanges(start), set(range(start))
    for first, count in added:
        new = set(range(first, first + count)) - model
        assert ranges.add(first, first + count) == len(new)
        model |= new
        assert [o for o in range(60) if o in ranges] == sorted(model)
        assert ranges.acked_to == min(set(range(60)) - model)
        assert ranges.acked_above == len(model) - ranges.acked_to
        assert ranges.unacked_below(60) == 60 - len(model)
    flat = [bound for pair in ranges for bound in pair]
    assert flat == sorted(set(flat))
    assert all(first > ranges.acked_to for first, _ in ranges)
    assert len(ranges) == len(list(ranges))
    first, end = sorted(asked)
    unacked = [o for low, high in ranges.unacked(first, end) for o in range(low, high)]
    assert unacked == [o for o in range(first, end) if o not in model]
    assert ranges.next_unacked(first) == min(set(range(first, 99)) - model)


@given(st.lists(st.integers(0, 30)))
def test_offsets_become_ranges(offsets: list[int]) -> None:
    offsets.sort()
    ranges = ranges_of(offsets)
    assert [o for first, end in ranges for o in range(first, end)] == sorted(set(offsets))
    assert all(end < following for (_, end), (following, _) in pairwise(ranges))


def test_what_is_not_acknowledged_between_ranges() -> None:
    ranges = AckRanges(2)
    ranges.add(4, 6)
    ranges.add(8, 9)
    assert list(ranges.unacked(0, 12)) == [(2, 4), (6, 8), (9, 12)]
    assert list(ranges.unacked(5, 7)) == [(6, 7)]
    assert list(ranges.unacked(4, 6)) == []
