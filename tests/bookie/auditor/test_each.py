"""Work on many items, a bounded number at a time."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.auditor.each import each


@pytest.mark.parametrize(("items", "most"), [(0, 0), (2, 2), (3, 3), (10, 3)])
async def test_there_are_no_more_tasks_than_items_or_than_are_allowed(
    items: int, most: int
) -> None:
    before = asyncio.all_tasks()
    done: list[int] = []
    at_work: set[object] = set()

    async def work(item: int) -> None:
        at_work.update(asyncio.all_tasks() - before)
        await asyncio.sleep(0)
        done.append(item)

    await each(range(items), work, at_once=3)
    assert sorted(done) == list(range(items))
    assert len(at_work) == most


async def test_the_first_error_ends_the_other_work() -> None:
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("no such item")
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match="no such item"):
        await each(range(9), work, at_once=3)
    assert begun == [0, 1, 2]
