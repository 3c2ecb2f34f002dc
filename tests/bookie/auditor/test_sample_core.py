"""The entries that are read: a share of them, evenly spaced, always the first and the last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.auditor.sample_core import sampled


@st.composite
def range_lists(draw: st.DrawFn) -> list[tuple[int, int]]:
    ranges, at = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 6))):
        size = draw(st.integers(1, 30))
        ranges.append((at, at + size - 1))
        at += size + draw(st.integers(1, 9))
    return ranges


@given(range_lists(), st.floats(0, 1.5), st.floats(0, 1, exclude_max=True))
def test_samples_are_entries_of_the_ranges_in_order(
    ranges: list[tuple[int, int]], share: float, start: float
) -> None:
    entries = [n for low, high in ranges for n in range(low, high + 1)]
    found = [
        n for low, high in sampled(ranges, share=share, start=start) for n in range(low, high + 1)
    ]
    assert found == sorted(set(found))
    assert set(found) <= set(entries)
    assert found[:1] == entries[:1]
    assert found[-1:] == entries[-1:]
    assert abs(len(found) - min(share, 1) * len(entries)) <= 3


@given(range_lists(), st.floats(0, 1, exclude_max=True))
def test_a_share_of_one_is_everything(ranges: list[tuple[int, int]], start: float) -> None:
    assert list(sampled(ranges, share=1.0, start=start)) == ranges


def test_one_entry_is_read_once() -> None:
    assert list(sampled([(4, 4)], share=0.0, start=0.0)) == [(4, 4)]
    assert list(sampled([(4, 4)], share=0.5, start=0.5)) == [(4, 4)]


def test_another_start_reads_other_entries() -> None:
    found = {
        entry for tenth in range(10) for entry, _ in sampled([(0, 99)], share=0.1, start=tenth / 10)
    }
    assert found == {*range(100)}
