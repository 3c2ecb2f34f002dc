"""The list of a bookie's entries: from cache and index, in parts, without reading any."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, so that a failure can be repeated
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.entry_list import first_page
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Range
from tests.support.bookie_stage import OpenBookie, Requests, is_removing
from tests.support.faulty_disk import FaultyDisk


async def listed(bookie: Bookie, ledger_id: int, from_entry: int = 0) -> list[int]:
    """All the entries, asked for until there are no more."""
    entries: list[int] = []
    following: int | None = from_entry
    while following is not None:
        reply = await bookie.list_entries(ledger_id, following)
        entries += [n for low, high in reply.availability.ranges() for n in range(low, high + 1)]
        assert reply.next_entry is None or reply.next_entry > following
        following = reply.next_entry
    return entries


async def refusal(bookie: Bookie, ledger_id: int, from_entry: int = 0) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await bookie.list_entries(ledger_id, from_entry)
    return caught.value.code


# -- parts of a list, against sets ---------------------------------------------------------------

# Runs of a place are disjoint and ascending; places may overlap one another.
PLACE = st.lists(st.integers(0, 40), unique=True).map(
    lambda cuts: [(low, high - 1) for low, high in pairwise(sorted(cuts)) if (low + high) % 3]
)


@given(st.lists(PLACE, min_size=1, max_size=3), st.integers(0, 45), st.integers(1, 12))
def test_parts_make_up_the_whole(places: list[list[Range]], start: int, most: int) -> None:
    expected = {n for place in places for low, high in place for n in range(low, high + 1)}
    found: list[int] = []
    following: int | None = start
    for _ in range(50):
        assert following is not None
        cut = [[run for run in place if run[1] >= following][:most] for place in places]
        page, following = first_page(cut, following, most)
        assert len(page) <= most
        assert all(high + 1 < low for (_, high), (low, _) in pairwise(page))
        found += [n for low, high in page for n in range(low, high + 1)]
        if following is None:
            break
    assert found == sorted(n for n in expected if n >= start)
    assert following is None


# -- of a bookie ---------------------------------------------------------------------------------


async def test_entries_in_the_cache_and_the_index_are_listed(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """Whichever way they went; over a restart too."""
    chance = random.Random(4)
    bookie = await open_bookie()
    stored: set[int] = set()
    for _ in range(6):
        for _ in range(40):
            first, count = chance.randrange(900), chance.randrange(1, 9)
            run = requests.run(7, first, count)
            assert await requests.add(bookie, run, recovery=True) is None
            stored |= set(range(first, first + count))
            await requests.add(bookie, requests.run(8, first, count), recovery=True)
        assert await listed(bookie, 7) == sorted(stored)
        assert await listed(bookie, 7, 333) == sorted(n for n in stored if n >= 333)
        await bookie.close()
        bookie = await open_bookie()
        assert await listed(bookie, 7) == sorted(stored)
    assert await listed(bookie, 7, 5000) == []


async def test_a_long_list_comes_in_parts(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.engine.entry_list.MAX_LISTED_RUNS", 10)
    bookie = await open_bookie()
    for n in range(0, 200, 2):
        await requests.add(bookie, requests.run(1, n), recovery=True)
        if n == 100:
            await bookie.close()
            bookie = await open_bookie()
    reply = await bookie.list_entries(1)
    assert 0 < reply.availability.count <= 10
    assert reply.next_entry is not None
    assert await listed(bookie, 1) == list(range(0, 200, 2))


async def test_a_list_reads_no_entry_log(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5))
    await bookie.close()
    bookie = await open_bookie(disk=faulty_disk)
    faulty_disk.calls.clear()
    assert await listed(bookie, 1) == [0, 1, 2, 3, 4]
    assert not [call for call in faulty_disk.calls if "entrylog" in call and "read" in call]
    faulty_disk.fails.add("read index")
    assert await refusal(bookie, 1) is ErrorCode.STORAGE_FAILED  # unknown, not "none"


async def test_a_list_waits_until_what_it_names_is_durable(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """The process that added it may be gone: whoever lists it next lets go of other copies."""
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0))
    faulty_disk.waits.add("sync .journal")
    answers: list[FencelogError | None] = []
    bookie.add(requests.run(1, 1), recovery=True, on_reply=answers.append)
    listing = asyncio.create_task(listed(bookie, 1))
    other = asyncio.create_task(refusal(bookie, 2))
    await other
    await asyncio.sleep(0.05)
    assert not listing.done()
    faulty_disk.waits.clear()
    assert await listing == [0, 1]
    assert answers == [None]


async def test_what_could_not_be_made_durable_is_not_listed(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0))
    faulty_disk.fails.add("sync .journal")
    bookie.add(requests.run(1, 1), recovery=True, on_reply=lambda error: None)
    assert await refusal(bookie, 1) is ErrorCode.STORAGE_FAILED


async def test_unknown_and_deleted_ledgers_are_negatives(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    assert await refusal(bookie, 1) is ErrorCode.NO_SUCH_LEDGER
    await requests.add(bookie, requests.run(1, 0))
    assert await listed(bookie, 1) == [0]
    await bookie.shard(1).remove(1, deleted=True)
    assert await refusal(bookie, 1) is ErrorCode.NO_SUCH_LEDGER
    bookie.fence(2)
    assert await listed(bookie, 2) == []  # known, and empty


async def test_in_limbo_the_list_says_that_it_may_lack_something(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 3, 2))
    assert not (await bookie.list_entries(1)).in_limbo
    bookie.fence_forgotten(1)
    reply = await bookie.list_entries(1)
    assert reply.in_limbo
    assert list(reply.availability.ranges()) == [(3, 4)]
    await bookie.clear_limbo(1)
    assert not (await bookie.list_entries(1)).in_limbo


@pytest.mark.parametrize("deleted", [True, False])
async def test_what_goes_while_the_index_is_read_is_not_missed_silently(
    deleted: bool, open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush may have taken the runs out of the index before the look reached them."""
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 3))
    shard = bookie.shard(1)
    run = shard.read_io_thread.run

    async def slowly(work: Any) -> Any:
        await shard.remove(1, deleted=deleted)
        return await run(work)

    monkeypatch.setattr(shard.read_io_thread, "run", slowly)
    if deleted:
        assert await refusal(bookie, 1) is ErrorCode.NO_SUCH_LEDGER
    else:
        assert (await bookie.list_entries(1)).in_limbo


