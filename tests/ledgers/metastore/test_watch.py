"""The table of watches: who is told in which order, and that who has left is forgotten."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from functools import partial

import pytest

from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.metastore.watch import WatchTable

NODE = Versioned(b"7", Version(1, 0))


class Listener:
    def __init__(self) -> None:
        self.values: list[object] = []

    def __call__(self, value: object) -> None:
        self.values.append(value)


async def at_once(path: str) -> Versioned:
    return NODE


async def no_names(path: str) -> list[str]:
    return []


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_watch_that_was_closed_is_not_kept(turns: int) -> None:
    """A watch that was closed while it read goes too; a process may open and close any number."""
    table = WatchTable(at_once, no_names)
    listener = Listener()
    watch = table.watch_value("/a", listener)
    for _ in range(turns):
        await asyncio.sleep(0)
    watch.close()
    assert listener.values == ([NODE] if turns == 5 else [])
    gone = weakref.ref(listener)
    del watch, listener
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


async def test_closing_waits_for_reads_of_watches_that_were_closed_before() -> None:
    steps: list[str] = []

    async def read(path: str) -> list[str]:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("ended")
        return []

    table = WatchTable(at_once, read)
    watch = table.watch_children("/a", Listener())
    await asyncio.sleep(0)
    watch.close()
    await table.close()
    assert steps == ["ended"]


async def test_watches_of_a_path_read_in_the_order_in_which_they_came() -> None:
    """An order that depends on addresses of objects cannot be played again."""
    values = itertools.count()

    async def read(path: str) -> Versioned:
        return Versioned(b"%d" % next(values), Version(1, 0))

    table = WatchTable(read, no_names)
    order: list[int] = []

    def note(number: int, value: Versioned | None) -> None:
        order.append(number)

    for number in range(50):
        table.watch_value("/a", partial(note, number))
    for _ in range(3):
        await asyncio.sleep(0)
    assert order == list(range(50))
    order.clear()
    table.node_changed("/a")
    for _ in range(3):
        await asyncio.sleep(0)
    assert order == list(range(50))
    await table.close()


async def test_the_others_at_a_path_stay_when_one_is_closed() -> None:
    listeners = [Listener() for _ in range(3)]
    table = WatchTable(at_once, no_names)
    first, second, third = (table.watch_value("/a", listener) for listener in listeners)
    second.close()
    second.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [listener.values for listener in listeners] == [[NODE], [], [NODE]]
    first.close()
    third.close()
    table.refresh("/a")
    for _ in range(3):
        await asyncio.sleep(0)
    assert [listener.values for listener in listeners] == [[NODE], [], [NODE]]
    await table.close()


async def test_after_a_lost_connection_not_all_watches_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.ledgers.metastore.watch.REFRESHES_AT_ONCE", 3)
    reads: list[asyncio.Event] = []
    reading = 0
    at_most = 0

    async def read(path: str) -> Versioned:
        nonlocal reading, at_most
        reading += 1
        at_most = max(at_most, reading)
        reads.append(end := asyncio.Event())
        try:
            await end.wait()
        finally:
            reading -= 1
        return Versioned(b"%d" % len(reads), Version(1, 0))

    table = WatchTable(read, no_names)

    async def finish(expected: int) -> None:
        while len(reads) < expected or any(not end.is_set() for end in reads):
            for end in reads:
                end.set()
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)

    watches = [table.watch_value(f"/{n}", Listener()) for n in range(10)]
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
