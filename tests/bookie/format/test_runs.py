"""Cutting and joining runs, and what of a range is missing, against naive definitions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.format.runs import (
    CachedRun,
    clip_run,
    join_runs,
    merged,
    merging,
    missing_ranges,
    within,
)
from fencelog.ledgers.format.run import (
    build_run,
    merge_runs,
    read_run_header,
    slice_run,
    verify_entries,
    verify_run,
)
from fencelog.ledgers.limits import MAX_RUN_ENTRIES, TARGET_RUN_BYTES

FIRST = 5
SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=12)


def make(sizes: list[int], first: int = FIRST) -> bytes:
    return build_run(7, first, [b"x" * size for size in sizes], lac=first - 1, length_before=0)


def cached(runs: list[bytes]) -> list[CachedRun]:
    """The runs as the write cache has them."""
    headers = map(read_run_header, runs)
    return [
        (header.first_entry_id, header.last_entry_id, run)
        for header, run in zip(headers, runs, strict=True)
    ]


def ids(run: bytes) -> list[int]:
    verify_run(run)
    return [entry.entry_id for entry in verify_entries(run)]


@given(SIZES, st.integers(0, 11), st.integers(1, 14), st.integers(1, 1500))
def test_a_clipped_run_is_the_longest_part_within_the_limits(
    sizes: list[int], skipped: int, max_entries: int, max_bytes: int
) -> None:
    run = make(sizes)
    first = FIRST + min(skipped, len(sizes) - 1)
    header = read_run_header(run)

    def content(last: int) -> int:
        """Bytes of the entries ``first`` to ``last``, headers and padding included."""
        part = slice_run(run, first, last)
        return len(part) - 32 - ((4 * (last - first + 1) + 7) & ~7)

    fitting = [
        last
        for last in range(first, header.last_entry_id + 1)
        if last - first < max_entries and content(last) <= max_bytes
    ]
    clipped = clip_run(run, first, max_entries=max_entries, max_bytes=max_bytes)
    assert ids(clipped) == list(range(first, max([first, *fitting]) + 1))


def test_a_run_that_is_within_the_limits_stays_as_it_is() -> None:
    run = make([3, 4])
    assert clip_run(run, 0, max_entries=9, max_bytes=10_000) == run


@given(
    st.lists(SIZES, min_size=1, max_size=5),
    st.integers(0, 30),
    st.integers(1, 40),
    st.integers(1, 4000),
)
def test_joined_runs_begin_where_asked_and_have_no_gap(
    shape: list[list[int]], skipped: int, max_entries: int, max_bytes: int
) -> None:
    runs, position = [], FIRST
    for sizes in shape:
        runs.append(make(sizes, position))
        position += len(sizes)
    first = FIRST + min(skipped, len(shape[0]) - 1)
    found = ids(join_runs(runs, first, max_entries=max_entries, max_bytes=max_bytes))
    assert found == list(range(first, first + len(found)))
    assert 1 <= len(found) <= max_entries
    everything = join_runs(runs, first, max_entries=10_000, max_bytes=10**6)
    assert ids(everything) == list(range(first, position))


def test_joining_stops_before_a_run_that_does_not_fit() -> None:
    runs = [make([10]), make([10, 10], FIRST + 1), make([10], FIRST + 3)]
    assert (
        join_runs(runs, FIRST, max_entries=9, max_bytes=len(runs[0]) + len(runs[1]) - 1)
        == (runs[0])
    )
    assert join_runs(runs, FIRST, max_entries=9, max_bytes=len(runs[0]) + 1) == runs[0]
    assert ids(join_runs(runs, FIRST, max_entries=3, max_bytes=10_000)) == [5, 6, 7]


def test_nothing_is_joined_to_a_run_that_the_limits_cut() -> None:
    runs = [make([10, 10, 10]), make([10], FIRST + 3)]
    assert ids(join_runs(runs, FIRST, max_entries=2, max_bytes=10_000)) == [5, 6]
    assert ids(join_runs(runs, FIRST, max_entries=9, max_bytes=len(make([10, 10])))) == [5, 6]
    # The next one would fit where the end of the first does not.
    runs = [make([10, 1000]), make([10], FIRST + 2)]
    assert ids(join_runs(runs, FIRST, max_entries=9, max_bytes=800)) == [5]


def test_the_last_run_is_cut_where_no_more_entries_are_wanted() -> None:
    runs = [make([10]), make([10, 20, 30], FIRST + 1), make([10], FIRST + 4)]
    joined = join_runs(runs, FIRST, max_entries=3, max_bytes=10_000)
    assert ids(joined) == [5, 6, 7]
    assert slice_run(joined, FIRST + 1, FIRST + 2) == slice_run(runs[1], FIRST + 1, FIRST + 2)
    assert join_runs(runs, FIRST, max_entries=1, max_bytes=10_000) == runs[0]
    assert join_runs(runs, FIRST, max_entries=2, max_bytes=len(runs[0]) + 40) == runs[0]


def test_a_reader_that_wants_all_gets_whole_runs() -> None:
    half = [1] * (MAX_RUN_ENTRIES // 2)
    runs = [make(half), make([*half, 1], FIRST + len(half))]
    assert join_runs(runs, FIRST, max_entries=MAX_RUN_ENTRIES, max_bytes=10**6) == runs[0]


def test_small_adjacent_runs_are_merged_and_others_left_alone() -> None:
    small = [make([10], n) for n in (0, 1, 2)]
    after_a_gap = make([10], 9)
    large = make([TARGET_RUN_BYTES // 2], 10)
    last = make([10], 11)
    result = list(merged(cached([*small, after_a_gap, large, last])))
    assert [ids(run) for run in result] == [[0, 1, 2], [9], [10, 11]]
    assert list(merged([])) == []
    assert list(merged(cached(small[:1]))) == small[:1]


def test_many_small_runs_are_merged_in_steps_with_the_same_result() -> None:
    """All at once would hold up the event loop."""
    runs = [make([10], n) for n in range(600)]
    items = list(merging(cached(runs)))
    assert [item is None for item in items] == [True, True, False]
    assert list(merged(cached(runs))) == [merge_runs(runs)]


def test_merging_stops_at_the_size_of_a_run() -> None:
    sizes = TARGET_RUN_BYTES // 5
    runs = [make([sizes], n) for n in range(6)]
    assert [ids(run) for run in merged(cached(runs))] == [[0, 1, 2, 3], [4, 5]]
    half = [1] * (MAX_RUN_ENTRIES // 2)
    runs = [make(half, n * len(half)) for n in range(3)]
    assert [read_run_header(run).entries for run in merged(cached(runs))] == [
        MAX_RUN_ENTRIES,
        len(half),
    ]


@given(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair))),
    st.lists(
        st.tuples(st.integers(0, 25), st.integers(0, 5)).map(lambda pair: (pair[0], sum(pair)))
    ),
)
def test_missing_ranges_are_what_nobody_holds(
    wanted: tuple[int, int], present: list[tuple[int, int]]
) -> None:
    held = {n for low, high in present for n in range(low, high + 1)}
    missing = missing_ranges(wanted, present)
    covered = [n for low, high in missing for n in range(low, high + 1)]
    assert covered == [n for n in range(wanted[0], wanted[1] + 1) if n not in held]
    assert all(low <= high for low, high in missing)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(missing))


@given(st.lists(st.integers(1, 50), max_size=8), st.integers(0, 200))
def test_runs_within_a_size(sizes: list[int], most: int) -> None:
    runs = [bytes(size) for size in sizes]
    kept = within(runs, most)
    assert kept == runs[: len(kept)]
    assert len(kept) == min(1, len(runs)) or sum(map(len, kept)) <= most
    if len(kept) < len(runs):
        assert sum(map(len, runs[: len(kept) + 1])) > most
