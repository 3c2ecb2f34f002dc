"""Task groups of the shells: what fails first comes out as itself, and nothing runs on."""

from __future__ import annotations

import anyio
import pytest

from fencelog.api.client.tasks import map_concurrently, task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError

GONE = FencelogError(ErrorCode.TOPIC_NOT_FOUND, "it is gone")


async def test_a_tasks_error_comes_out_as_itself_and_ends_the_block() -> None:
    cause = OSError("no route")

    async def fail() -> None:
        raise GONE from cause

    async def work() -> None:
        async with task_group() as outer:
            outer.start_soon(anyio.sleep_forever)
            async with task_group() as inner:
                inner.start_soon(fail)
                await anyio.sleep_forever()

    with pytest.raises(FencelogError) as raised:
        await work()
    assert raised.value is GONE
    assert raised.value.__cause__ is cause


async def test_an_error_of_the_block_ends_the_tasks() -> None:
    ended = anyio.Event()

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def work() -> None:
        async with task_group() as group:
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            raise GONE

    with pytest.raises(FencelogError) as raised:
        await work()
    assert raised.value is GONE
    assert ended.is_set()


async def test_results_are_in_order_and_no_more_than_the_limit_runs() -> None:
    running: set[int] = set()
    most = 0

    async def call(number: int) -> int:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        for _ in range(10 - number):
            await anyio.lowlevel.checkpoint()
        running.remove(number)
        return number * number

    assert await map_concurrently(call, range(10), limit=3) == [n * n for n in range(10)]
    assert most == 3


async def test_the_first_error_ends_all_calls() -> None:
    called: list[int] = []

    async def call(number: int) -> None:
        called.append(number)
        if number == 1:
            raise GONE
        await anyio.sleep_forever()

    with pytest.raises(FencelogError) as raised:
        await map_concurrently(call, range(10), limit=2)
    assert raised.value is GONE
    assert len(called) <= 3  # the third may have got the slot of the one that failed
