"""The items of the simulated loop's queues: callbacks, timers, tasks."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.engine.loop import SimLoop


class SimHandle:
    """A callback of a process, which it has until it is cancelled. No more than the loop looks at:
    it makes one for every step of every task."""

    __slots__ = ("_call", "_context")

    _call: tuple[Any, ...]
    """The callback and its arguments; nothing once it is cancelled."""
    _context: Context

    def cancel(self) -> None:
        self._call = ()

    def cancelled(self) -> bool:
        return not self._call


class SimTimer(SimHandle):
    """A callback with a time."""

    __slots__ = ("_loop", "_scheduled", "_when")

    _loop: SimLoop
    _scheduled: bool
    _when: float

    def cancel(self) -> None:
        if self._call and self._scheduled:
            self._loop.timer_cancelled()
        self._call = ()

    def when(self) -> float:
        return self._when


class SimTask(asyncio.Task[Any]):
    """A task with a hash that is not its address, so that sets of tasks, asyncio's own among
    them, have the same order in every run."""

    number: int

    def __hash__(self) -> int:
        return self.number
