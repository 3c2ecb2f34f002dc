"""I/O threads of the simulated disk: blocking work takes place at one point of virtual time.

A piece of work waits for its turn and for the disk, runs as a whole, and takes as long as the syncs
in it; then comes the next one. What it did is on the disk from the point at which it ran, what it
returns is known only at the end: a process that dies in between did more than anybody was told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Protocol, TypeVar

from fencelog.bookie.disk.io_thread import QueuedIoThread, Work
from tests.sim.engine.process import ProcessDied, current_process

T = TypeVar("T")


class Latencies(Protocol):
    """The durations of operations on one disk."""

    def wait_s(self) -> float:
        """Return the delay until a piece of work begins."""

    def take_spent_s(self) -> float:
        """Return what the operations since the last call took."""


class SimIoThread(QueuedIoThread):
    """Implements ``bookie.disk.IoThread``. Belongs to the process that made it and ends with it."""

    def __init__(self, name: str, latencies: Latencies) -> None:
        self._name = name
        self._latencies = latencies
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._queue: deque[Work] = deque()
        self._is_busy = False
        self._closing = False
        self._ended = self._loop.create_future()
        self.process = current_process()

    async def close(self) -> None:
        self._check_alive()
        self._closing = True
        self._next()
        await asyncio.shield(self._ended)

    def _enqueue(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        self._check_alive()
        if self._closing:
            raise AssertionError(f"I/O thread {self._name} is closed")
        self._queue.append((work, done))
        if not self._is_busy:
            self._next()

    def _check_alive(self) -> None:
        """Refuse work of a dead process, which unwinds. Raises ProcessDied."""
        if not self.process.is_alive:
            raise ProcessDied

    def _next(self) -> None:
        if self._is_busy:
            return
        if self._queue:
            self._is_busy = True
            self._loop.call_later(self._latencies.wait_s(), self._work, context=self._context)
        elif self._closing and not self._ended.done():
            self._ended.set_result(None)

    def _work(self) -> None:
        work, done = self._queue.popleft()
        error: Exception | None = None
        result: object = None
        self._latencies.take_spent_s()
        try:
            result = work()
        except ProcessDied:
            return
        except Exception as raised:
            error = raised
        if self.process.is_alive:
            spent_s = self._latencies.take_spent_s()
            self._loop.call_later(spent_s, self._report, done, error, result, context=self._context)

    def _report(self, done: Callable[..., None], error: Exception | None, result: object) -> None:
        self._is_busy = False
        self._loop.call_soon(done, error, result, context=self._context)
        if self._queue or self._closing:
            self._next()
