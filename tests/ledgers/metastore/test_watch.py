"""The table of watches: who is told in which order, and that who has left is forgotten."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Awaitable, Callable, Coroutine
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
from tests.support.virtual_time import VirtualTimeLoop

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

    async def finish() -> None:
        """End all reads, and those that begin then; a read takes a few turns of the loop."""
        for _ in range(100):
            for end in reads:
                end.set()
            await asyncio.sleep(0)

    watches = [table.watch_value(f"/{n}", Listener()) for n in range(10)]
    await finish()
    assert len(reads) == 10
    at_most = 0

    table.refresh_all()
    watches[9].close()  # while it waits for its turn
    await finish()
    assert (at_most, len(reads)) == (3, 19)

    table.refresh_all()
    await asyncio.sleep(0)
    table.refresh_all()  # the connection was lost again: everything may have changed anew
    await finish()
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


class Guarded:
    """A node that an access list may close, and the times at which it was read."""

    def __init__(self) -> None:
        self.is_open = False
        self.asked_s: list[float] = []

    async def read(self, path: str) -> Versioned:
        self.asked_s.append(asyncio.get_running_loop().time())
        if not self.is_open:
            raise FencelogError(ErrorCode.METADATA_UNAUTHORIZED, "refused with NoAuth")
        return NODE

    def waited_s(self) -> list[float]:
        return [round(after - before) for before, after in itertools.pairwise(self.asked_s)]


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())


def test_a_watch_that_is_refused_is_set_when_access_is_granted() -> None:
    """After ever longer times, up to a minute, and the shortest ones again the next time."""

    async def test() -> None:
        node, listener = Guarded(), Listener()
        table = WatchTable(node.read, no_names)
        table.watch_value("/a", listener)
        await asyncio.sleep(200)
        assert node.waited_s() == [1, 2, 4, 8, 16, 32, 60, 60]
        node.is_open = True
        await asyncio.sleep(60)
        assert listener.values == [NODE]
        await asyncio.sleep(1_000)
        assert len(node.asked_s) == 10
        node.is_open = False
        node.asked_s.clear()
        table.refresh("/a")
        await asyncio.sleep(4)
        assert node.waited_s() == [1, 2]
        await table.close()

    in_virtual_time(test)


def test_a_refused_watch_that_was_closed_is_not_read_again() -> None:
    async def test() -> None:
        node, listener = Guarded(), Listener()
        table = WatchTable(node.read, no_names)
        watch = table.watch_value("/a", listener)
        await asyncio.sleep(1.5)
        watch.close()
        gone = weakref.ref(listener)
        del watch, listener
        await asyncio.sleep(1)
        gc.collect()
        assert gone() is None
        await asyncio.sleep(100)
        assert len(node.asked_s) == 2
        await table.close()

    in_virtual_time(test)


def test_refused_watches_are_not_all_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they keep those that may be read from their turn after a lost connection."""
    monkeypatch.setattr("fencelog.ledgers.metastore.watch.REFRESHES_AT_ONCE", 3)

    async def test() -> None:
        reading = most = 0
        admitted: list[str] = []

        async def read(path: str) -> Versioned:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await asyncio.sleep(0.01)
            reading -= 1
            if path != "/open":
                raise FencelogError(ErrorCode.METADATA_UNAUTHORIZED, "refused with NoAuth")
            admitted.append(path)
            return NODE

        table = WatchTable(read, no_names)
        for number in range(10):
            table.watch_value(f"/{number}", Listener())
        table.watch_value("/open", Listener())
        await asyncio.sleep(0.5)
        most = 0
        await asyncio.sleep(1)
        assert most == 3
        table.refresh_all()
        await asyncio.sleep(0.5)
        assert (most, len(admitted)) == (3, 2)
        await table.close()

    in_virtual_time(test)
