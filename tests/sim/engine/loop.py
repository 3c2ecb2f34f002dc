"""An asyncio loop with virtual time and a seeded schedule.

Within a process callbacks run in the order of ``call_soon``, as asyncio promises; between processes
chance decides, callback by callback. Each one costs a few virtual microseconds; when none is ready,
time jumps to the next timer. There are no threads, sockets or clocks.
"""

from __future__ import annotations

import asyncio
import gc
import random  # noqa: TID251 - for the type of a seeded stream
import traceback
from array import array
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NoReturn

from tests.sim.engine.handles import SimHandle, SimTask, SimTimer
from tests.sim.engine.process import CURRENT, Process, ProcessDied

if TYPE_CHECKING:
    from tests.sim.engine.engine import Trace
    from tests.sim.network.network import Network

_BATCH = 4096
"""Callbacks between two feeds of the trace's hash."""

_BATCHES_PER_COLLECTION = 25
_MAX_CALLBACK_US = 20
_MIN_CANCELLED_TO_TIDY = 128
"""The number of cancelled timers from which on they are taken out, where they are the majority."""

_NEVER_US = 1 << 62
_NEVER_S = _NEVER_US / 1e6

# Items of the queues are made without a call of __init__: one for each step of each task.
_new = object.__new__
_new_task = asyncio.Task.__new__


class SimTimeout(Exception):
    """The run took more virtual time than its budget."""


class SimStuck(Exception):
    """The error of a loop that has nothing left to run before its main coroutine is done."""


class SimEnded(Exception):
    """The run was ended before its main coroutine was done."""


