"""One run of a simulated operating-system process.

Everything that a process does runs in a context that names it, so whatever it starts (callbacks,
tasks, timers, connections) is its own and dies with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.sim.engine.engine import Engine
    from tests.sim.engine.handles import SimHandle

T = TypeVar("T")

CURRENT: ContextVar[Process] = ContextVar("CURRENT")

_FORGET_AT = 64


class ProcessDied(BaseException):
    """The process was killed in the middle of this piece of work. Never a failure of the code."""


class ProcessLost(Exception):
    """The error that a caller from outside gets if the process dies before it has answered."""


def current_process() -> Process:
    """The process that the running code belongs to. Raises LookupError outside a simulation."""
    return CURRENT.get()


class Process:
    """One run of a program on a machine; made by ``Engine.start_process``."""

    def __init__(self, engine: Engine, machine: str, run: int, number: int) -> None:
        self.machine = machine
        self.run = run
        self.mark = number & 255
        """What stands for it in the trace's steps."""
        self.label = f"{machine}#{run}"
        self.is_alive = True
        self.is_paused = False
        self.failures: list[str] = []
        """Unhandled exceptions of the time it lived, with tracebacks."""
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)
        # For the loop: what it may run next, and whether the loop has it on its list.
        self.ready: deque[SimHandle] = deque()
        self.is_queued = False
        self.remains: list[object] = []
        """What it left undone when it died: kept, so that no ``finally`` of it ever runs."""
        self._engine = engine
        self._tasks: list[asyncio.Task[Any]] = []
        self._forget_at = _FORGET_AT
        self._tasks_made = 0
        self._on_death: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        state = "dead" if not self.is_alive else "paused" if self.is_paused else "alive"
        return f"<Process {self.label} {state}>"

    # -- tasks -----------------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task in this process. It never ends if the process dies first: code outside
        the process awaits ``call`` instead of the task."""
        return self.context.copy().run(self._engine.loop.create_task, coroutine)

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this process and give its result to a caller in another one.

        Raises what it raises, and ProcessLost if the process is dead or dies first. If the caller
        is cancelled, so is the coroutine.
        """
        outcome: asyncio.Future[T] = self._engine.loop.create_future()

        def finished(task: asyncio.Task[T]) -> None:
            if outcome.done():
                return
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def died() -> None:
            if not outcome.done():
                outcome.set_exception(ProcessLost(f"{self.label} died"))

        task = self.spawn(coroutine)
        if not self.is_alive:
            raise ProcessLost(f"{self.label} is dead")
        task.add_done_callback(finished)
        self._on_death.append(died)
        try:
            return await outcome
        finally:
            if died in self._on_death:
                self._on_death.remove(died)
            if self.is_alive:
                task.cancel()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keep a task of this process until it is done."""
        self._tasks.append(task)
        if len(self._tasks) >= self._forget_at:
            self.forget_done()

    def forget_done(self) -> None:
        """Let go of the tasks that are done."""
        if self.is_alive:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._forget_at = 2 * len(self._tasks) + _FORGET_AT

    def next_task_name(self, name: str | None) -> str:
        self._tasks_made += 1
        return f"{self.label}/{self._tasks_made} {name or 'task'}"

    def live_tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done, in the order they were made."""
        return [task for task in self._tasks if not task.done()]

    # -- life and death --------------------------------------------------------------------------

    def on_death(self, callback: Callable[[], object]) -> None:
        """Call back at the moment of death, outside the process."""
        self._on_death.append(callback)

    def kill(self, *, silent: bool = False) -> None:
        """End it at this very moment: nothing of it runs any more and, if it is killed by its own
        code, nothing that the rest of the running callback does has an effect.

        silent: the machine lost its power, so that peers learn nothing.
        """
        engine = self._engine
        if self is engine.world:
            raise ValueError("the world cannot be killed")
        if not self.is_alive:
            return
        engine.trace.note(f"{'power loss' if silent else 'killed'} {self.label}")
        self.is_alive = False
        engine.loop.retire(self)
        engine.network.process_died(self, silent=silent)
        callbacks, self._on_death = self._on_death, []
        for callback in callbacks:
            engine.world.context.copy().run(callback)
        if CURRENT.get(None) is self:
            engine.loop.mute()

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs; timers that come due and data that arrives wait."""
        if self.is_alive and not self.is_paused:
            self._engine.trace.note(f"paused {self.label}")
            self.is_paused = True
            self._engine.loop.retire(self)

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_alive and self.is_paused:
            self._engine.trace.note(f"resumed {self.label}")
            self.is_paused = False
            self._engine.loop.wake(self)

    def discard(self) -> None:
        """The run is over: let everything go."""
        self._tasks.clear()
        self.remains.clear()
        self.ready.clear()
        self._on_death.clear()
