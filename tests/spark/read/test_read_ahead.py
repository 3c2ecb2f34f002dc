"""The bridge from an event loop in a thread to an ordinary iterator."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from fencelog.spark_connector.read.read_ahead import iterate

Emit = Callable[[int], Awaitable[None]]


def readers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "fencelog-read-ahead"]


async def count_to_100(emit: Emit) -> None:
    for number in range(100):
        await emit(number)
        if number % 7 == 0:
            await asyncio.sleep(0)


def test_items_come_in_order_and_the_thread_ends() -> None:
    assert list(iterate(count_to_100, depth=3)) == list(range(100))
    assert readers() == []


def test_no_more_than_depth_items_wait() -> None:
    emitted: list[int] = []
    full = threading.Event()

    async def produce(emit: Emit) -> None:
        for number in range(50):
            if number == 4 and len(emitted) == 4:
                asyncio.get_running_loop().call_later(0.05, full.set)
            await emit(number)
            emitted.append(number)

    items = iterate(produce, depth=3)
    assert next(items) == 0
    assert full.wait(10)
    assert emitted == [0, 1, 2, 3]
    assert list(items) == list(range(1, 50))


def test_an_error_comes_after_what_was_emitted() -> None:
    async def produce(emit: Emit) -> None:
        await emit(1)
        await emit(2)
        raise ValueError("broken")

    items = iterate(produce, depth=1)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        next(items)
    assert readers() == []


def test_closing_early_cancels_the_work() -> None:
    cancelled = threading.Event()

    async def produce(emit: Emit) -> None:
        try:
            await emit(1)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    items = iterate(produce, depth=2)
    assert next(items) == 1
    items.close()
    assert cancelled.is_set()
    assert readers() == []


def test_nothing_runs_before_the_first_item_is_asked_for() -> None:
    items = iterate(count_to_100, depth=3)
    assert readers() == []
    assert next(items) == 0
