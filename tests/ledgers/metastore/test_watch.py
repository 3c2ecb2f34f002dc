"""The table of watches: who is told in which order, and that who has left is forgotten."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Awaitable
from functools import partial
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import SessionState, Version, Versioned
from fencelog.ledgers.metastore.watch import (
    SessionListeners,
    WatchTable,
    names_or_empty,
    value_or_none,
)

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


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_change_during_a_read_is_read_after_it_and_no_value_comes_twice() -> None:
    value = b"1"
    answers: list[asyncio.Event] = []

    async def read(path: str) -> Versioned:
        found = Versioned(value, Version(1, 0))
        answers.append(answer := asyncio.Event())
        await answer.wait()
        return found

    table, listener = WatchTable(read, no_names), Listener()
    table.watch_value("/a", listener)
    await turns()
    value = b"2"
    for _ in range(2):
        table.refresh("/a")
    answers[0].set()
    await turns()
    assert (len(answers), listener.values) == (2, [])  # what is older than the change is not told
    answers[1].set()
    await turns()
    assert listener.values == [Versioned(b"2", Version(1, 0))]
    table.refresh("/a")
    await turns()
    answers[2].set()
    await turns()
    assert (len(answers), len(listener.values)) == (3, 1)
    await table.close()


async def test_a_watch_that_is_closed_when_it_has_read_tells_nothing() -> None:
    table, listener = WatchTable(at_once, no_names), Listener()
    watch = table.watch_value("/a", listener)
    read = watch._task
    assert read is not None
    while not read.done():  # noqa: ASYNC110 - its callback is called after this
        await asyncio.sleep(0)
    watch.close()
    await turns()
    assert listener.values == []


async def test_who_watches_children_is_told_of_the_node_and_of_its_children() -> None:
    names = ["a"]

    async def read(path: str) -> list[str]:
        return list(names)

    table, listener = WatchTable(at_once, read), Listener()
    table.watch_children("/dir", listener)
    await turns()
    names.append("b")
    table.node_changed("/dir/b")
    await turns()
    names.clear()
    table.node_changed("/dir")
    await turns()
    assert listener.values == [["a"], ["a", "b"], []]
    await table.close()


@pytest.mark.parametrize(("delivered", "absent"), [(value_or_none, None), (names_or_empty, [])])
async def test_only_what_is_not_there_is_absent(delivered: Any, absent: object) -> None:
    async def failed(code: ErrorCode) -> Any:
        raise FencelogError(code, "made to fail")

    assert await delivered(failed(ErrorCode.METADATA_NOT_FOUND)) == absent
    for code in (ErrorCode.METADATA_UNAVAILABLE, ErrorCode.METADATA_UNAUTHORIZED):
        unread: Awaitable[Any] = delivered(failed(code))
        with pytest.raises(FencelogError) as caught:
            await unread
        assert caught.value.code is code


async def test_a_listener_that_was_closed_is_not_told_of_the_session() -> None:
    listeners, first, second = SessionListeners(), Listener(), Listener()
    closed = listeners.add(first)
    listeners.add(second)
    listeners.notify(SessionState.SUSPENDED)
    closed.close()
    closed.close()
    await turns()
    listeners.notify(SessionState.CONNECTED)
    await turns()
    assert first.values == []
    assert second.values == [SessionState.SUSPENDED, SessionState.CONNECTED]