class SimLoop(asyncio.BaseEventLoop):
    """Made by ``Engine``, one for each run."""

    _stopping: bool

    def __init__(self, chance: random.Random, trace: Trace) -> None:
        super().__init__()
        self.set_debug(False)
        self.now_us = 0
        self.deadline_us = _NEVER_US
        self.world: Process
        self.processes: list[Process] = []
        self.network: Network
        self.on_failure: Callable[[], object] = lambda: None
        """Called after each failure of a process."""
        self._chance = chance
        self._trace = trace
        self._runnable: list[Process] = []
        # (due, number, process, handle, None) or, for what happens outside of all processes,
        # (due, number, None, callback, args). The number keeps equal times in order.
        self._timers: list[tuple[int, int, Process | None, Any, Any]] = []
        self._timers_made = 0
        self._tasks_made = 0
        self._cancelled_timers = 0
        self._batches = 0
        self._steps = array("Q")
        self._is_muted = False
        self._is_over = False
        self._generators: dict[int, Process] = {}
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]  # without a frame of its own

    # -- what asyncio calls ----------------------------------------------------------------------

    def time(self) -> float:
        return self.now_us / 1e6

    def call_soon(  # type: ignore[override]  # typeshed's is generic
        self, *call: Any, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            process, context = self._here()
        else:
            process = context.get(CURRENT, self.world)
        handle: SimHandle = _new(SimHandle)
        handle._call, handle._context = call, context
        if process.is_alive and not self._is_muted:
            process.ready.append(handle)
            if not process.is_queued and not process.is_paused:
                process.is_queued = True
                self._runnable.append(process)
        else:
            process.remains.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # typeshed's is generic
        self,
        when: float,
        *call: Any,
        context: Context | None = None,
    ) -> SimTimer:
        return self._call_at(when, call, context)

    def call_later(  # type: ignore[override]  # typeshed's is generic
        self,
        delay: float,
        *call: Any,
        context: Context | None = None,
    ) -> SimTimer:
        return self._call_at(self.now_us / 1e6 + delay, call, context)

    def _call_at(self, when: float, call: tuple[Any, ...], context: Context | None) -> SimTimer:
        if context is None:
            process = CURRENT.get(None)
            if process is None:
                process, context = self._here()
            else:
                context = copy_context()
        else:
            process = context.get(CURRENT, self.world)
        timer: SimTimer = _new(SimTimer)
        timer._call, timer._context = call, context
        timer._loop, timer._when = self, when
        if process.is_alive and not self._is_muted:
            timer._scheduled = True
            # Never early, as its callback costs time before it looks at it.
            due_us = int(when * 1e6) if when < _NEVER_S else _NEVER_US
            if self._cancelled_timers > _MIN_CANCELLED_TO_TIDY:
                self._tidy()
            self._timers_made = number = self._timers_made + 1
            heappush(self._timers, (due_us, number, process, timer, None))
        else:
            timer._scheduled = False
            process.remains.append(timer)
        return timer

    def _here(self) -> tuple[Process, Context]:
        """Return the process that owns what is started now, the world outside of all processes."""
        process = CURRENT.get(None)
        if process is None:
            return self.world, self.world.context.copy()
        return process, copy_context()

    def create_task(  # type: ignore[override]  # typeshed's is generic
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        if context is None:
            process, context = self._here()
        else:
            process = context.get(CURRENT, self.world)
        self._tasks_made += 1
        name = process.next_task_name(name)
        task: SimTask = _new_task(SimTask)
        task.number = self._tasks_made  # its hash, which its initialisation asks for
        task.__init__(coro, loop=self, name=name, context=context, **options)  # type: ignore[misc]  # once
        process.adopt(task)
        return task

    async def create_connection(  # type: ignore[override]  # only what the service passes
        self, protocol_factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> tuple[Any, Any]:
        """Connect to a port of a machine. Raises OSError. No option is supported."""
        if options:
            raise NotImplementedError(f"simulated connections take no {', '.join(options)}")
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]  # only what the service passes
        self, protocol_factory: Callable[[], Any], host: str | None, port: int, **options: Any
    ) -> Any:
        """Listen on the machine of the running process; port 0 takes a free one. Raises OSError."""
        if options:
            raise NotImplementedError(f"simulated servers take no {', '.join(options)}")
        return self.network.listen(protocol_factory, host, port)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Count an error that asyncio found unhandled as a failure of its process."""
        error = context.get("exception")
        if self._is_over or isinstance(error, ProcessDied):
            return
        process = self._owner(context)
        if process.is_alive:
            self._trace.note(f"failure in {process.label}: {type(error).__name__}")
            text = "".join(traceback.format_exception(error)) if error is not None else ""
            process.failures.append(f"{process.label}: {context.get('message')}\n{text}")
            self.on_failure()

    def _owner(self, context: dict[str, Any]) -> Process:
        handle = context.get("handle")
        if isinstance(handle, SimHandle):
            return handle._context.get(CURRENT, self.world)
        task = context.get("task") or context.get("future")
        if isinstance(task, asyncio.Task):
            label = task.get_name().partition("/")[0]
            return next((p for p in self.processes if p.label == label), self.world)
        return CURRENT.get(self.world)

    def call_soon_threadsafe(
        self, callback: object, *args: object, context: object = None
    ) -> NoReturn:
        raise RuntimeError("there are no threads in a simulation: call_soon_threadsafe")

    def run_in_executor(self, executor: object, func: object, *args: object) -> NoReturn:
        raise RuntimeError("there are no threads in a simulation: run_in_executor")

    def getaddrinfo(self, *args: Any, **options: Any) -> NoReturn:
        raise RuntimeError("there are no names to look up in a simulation: getaddrinfo")

    def _asyncgen_firstiter_hook(self, generator: Any) -> None:
        self._generators[id(generator)] = CURRENT.get(self.world)

    def _asyncgen_finalizer_hook(self, generator: Any) -> None:
        process = self._generators.pop(id(generator), self.world)
        if process.is_alive and not self._is_over:
            context = process.context.copy()
            self.call_soon(self.create_task, generator.aclose(), context=context)

    # -- what the simulator calls ----------------------------------------------------------------

    def at(self, due_us: int, callback: Callable[..., object], *args: Any) -> None:
        """Call back at a virtual time, outside of all processes and at no cost."""
        self._timers_made = number = self._timers_made + 1
        heappush(self._timers, (due_us, number, None, callback, args))

    def deliver(self, process: Process, *call: Any) -> None:
        """Let a process call back as soon as it gets to it; nothing happens if it is dead."""
        if process.is_alive:
            handle: SimHandle = _new(SimHandle)
            handle._call, handle._context = call, process.context
            process.ready.append(handle)
            if not process.is_queued and not process.is_paused:
                process.is_queued = True
                self._runnable.append(process)

    def wake(self, process: Process) -> None:
        """Put a process on the list of those that can run, if it can."""
        if process.ready and not process.is_paused and not process.is_queued:
            process.is_queued = True
            self._runnable.append(process)

    def retire(self, process: Process) -> None:
        """Take a process off that list."""
        if process.is_queued:
            process.is_queued = False
            self._runnable.remove(process)

    def mute(self) -> None:
        """The running callback's process died: nothing that the rest of it does has an effect."""
        self._is_muted = True

    def finish(self) -> None:
        """Let no callback have an effect any more."""
        self.flush_steps()
        self._is_over = True
        self._is_muted = True

    def timer_cancelled(self) -> None:
        self._cancelled_timers += 1

    # -- running ---------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Take out cancelled timers where they are the majority."""
        timers = self._timers
        if 2 * self._cancelled_timers > len(timers):
            timers[:] = [timer for timer in timers if timer[2] is None or timer[3]._call]
            heapify(timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Run up to a batch of callbacks."""
        chance = self._chance.random
        timers = self._timers
        runnable = self._runnable
        add_step = self._steps.append
        deadline_us = self.deadline_us
        now_us = self.now_us
        for _ in range(_BATCH):
            if self._stopping:
                break
            if timers and timers[0][0] <= now_us:
                self._take_due()
            if not runnable:
                now_us = self._jump()
                continue
            pick = chance() * len(runnable)
            index = int(pick)
            process = runnable[index]
            ready = process.ready
            handle = ready.popleft()
            if not ready:
                process.is_queued = False
                last = runnable.pop()
                if last is not process:
                    runnable[index] = last
            call = handle._call
            if not call:
                continue
            self.now_us = now_us = now_us + 1 + int((pick - index) * _MAX_CALLBACK_US)
            if now_us > deadline_us:
                raise SimTimeout(f"not done after {deadline_us / 1e6:g} virtual seconds")
            add_step(now_us << 8 | process.mark)
            try:
                handle._context.run(*call)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                message = "unhandled exception in a callback"
                self.call_exception_handler(
                    {"message": message, "exception": error, "handle": handle}
                )
            self._is_muted = False
        self.flush_steps()
        self._batches += 1
        if self._batches % _BATCHES_PER_COLLECTION == 0:
            gc.collect()

    def flush_steps(self) -> None:
        self._trace.steps(self._steps)
        del self._steps[:]

    def _take_due(self) -> None:
        """Put what has come due behind what its process can run; the network is called at once."""
        timers, now_us = self._timers, self.now_us
        while timers and timers[0][0] <= now_us:
            _, _, process, timer, args = heappop(timers)
            if process is None:
                timer(*args)
                continue
            timer._scheduled = False
            if not timer._call:
                self._cancelled_timers -= 1
            elif process.is_alive:
                process.ready.append(timer)
                if not process.is_queued and not process.is_paused:
                    process.is_queued = True
                    self._runnable.append(process)
            else:
                process.remains.append(timer)

    def _jump(self) -> int:
        """Let time pass until the next timer, since no callback is ready."""
        timers = self._timers
        while timers:
            due_us, _, process, timer, _ = timers[0]
            if process is None or (process.is_alive and timer._call):
                break
            heappop(timers)
            timer._scheduled = False
            if timer._call:
                process.remains.append(timer)
            else:
                self._cancelled_timers -= 1
        if not timers:
            raise SimStuck("nothing is left to run, and the run is not done")
        if due_us > self.deadline_us:
            raise SimTimeout(f"not done after {self.deadline_us / 1e6:g} virtual seconds")
        self.now_us = max(self.now_us, due_us)
        return self.now_us

    def __del__(self) -> None:
        """A loop that never ran holds nothing that would have to be closed."""

    def close(self) -> None:
        self._timers.clear()
        self._runnable.clear()
        self._generators.clear()
        super().close()
