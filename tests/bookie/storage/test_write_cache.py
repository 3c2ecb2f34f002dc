"""The two halves of the write cache: both are there for whoever asks, and one takes what is new."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.format.runs import merged
from fencelog.bookie.storage.write_cache import CacheHalf, WriteCache
from fencelog.ledgers.format.run import build_run, read_run_header, slice_run


def flushing() -> WriteCache:
    """Entries 0..4 of ledger 1 are being flushed, 5..9 have come since."""
    cache = WriteCache(1000)
    cache.put(1, 0, 4, b"flushed")
    cache.swap()
    cache.put(1, 5, 9, b"new")
    return cache


def test_what_is_being_flushed_is_found_beside_what_is_new() -> None:
    cache = flushing()
    limits = {"max_entries": 100, "max_bytes": 100}
    assert cache.find(1, 2) == (4, b"flushed")
    assert cache.collect(1, 2, **limits) == [b"flushed", b"new"]
    assert sorted(cache.ranges(1, (0, 99))) == [(0, 4), (5, 9)]
    assert cache.ranges(1, (3, 4)) == [(0, 4)]
    listed = cache.first_ranges(1, 3, 10)
    assert sorted(run for half in listed for run in half) == [(0, 4), (5, 9)]


def test_what_came_during_a_flush_outlives_it() -> None:
    cache = flushing()
    cache.release()
    assert cache.find(1, 2) is None
    assert cache.find(1, 7) == (9, b"new")
    assert cache.size == len(b"new")


def test_only_recovery_has_the_reserve() -> None:
    """It has to end ledgers while the load of others keeps the cache full."""
    cache = WriteCache(800)
    cache.put(1, 0, 0, bytes(800))
    assert not cache.has_space(recovery=False)
    assert cache.has_space(recovery=True)
    cache.put(1, 1, 1, bytes(100))
    assert not cache.has_space(recovery=True)


def run_of(ledger_id: int, first: int, entries: int, size: int = 20) -> bytes:
    return build_run(ledger_id, first, [b"p" * size] * entries, lac=-1, length_before=0)


def check_all_found(half: CacheHalf, ledger_id: int, runs: list[bytes]) -> None:
    """Check that each entry of these runs is found, with its bytes."""
    for run in runs:
        header = read_run_header(run)
        for entry_id in range(header.first_entry_id, header.last_entry_id + 1):
            found = half.find(ledger_id, entry_id)
            assert found is not None
            assert found[0] == read_run_header(found[1]).last_entry_id
            assert slice_run(found[1], entry_id, entry_id) == slice_run(run, entry_id, entry_id)


shapes = st.lists(
    st.lists(st.tuples(st.sampled_from([1, 1, 2, 200]), st.booleans()), max_size=6), max_size=4
)


@given(shapes)
def test_all_entries_are_found_between_any_steps_of_merging(
    ledgers: list[list[tuple[int, bool]]],
) -> None:
    half, put = CacheHalf(), dict[int, list[bytes]]()
    for ledger_id, shape in enumerate(ledgers):
        put[ledger_id], first = [], 0
        for entries, gap in shape:
            first += gap
            run = run_of(ledger_id, first, entries)
            half.put(ledger_id, first, first + entries - 1, run)
            put[ledger_id].append(run)
            first += entries
    for _ in half.merge():
        for ledger_id, runs in put.items():
            check_all_found(half, ledger_id, runs)
    wanted = list[bytes]()
    for ledger_id, runs in put.items():
        check_all_found(half, ledger_id, runs)
        headers = [read_run_header(run) for run in runs]
        wanted += merged(
            (header.first_entry_id, header.last_entry_id, run)
            for header, run in zip(headers, runs, strict=True)
        )
    assert list(half.in_order()) == wanted


def test_a_step_of_merging_is_short_whatever_there_is_to_merge() -> None:
    """The event loop serves nobody else meanwhile."""
    one_by_one, of_many_ledgers, large = CacheHalf(), CacheHalf(), CacheHalf()
    for entry_id in range(3_000):
        one_by_one.put(1, entry_id, entry_id, run_of(1, entry_id, 1))
        ledger_id, entry = divmod(entry_id, 3)
        of_many_ledgers.put(ledger_id, entry, entry, run_of(ledger_id, entry, 1))
    for entry_id in range(100):
        large.put(1, entry_id, entry_id, run_of(1, entry_id, 1, 100_000))
    for half, runs in ((one_by_one, 1), (of_many_ledgers, 1_000), (large, 10)):
        assert len(list(half.merge())) >= 5
        assert len(list(half.in_order())) == runs


def test_what_is_merged_already_is_no_work() -> None:
    half = CacheHalf()
    for ledger_id in range(3_000):
        half.put(ledger_id, 0, 0, run_of(ledger_id, 0, 1))
    assert list(half.merge()) == []
    assert len(list(half.in_order())) == 3_000
