"""An event loop in virtual time, a host without chance, I/O threads without threads.

Everything that happens is a matter of the order of calls, so two runs are the same. An opened
bookie costs little more than its own work: tens of thousands of them have to be opened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NoReturn, TypeVar

from fencelog.bookie.disk.io_thread import QueuedIoThread, Work

T = TypeVar("T")

_NEVER_S = 1e7


class Stuck(Exception):
    """The error of a loop that has nothing left to run, or runs for ever."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Time passes when nothing else can happen, up to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self  # asked how long to wait, which is all that selectors are for here
        self._now_s = 0.0
        self.unhandled: list[str] = []

    def time(self) -> float:
        return self._now_s

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None or self._now_s > _NEVER_S:
            raise Stuck("nothing is left to run")
        self._now_s += timeout
        return ()

    def _process_events(self, events: object) -> None:
        """Do nothing: there are no events."""

    def _write_to_self(self) -> NoReturn:
        raise RuntimeError("there are no threads here")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own. Raises what it raises, Stuck, or AssertionError if
    something failed unseen."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main)
    finally:
        # What an error left running must not speak up later.
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            with suppress(Stuck):
                loop.run_until_complete(asyncio.wait(left, timeout=1))
        loop.close()
    if loop.unhandled:
        raise AssertionError("; ".join(loop.unhandled))
    return result


class TurnIoThread(QueuedIoThread):
    """Implements ``bookie.disk.IoThread``: a piece of work takes place as a whole after some turns
    of the loop, and is reported after as many more."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Work] = deque()
        self._is_busy = False
        self._closing = False
        self._ended = self._loop.create_future()

    async def close(self) -> None:
        self._closing = True
        self._next()
        await asyncio.shield(self._ended)

    def _enqueue(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        if self._closing:
            raise RuntimeError("the I/O thread is closed")
        self._queue.append((work, done))
        self._next()

    def _next(self) -> None:
        if self._is_busy:
            return
        if self._queue:
            self._is_busy = True
            self._after(self._turns, self._work)
        elif self._closing and not self._ended.done():
            self._ended.set_result(None)

    def _after(self, turns: int, call: Callable[[], None]) -> None:
        if turns > 1:
            self._loop.call_soon(self._after, turns - 1, call)
        else:
            self._loop.call_soon(call)

    def _work(self) -> None:
        work, done = self._queue.popleft()
        error: Exception | None = None
        result: object = None
        try:
            result = work()
        except Exception as raised:
            error = raised

        def report() -> None:
            self._is_busy = False
            self._loop.call_soon(done, error, result)
            self._next()

        self._after(self._turns, report)


class CountingHost:
    """Implements ``Host``. ``life`` tells one run of a program from another: no two draw the same
    bytes."""

    def __init__(self, life: str) -> None:
        self._life = life
        self._drawn = 0

    def now_us(self) -> int:
        return 1_700_000_000_000_000 + int(asyncio.get_running_loop().time() * 1e6)

    def random_bytes(self, size: int) -> bytes:
        self._drawn += 1
        return blake2b(f"{self._life}/{self._drawn}".encode(), digest_size=size).digest()

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(items)

    def fraction(self) -> float:
        return 0.5
