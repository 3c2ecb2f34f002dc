"""Simulated processes: what is theirs, what their death and their pauses do."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process, ProcessDied, ProcessLost, current_process


def simulate(main: Callable[[Engine], Awaitable[Any]], *, seed: int = 1) -> Engine:
    engine = Engine(seed)

    async def run() -> None:
        await main(engine)

    engine.run(run(), budget_s=1000)
    return engine


# -- whose is it -----------------------------------------------------------------------------------


def test_what_a_process_starts_is_its_own() -> None:
    async def main(engine: Engine) -> None:
        seen: list[str] = []

        def see() -> None:
            seen.append(current_process().machine)

        async def work() -> None:
            loop = asyncio.get_running_loop()
            loop.call_soon(see)
            loop.call_later(0.1, see)
            async with asyncio.TaskGroup() as group:
                group.create_task(nested())
            await asyncio.sleep(1)

        async def nested() -> None:
            await asyncio.sleep(0.2)
            see()

        await engine.start_process("a").call(work())
        see()
        assert seen == ["a", "a", "a", "world"]

    simulate(main)


def test_outside_a_simulation_there_is_no_process() -> None:
    with pytest.raises(LookupError):
        current_process()


def test_work_given_to_a_process_before_the_run_starts_runs_in_it() -> None:
    engine = Engine(1)
    seen: list[str] = []

    async def work() -> None:
        seen.append(current_process().label)

    async def main() -> None:
        await asyncio.sleep(1)

    engine.start_process("a").spawn(work())
    engine.loop.call_later(0.5, lambda: seen.append(current_process().label))
    engine.run(main(), budget_s=10)
    assert seen == ["a#1", "world#1"]


def test_live_tasks_are_those_not_done() -> None:
    async def main(engine: Engine) -> None:
        process = engine.start_process("a")
        tasks = [process.spawn(asyncio.sleep(delay)) for delay in range(200)]
        await asyncio.sleep(100.5)
        assert process.live_tasks() == tasks[101:]
        assert len({task.get_name() for task in tasks}) == 200

    simulate(main)


def test_a_machine_runs_one_process_at_a_time() -> None:
    async def main(engine: Engine) -> None:
        first = engine.start_process("a")
        with pytest.raises(ValueError, match="a#1 is still alive"):
            engine.start_process("a")
        first.kill()
        second = engine.start_process("a")
        assert (second.machine, second.run, second.is_alive) == ("a", 2, True)
        with pytest.raises(ValueError, match="world"):
            engine.world.kill()

    simulate(main)


# -- death -----------------------------------------------------------------------------------------


def test_nothing_of_a_dead_process_runs() -> None:
    ran: list[str] = []

    async def main(engine: Engine) -> None:
        async def work() -> None:
            engine.loop.call_later(2, ran.append, "timer")
            try:
                await asyncio.sleep(3)
                ran.append("task")
            finally:
                ran.append("finally")

        process = engine.start_process("a")
        task = process.spawn(work())
        await asyncio.sleep(1)
        process.kill()
        process.kill()
        process.spawn(work())
        await asyncio.sleep(10)
        assert ran == []
        assert not task.done()
        assert not process.is_alive

    simulate(main)


def test_the_rest_of_a_callback_that_kills_its_process_has_no_effect() -> None:
    async def main(engine: Engine) -> None:
        effects: list[str] = []
        outcome: asyncio.Future[str] = engine.loop.create_future()
        outcome.add_done_callback(lambda _: effects.append("future of another"))
        process = engine.start_process("a")

        async def child() -> None:
            effects.append("task")

        async def suicide() -> str:
            try:
                current_process().kill()
                engine.loop.call_soon(effects.append, "callback")
                engine.loop.call_at(1, effects.append, "timer")
                task = asyncio.create_task(child())
                outcome.set_result("too late")
                await task
                return "result"
            finally:
                effects.append("finally")

        died: list[str] = []
        process.on_death(lambda: died.append(current_process().machine))
        process.on_death(lambda: engine.loop.call_soon(died.append, "called back"))
        with pytest.raises(ProcessLost):
            await process.call(suicide())
        await asyncio.sleep(10)
        assert effects == []
        assert died == ["world", "called back"]
        assert process.failures == []

    simulate(main)


def test_dying_in_the_middle_of_work_is_no_failure_and_reaches_nobody() -> None:
    async def main(engine: Engine) -> None:
        async def work(process: Process) -> None:
            process.kill()
            raise ProcessDied

        def callback(process: Process) -> None:
            process.kill()
            raise ProcessDied

        process = engine.start_process("a")
        with pytest.raises(ProcessLost):
            await process.call(work(process))
        other = engine.start_process("b")
        other.context.run(engine.loop.call_soon, callback, other)
        await asyncio.sleep(1)
        assert not other.is_alive
        assert [p.failures for p in engine.processes] == [[], [], []]

    simulate(main)


# -- calls from outside ----------------------------------------------------------------------------


def test_a_call_gives_the_outcome_of_a_coroutine() -> None:
    async def main(engine: Engine) -> None:
        async def fail() -> None:
            raise KeyError("reason")

        process = engine.start_process("a")
        assert await process.call(asyncio.sleep(1, "slept")) == "slept"
        with pytest.raises(KeyError, match="reason"):
            await process.call(fail())
        cancelled: list[str] = []

        async def wait() -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                cancelled.append(current_process().machine)
                raise

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await process.call(wait())
        await asyncio.sleep(1)
        assert cancelled == ["a"]
        engine.loop.call_later(1, process.kill)
        with pytest.raises(ProcessLost, match="a#1 died"):
            await process.call(asyncio.sleep(5))
        with pytest.raises(ProcessLost, match="a#1 is dead"):
            await process.call(asyncio.sleep(0))
        assert process.failures == []

    simulate(main)


# -- pauses ----------------------------------------------------------------------------------------


def test_a_paused_process_does_nothing_and_then_what_came_due_in_order() -> None:
    async def main(engine: Engine) -> None:
        process = engine.start_process("a")
        ran: list[tuple[str, float]] = []

        def note(name: str) -> None:
            ran.append((name, round(engine.loop.time(), 2)))

        async def work() -> None:
            engine.loop.call_later(3, note, "second")
            engine.loop.call_later(2, note, "first")
            engine.loop.call_later(7, note, "last")

        await process.call(work())
        process.pause()
        process.pause()
        assert process.is_paused
        await asyncio.sleep(5)
        assert ran == []
        process.resume()
        process.resume()
        await asyncio.sleep(5)
        assert ran == [("first", 5), ("second", 5), ("last", 7)]

    simulate(main)


def test_a_process_that_is_killed_while_paused_stays_dead() -> None:
    async def main(engine: Engine) -> None:
        process = engine.start_process("a")
        task = process.spawn(asyncio.sleep(1))
        process.pause()
        process.kill()
        process.resume()
        await asyncio.sleep(2)
        assert not task.done()

    simulate(main)


def test_a_process_may_pause_itself() -> None:
    async def main(engine: Engine) -> None:
        process = engine.start_process("a")

        async def work() -> float:
            process.pause()
            await asyncio.sleep(0)
            return engine.loop.time()

        engine.loop.call_later(4, process.resume)
        assert await process.call(work()) >= 4

    simulate(main)


# -- failures --------------------------------------------------------------------------------------


def test_unhandled_exceptions_are_failures_of_their_process() -> None:
    async def fail(text: str) -> None:
        raise KeyError(text)

    def callback() -> None:
        raise KeyError("in a callback")

    class Ring:
        """Garbage that only a collection finds."""

        itself: Ring
        task: asyncio.Task[None]

    async def ring() -> None:
        ring = Ring()
        ring.itself = ring
        ring.task = asyncio.create_task(fail("in a ring"))
        await asyncio.sleep(0.1)

    async def main(engine: Engine) -> None:
        a, b, c = (engine.start_process(name) for name in "abc")
        a.context.run(engine.loop.call_soon, callback)
        b.spawn(fail("never retrieved"))
        await c.call(ring())
        await asyncio.sleep(1)
        assert len(a.failures) == 1

    engine = simulate(main)
    world, *processes = engine.processes
    assert world.failures == []
    for process, text in zip(
        processes, ("in a callback", "never retrieved", "in a ring"), strict=True
    ):
        assert len(process.failures) == 1
        assert process.failures[0].startswith(f"{process.label}: ")
        assert f"KeyError: '{text}'" in process.failures[0]
        assert "Traceback" in process.failures[0]


def test_an_exception_that_somebody_looked_at_or_may_still_look_at_is_none() -> None:
    async def fail() -> None:
        raise KeyError("seen")

    kept: list[asyncio.Task[None]] = []

    async def main(engine: Engine) -> None:
        process = engine.start_process("a")

        async def work() -> None:
            with pytest.raises(KeyError):
                await asyncio.create_task(fail())
            results = await asyncio.gather(fail(), fail(), return_exceptions=True)
            assert [type(result) for result in results] == [KeyError, KeyError]
            kept.append(asyncio.create_task(fail()))
            await asyncio.sleep(0.1)

        await process.call(work())
        dead = engine.start_process("b")
        dead.spawn(fail())
        dead.kill()

    engine = simulate(main)
    kept.clear()
    assert [process.failures for process in engine.processes] == [[], [], []]


def test_garbage_is_collected_at_known_steps_only() -> None:
    async def main(engine: Engine) -> None:
        assert not gc.isenabled()

    simulate(main)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


# -- trace and host --------------------------------------------------------------------------------


def test_the_trace_keeps_notes_and_prints_them_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main(engine: Engine) -> None:
        engine.trace.verbose = True
        await asyncio.sleep(1)
        process = engine.start_process("a")
        process.context.run(engine.trace.note, "of a")

    engine = simulate(main)
    assert [line.split(" ", 1)[1] for line in engine.trace.notes] == [
        "world#1 started a#1",
        "a#1 of a",
    ]
    assert capsys.readouterr().out.splitlines() == list(engine.trace.notes)
    assert engine.trace.digest != Engine(1).trace.digest


def test_a_host_has_a_date_and_chance_of_its_own() -> None:
    async def main(engine: Engine) -> None:
        a, b = SimHost(engine, "a"), SimHost(engine, "b")
        before = a.now_us()
        await asyncio.sleep(3)
        assert 3_000_000 <= a.now_us() - before < 3_001_000
        a.skew_us = -10_000_000
        assert a.now_us() == b.now_us() - 10_000_000
        assert a.random_bytes(16) != b.random_bytes(16)
        assert sorted(a.shuffled(range(10))) == list(range(10))
        assert 0 <= a.fraction() < 1

    simulate(main)
