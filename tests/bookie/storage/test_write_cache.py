"""The two halves of the write cache: both are there for whoever asks, and one takes what is new."""

from __future__ import annotations

from fencelog.bookie.storage.write_cache import WriteCache


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
