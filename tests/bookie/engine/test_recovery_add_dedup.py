"""Adds of entries that are stored already, in part or in whole, as recovery sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.engine.recovery_add_dedup import RecoveryAddDedup
from fencelog.bookie.format.runs import Range, clip_run, join_runs, merged, missing_ranges
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import (
    RunHeader,
    build_run,
    read_run_header,
    slice_run,
    verify_run,
)
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.rpc.bookie_port import AddCallback
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk

ENTRIES = 40


async def held_entries(bookie: Bookie, requests: Requests, ledger_id: int) -> set[int]:
    held = set()
    for entry_id in range(ENTRIES + 8):
        try:
            run = await requests.read(bookie, ledger_id, entry_id, 1)
        except FencelogError as error:
            if error.code is not ErrorCode.NO_SUCH_ENTRY:
                raise
        else:
            assert run == requests.run(ledger_id, entry_id)
            held.add(entry_id)
    return held


async def test_only_what_is_missing_is_stored_and_flushes_do_not_matter(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 10, 5))
    await bookie.close()
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 20, 5))
    written = bookie.shards[0].journal.position.sequence
    assert await requests.add(bookie, requests.run(1, 11, 3), recovery=True) is None
    assert bookie.shards[0].journal.position.sequence == written  # all there: nothing to journal
    assert await requests.add(bookie, requests.run(1, 8, 20), recovery=True) is None
    assert bookie.shards[0].journal.position.sequence == written + 3  # 8..9, 15..19, 25..27
    assert await held_entries(bookie, requests, 1) == set(range(8, 28))
    await bookie.close()
    bookie = await open_bookie()
    assert await held_entries(bookie, requests, 1) == set(range(8, 28))


async def test_a_repeated_add_is_answered_only_when_the_first_is_durable(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.waits.add("sync .journal")
    adds = [asyncio.create_task(requests.add(bookie, requests.run(1, 0, 3))) for _ in range(2)]
    done, _ = await asyncio.wait(adds, timeout=0.05)
    assert done == set()
    faulty_disk.waits.clear()
    assert await asyncio.gather(*adds) == [None, None]
    assert await held_entries(bookie, requests, 1) == {0, 1, 2}


async def test_a_fence_during_the_look_up_stops_a_regular_add(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 5))
    add = asyncio.create_task(requests.add(bookie, requests.run(1, 0)))
    await asyncio.sleep(0)
    bookie.fence(1)
    error = await add
    assert error is not None
    assert error.code is ErrorCode.LEDGER_FENCED


class Places:
    """What is stored of one ledger, without a bookie. ``meanwhile`` happens during the next look at
    the index, after it was read."""

    def __init__(self, *, index: list[Range], cache: list[Range]) -> None:
        self.index, self.cache = index, cache
        self.flushes = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.written: list[tuple[Range, AddCallback]] = []
        self.barriers: list[AddCallback] = []

    async def stored_ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        found, happens = list(self.index), self.meanwhile
        self.meanwhile = lambda: None
        await asyncio.sleep(0)
        happens()
        return found

    def flushed(self) -> None:
        self.index, self.cache = self.index + self.cache, []
        self.flushes += 1

    def store(self, header: RunHeader, run: bytes, on_reply: AddCallback) -> None:
        self.written.append(((header.first_entry_id, header.last_entry_id), on_reply))

    async def added(self, run: bytes, answers: list[FencelogError | None]) -> list[Range]:
        """Add a run; return what was written of it."""
        dedup = RecoveryAddDedup(
            stored_ranges=self.stored_ranges,
            cached_ranges=lambda ledger_id, wanted: list(self.cache),
            generation=lambda: self.flushes,
            admit=lambda ledger_id, *, recovery: None,
            store=self.store,
            barrier=self.barriers.append,
        )
        dedup.start()
        dedup.add(read_run_header(run), run, recovery=True, on_reply=answers.append)
        for _ in range(10):
            await asyncio.sleep(0)
        await dedup.close()
        return [entries for entries, _ in self.written]


async def test_what_a_flush_moves_during_the_look_up_is_there(requests: Requests) -> None:
    places = Places(index=[], cache=[(0, 4)])
    places.meanwhile = places.flushed
    assert await places.added(requests.run(1, 0, 5), []) == []
    assert len(places.barriers) == 1


async def test_what_is_added_during_the_look_up_is_there(requests: Requests) -> None:
    places = Places(index=[(0, 1)], cache=[])
    places.meanwhile = lambda: places.cache.append((3, 4))
    assert await places.added(requests.run(1, 0, 5), []) == [(2, 2)]


async def test_an_add_in_pieces_is_answered_by_the_last_of_them(requests: Requests) -> None:
    """The journal may have the others in an earlier group."""
    places, answers = Places(index=[(1, 1), (3, 3)], cache=[]), list[FencelogError | None]()
    assert await places.added(requests.run(1, 0, 5), answers) == [(0, 0), (2, 2), (4, 4)]
    for _, on_reply in places.written[:-1]:
        on_reply(None)
    assert answers == []
    places.written[-1][1](None)
    assert answers == [None]


spans = st.tuples(st.integers(0, ENTRIES - 1), st.integers(1, 8))


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(adds=st.lists(st.tuples(spans, st.booleans()), min_size=1, max_size=12))
def test_any_adds_in_any_order_hold_their_union(
    adds: list[tuple[tuple[int, int], bool]],
    tmp_path_factory: pytest.TempPathFactory,
    requests: Requests,
) -> None:
    """The cache is so small that almost every add is flushed, and the bookie restarts in
    between."""
    asyncio.run(add_and_compare(adds, tmp_path_factory.mktemp("data"), requests))


async def add_and_compare(
    adds: list[tuple[tuple[int, int], bool]], data_dir: Path, requests: Requests
) -> None:
    config = BookieConfig(data_dir, write_cache_bytes=1500)
    bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
    expected: set[int] = set()
    for (first, count), restart in adds:
        run = requests.run(1, first, count)
        while (error := await requests.add(bookie, run, recovery=True)) is not None:
            assert error.code is ErrorCode.OVERLOADED
            await asyncio.sleep(0.001)
        expected |= set(range(first, first + count))
        if restart:
            await bookie.close()
            bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
    assert await held_entries(bookie, requests, 1) == expected
    await bookie.close()


# -- the pure parts ------------------------------------------------------------------------------

ranges = st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda r: (r[0], r[0] + r[1]))


@given(ranges, st.lists(ranges))
def test_missing_ranges_are_what_the_sets_say(
    wanted: tuple[int, int], present: list[tuple[int, int]]
) -> None:
    missing = missing_ranges(wanted, present)
    entries = [e for low, high in missing for e in range(low, high + 1)]
    there = {e for low, high in present for e in range(low, high + 1)}
    assert entries == [e for e in range(wanted[0], wanted[1] + 1) if e not in there]
    assert all(a[1] + 1 < b[0] for a, b in pairwise(missing))


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=12),
    st.integers(0, 11),
    st.integers(1, 15),
    st.integers(1, 3000),
)
def test_clipping_gives_the_longest_part_within_the_limits(
    sizes: list[int], skip: int, max_entries: int, max_bytes: int
) -> None:
    run = build_run(4, 100, [b"x" * size for size in sizes], lac=-1, length_before=0)
    first = 100 + min(skip, len(sizes) - 1)
    clipped = clip_run(run, first, max_entries=max_entries, max_bytes=max_bytes)
    header = verify_run(clipped)
    assert header.first_entry_id == first

    def fits(last: int) -> bool:
        whole = slice_run(run, first, last)
        count = last - first + 1
        body = len(whole) - 32 - ((count * 4 + 7) & ~7)
        return count == 1 or (count <= max_entries and body <= max_bytes)

    last_of_all = 100 + len(sizes) - 1
    assert fits(header.last_entry_id)
    assert header.last_entry_id == last_of_all or not fits(header.last_entry_id + 1)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=10))
def test_merging_and_joining_keep_every_entry(shape: list[tuple[int, bool]]) -> None:
    runs, cached, entry_id = [], [], 0
    for count, gap in shape:
        entry_id += gap
        runs.append(build_run(1, entry_id, [b"p" * 20] * count, lac=-1, length_before=0))
        cached.append((entry_id, entry_id + count - 1, runs[-1]))
        entry_id += count
    out = list(merged(cached))
    for run in out:
        verify_run(run)
    spans = [(h.first_entry_id, h.last_entry_id) for h in map(read_run_header, out)]
    held = [e for low, high in spans for e in range(low, high + 1)]
    assert held == [
        e for h in map(read_run_header, runs) for e in range(h.first_entry_id, h.last_entry_id + 1)
    ]
    assert all(before[1] + 1 < after[0] for before, after in pairwise(spans))
    joined = join_runs(out[:1], spans[0][0], max_entries=4096, max_bytes=1 << 20)
    assert joined == out[0]
