"""One simulated run: a seed, virtual time, processes on machines, a network, a trace.

The same seed gives the same run, step by step; ``Trace.digest`` says whether two runs were the
same. Nothing depends on addresses of objects, the order of sets, the wall clock or on when garbage
is collected.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random  # noqa: TID251 - seeded streams only
import sys
import warnings
from array import array
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from tests.sim.engine.loop import SimEnded, SimLoop
from tests.sim.engine.process import CURRENT, Process, ProcessDied
from tests.sim.network.network import Network

T = TypeVar("T")

_NOTES_KEPT = 2000
_CLOSE_ATTEMPTS = 16


class Trace:
    """The trace of a run: a digest of everything and the text of the last notes."""

    def __init__(self) -> None:
        self.verbose = False
        self.notes: deque[str] = deque(maxlen=_NOTES_KEPT)
        self.now_us: Callable[[], int] = lambda: 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._marks = array("Q")
        self.mark: Callable[[Iterable[int]], None] = self._marks.extend
        """Take in numbers without keeping text of them."""

    def note(self, text: str) -> None:
        """Write down an event, with the time and the process it happened in."""
        process = CURRENT.get(None)
        line = f"{self.now_us() / 1e6:.6f} {process.label if process else '-'} {text}"
        self._hash.update(line.encode())
        self.notes.append(line)
        if self.verbose:
            sys.stdout.write(line + "\n")

    def steps(self, steps: array[int]) -> None:
        """Take in what the scheduler did: times and processes; and the marks since the last."""
        self._hash.update(steps.tobytes())
        self._hash.update(self._marks.tobytes())
        del self._marks[:]

    @property
    def digest(self) -> str:
        """Equal for equal runs, in hexadecimal."""
        return self._hash.hexdigest()


class Engine:
    """The engine of one run, not to be used again after ``run``."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}
        self.trace = Trace()
        self.loop = SimLoop(self.random("schedule"), self.trace)
        self.processes: list[Process] = self.loop.processes
        self.trace.now_us = lambda: self.loop.now_us
        self.network = self.loop.network = Network(self)
        self._running: dict[str, Process] = {}
        self.world = self.loop.world = self._new_process("world", 1)
        """The process of the test itself. It never dies."""

    def random(self, name: str) -> random.Random:
        """The stream of chance of that name; it depends on the seed and the name alone."""
        if name not in self._streams:
            self._streams[name] = random.Random(f"{self.seed}/{name}")
        return self._streams[name]

    @property
    def now_us(self) -> int:
        """Virtual microseconds since the beginning."""
        return self.loop.now_us

    def start_process(self, machine: str) -> Process:
        """Start a program on a machine. Raises ValueError while the previous run is alive."""
        previous = self._running.get(machine)
        if previous is not None and previous.is_alive:
            raise ValueError(f"{previous.label} is still alive")
        process = self._new_process(machine, previous.run + 1 if previous else 1)
        self.trace.note(f"started {process.label}")
        self.network.machine_up(machine)
        return process

    def _new_process(self, machine: str, run: int) -> Process:
        process = Process(self, machine, run, len(self.processes))
        self.processes.append(process)
        self._running[machine] = process
        return process

    def is_machine(self, name: str) -> bool:
        """Tell whether a process was ever started on it."""
        return name in self._running

    def run(self, main: Coroutine[Any, Any, T], *, budget_s: float) -> T:
        """Drive everything until ``main``, a coroutine of the world, is done; give its result.

        Raises what it raises, SimTimeout when virtual time passes the budget, SimStuck when nothing
        is left to run, and SimEnded after ``end``. At the end everything is dead.
        """
        self.loop.deadline_us = int(budget_s * 1e6)
        was_collecting = gc.isenabled()
        # Collections happen at known steps, and look at what this run made.
        gc.disable()
        gc.freeze()
        try:
            return self.world.context.copy().run(self._drive, main)
        finally:
            self._end()
            gc.unfreeze()
            if was_collecting:
                gc.enable()

    def end(self) -> None:
        """End the run with the callback that runs now."""
        self.loop.stop()

    def _drive(self, main: Coroutine[Any, Any, T]) -> T:
        task: asyncio.Task[T] = self.loop.create_task(main)
        task.add_done_callback(lambda _: self.loop.stop())
        self.loop.run_forever()
        if not task.done():
            raise SimEnded
        return task.result()

    def _end(self) -> None:
        """Note the failures that nobody looked at; then let everything go without a sound and
        without an effect."""
        for process in self.processes:
            process.forget_done()
        gc.collect()
        self.loop.finish()
        for process in self.processes:
            process.is_alive = False
        before = events._get_running_loop(), sys.unraisablehook
        events._set_running_loop(self.loop)
        sys.unraisablehook = _say_nothing
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for process in self.processes:
                    process.context.copy().run(_discard, process)
                self.network.close()
                self.loop.close()
                gc.collect()
        finally:
            events._set_running_loop(before[0])
            sys.unraisablehook = before[1]


def _say_nothing(_: Any) -> None:
    """Errors of what is let go mean nothing."""


def _discard(process: Process) -> None:
    for task in process.live_tasks():
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a private flag of asyncio
        coroutine: Any = task.get_coro()
        for _ in range(_CLOSE_ATTEMPTS):
            # What it does about that has no effect, and an error of it no meaning. (Not closed:
            # that would not reach into async generators.)
            try:
                coroutine.throw(ProcessDied())
            except BaseException:
                break
    process.discard()
