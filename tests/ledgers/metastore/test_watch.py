"""The table of watches: who is told in which order, and that who has left is forgotten."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from fencelog.ledgers.metastore.watch import WatchTable


class Listener:
    def __init__(self) -> None:
        self.values: list[int] = []

    def __call__(self, value: int) -> None:
        self.values.append(value)


async def at_once() -> int:
    return 7


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_watch_that_was_closed_is_not_kept(turns: int) -> None:
    """A watch that was closed while it read goes too; a process may open and close any number."""
    table = WatchTable()
    listener = Listener()
    watch = table.watch_value("/a", at_once, listener)
    for _ in range(turns):
        await asyncio.sleep(0)
    watch.close()
    assert listener.values == ([7] if turns == 5 else [])
    gone = weakref.ref(listener)
    del watch, listener
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


async def test_closing_waits_for_reads_of_watches_that_were_closed_before() -> None:
    table = WatchTable()
    steps: list[str] = []

    async def read() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("ended")
        return 0

    watch = table.watch_children("/a", read, Listener())
    await asyncio.sleep(0)
    watch.close()
    await table.close()
    assert steps == ["ended"]


async def test_watches_of_a_path_read_in_the_order_in_which_they_came() -> None:
    """An order that depends on addresses of objects cannot be played again."""
    table = WatchTable()
    order: list[int] = []

    def read(number: int) -> Callable[[], Awaitable[int]]:
        async def read_once() -> int:
            order.append(number)
            return len(order)

        return read_once

    for number in range(50):
        table.watch_value("/a", read(number), lambda _value: None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == list(range(50))
    order.clear()
    table.node_changed("/a")
    await asyncio.sleep(0)
    assert order == list(range(50))
    await table.close()


async def test_after_a_lost_connection_not_all_watches_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.ledgers.metastore.watch.REFRESHES_AT_ONCE", 3)
    table = WatchTable()
    reads: list[asyncio.Event] = []
    reading = 0
    at_most = 0

    async def read() -> int:
        nonlocal reading, at_most
        reading += 1
        at_most = max(at_most, reading)
        reads.append(end := asyncio.Event())
        try:
            await end.wait()
        finally:
            reading -= 1
        return len(reads)

    async def finish(expected: int) -> None:
        while len(reads) < expected or any(not end.is_set() for end in reads):
            for end in reads:
                end.set()
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)

    watches = [table.watch_value(f"/{n}", read, Listener()) for n in range(10)]
    await finish(10)
    at_most = 0

    table.refresh_all()
    watches[9].close()  # while it waits for its turn
    await finish(19)
    assert (at_most, len(reads)) == (3, 19)

    table.refresh_all()
    await asyncio.sleep(0)
    table.refresh_all()  # the connection was lost again: everything may have changed anew
    await finish(19 + 3 + 9)
    assert (at_most, len(reads)) == (3, 19 + 3 + 9)
    await table.close()