async def test_what_is_dropped_and_copied_again_meanwhile_is_not_denied(
    open_bookie: OpenBookie, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the index falls between the two."""
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 3))
    shard = bookie.shard(1)
    while shard.cache.size:
        shard.flusher.request()
        await requests.until(lambda: shard.flusher._begun is None)
    run = shard.read_io_thread.run

    async def between(work: Any) -> Any:
        monkeypatch.setattr(shard.read_io_thread, "run", run)
        await shard.remove(1, deleted=False)
        while is_removing(bookie, 1):
            shard.flusher.request()
            await requests.until(lambda: shard.flusher._begun is None)
        found = await run(work)
        assert await requests.add(bookie, requests.run(1, 0, 3), recovery=True) is None
        await bookie.clear_limbo(1)
        return found

    monkeypatch.setattr(shard.read_io_thread, "run", between)
    reply = await bookie.list_entries(1)
    assert (list(reply.availability.ranges()), reply.in_limbo) == ([], True)
    assert await listed(bookie, 1) == [0, 1, 2]


@pytest.mark.parametrize("from_entry", [-1, 2**63, 2**64 - 1])
async def test_what_is_no_entry_id_is_refused(from_entry: int, open_bookie: OpenBookie) -> None:
    assert await refusal(await open_bookie(), 1, from_entry) is ErrorCode.BAD_REQUEST


async def test_a_bookie_that_stopped_lists_nothing(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    await requests.add(bookie, requests.run(1, 0))
    faulty_disk.fails.add("sync .journal")
    await requests.add(bookie, requests.run(1, 1))
    assert await refusal(bookie, 1) is ErrorCode.STORAGE_FAILED
