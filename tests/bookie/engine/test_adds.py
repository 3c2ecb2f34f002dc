"""A stored run that is damaged is replaced: by just its entries, and only where it still is."""

from __future__ import annotations

from typing import Any, Unpack

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import BookieSettings, OpenBookie, Requests, is_removing


async def with_stored(
    open_bookie: OpenBookie, requests: Requests, **settings: Unpack[BookieSettings]
) -> Bookie:
    """Ledger 1, fenced, with entries 0..4 and 10..14 in entry logs."""
    bookie = await open_bookie(**settings)
    for first in (0, 10):
        assert await requests.add(bookie, requests.run(1, first, 5)) is None
    await bookie.read_lac(1, fence=True)
    await bookie.close()
    return await open_bookie(**settings)


@pytest.mark.parametrize(("first", "count"), [(0, 4), (1, 4), (0, 6), (0, 15), (5, 5), (20, 5)])
async def test_only_whole_stored_runs_are_replaced(
    first: int, count: int, open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await with_stored(open_bookie, requests)
    assert await requests.add(bookie, requests.run(1, 5, 1), recovery=True) is None
    with pytest.raises(FencelogError) as caught:
        await bookie.shard(1).adds.replace(requests.run(1, first, count))
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_run_replaced_twice_or_merged_with_new_ones_is_there_once(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await with_stored(open_bookie, requests)
    assert await requests.add(bookie, requests.run(1, 5, 5), recovery=True) is None
    for first in (0, 0, 10):
        await bookie.shard(1).adds.replace(requests.run(1, first, 5))
    for _ in range(2):
        assert await requests.read(bookie, 1, 0) == requests.run(1, 0, 15)
        listed = await bookie.list_entries(1)
        assert listed.availability.count == 15
        await bookie.close()
        bookie = await open_bookie()
    stored = await bookie.shard(1).reads.stored_ranges(1, (0, 100))
    assert stored == [(0, 14)]


async def test_nothing_is_replaced_in_a_ledger_that_was_dropped_meanwhile(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    """What is there again may be cut in other runs: the replaced ones would overlap them."""
    bookie = await with_stored(open_bookie, requests, flush_interval_ms=5)
    shard = bookie.shard(1)
    look = shard.adds._stored_ranges

    async def slow(*args: Any) -> Any:
        found = await look(*args)
        await shard.remove(1, deleted=False)
        await requests.until(lambda: not is_removing(bookie, 1))
        assert await requests.add(bookie, requests.run(1, 3, 5), recovery=True) is None
        done = shard.flusher.completed
        await requests.until(lambda: shard.flusher.completed > done + 1)
        return found

    shard.adds._stored_ranges = slow
    with pytest.raises(FencelogError) as caught:
        await shard.adds.replace(requests.run(1, 0, 5))
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert await look(1, (0, 100)) == [(3, 7)]
