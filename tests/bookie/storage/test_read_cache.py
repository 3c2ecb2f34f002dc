"""Runs read lately: found again, in order, within the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.storage.read_cache import ReadCache
from fencelog.ledgers.format.run import build_run, read_run_header


def run(ledger_id: int, first: int, last: int) -> bytes:
    payloads = [f"{ledger_id}/{i}".encode() for i in range(first, last + 1)]
    return build_run(ledger_id, first, payloads, lac=-1, length_before=0)


def ranges(runs: list[bytes]) -> list[tuple[int, int]]:
    headers = map(read_run_header, runs)
    return [(header.first_entry_id, header.last_entry_id) for header in headers]


def collect(cache: ReadCache, ledger_id: int, first: int, **limits: int) -> list[tuple[int, int]]:
    limits = {"max_entries": 1000, "max_bytes": 1 << 20} | limits
    return ranges(cache.collect(ledger_id, first, **limits))


def test_adjacent_runs_are_found_from_the_middle_of_one_on() -> None:
    cache = ReadCache(1 << 20)
    cache.put([run(1, 10, 19), run(1, 0, 4), run(1, 20, 29), run(2, 5, 9)])
    assert collect(cache, 1, 12) == [(10, 19), (20, 29)]
    assert collect(cache, 1, 12, max_entries=8) == [(10, 19)]
    assert collect(cache, 1, 12, max_entries=9) == [(10, 19), (20, 29)]
    assert collect(cache, 1, 12, max_bytes=1) == [(10, 19)]
    assert collect(cache, 1, 5) == collect(cache, 1, 30) == collect(cache, 3, 5) == []


def test_the_ledger_that_was_not_read_longest_goes_first_and_from_its_front() -> None:
    size = len(run(1, 10, 19))
    cache = ReadCache(size * 3)
    cache.put([run(1, 10, 19), run(1, 20, 29)])
    cache.put([run(2, 10, 19)])
    assert collect(cache, 1, 10) == [(10, 19), (20, 29)]
    cache.put([run(3, 10, 19)])
    assert collect(cache, 2, 10) == []
    cache.put([run(3, 20, 29)])
    assert collect(cache, 1, 10) == []
    assert collect(cache, 1, 20) == [(20, 29)]
    assert cache.size == size * 3


def test_nothing_stays_in_a_cache_of_no_size() -> None:
    cache = ReadCache(0)
    cache.put([run(1, 0, 9)])
    assert cache.size == 0
    assert collect(cache, 1, 0) == []


_cut = st.tuples(st.integers(1, 2), st.integers(0, 30), st.integers(0, 8))


@given(st.lists(_cut, max_size=30), st.integers(1, 2), st.integers(0, 40))
def test_whatever_was_cut_how_what_is_found_is_consecutive(
    cuts: list[tuple[int, int, int]], ledger_id: int, first: int
) -> None:
    cache = ReadCache(1 << 20)
    known: dict[int, set[int]] = {1: set(), 2: set()}
    for ledger, start, more in cuts:
        cache.put([run(ledger, start, start + more)])
        known[ledger] |= set(range(start, start + more + 1))
    found = collect(cache, ledger_id, first)
    following = first
    for low, high in found:
        assert low <= following <= high
        assert set(range(low, high + 1)) <= known[ledger_id]
        following = high + 1
    if (ledger_id, first, 0) in cuts and len(cuts) == 1:
        assert found
