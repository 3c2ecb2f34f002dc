"""What the simulated loop puts into its queues: callbacks, timers, tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loop import SimLoop


class SimHandle(asyncio.Handle):
    """A callback of a process. Built by hand: the loop makes one for every step of every task."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        loop: SimLoop,
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._args: tuple[Any, ...] | None = args  # type: ignore[assignment]
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class SimTimer(SimHandle):
    """A callback with a time."""

    __slots__ = ("_scheduled", "_when")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        loop: SimLoop,
    ) -> None:
        super().__init__(callback, args, context, loop)
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        if not self._cancelled and self._scheduled:
            self._loop.timer_cancelled()
        super().cancel()

    def when(self) -> float:
        return self._when


class SimTask(asyncio.Task[Any]):
    """A task with a hash that is not its address, so that sets of tasks, asyncio's own among
    them, have the same order in every run."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number
