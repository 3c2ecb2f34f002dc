"""The simulated loop: virtual time, a seeded schedule, asyncio on top of it; the same each time."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sim.engine.engine import Engine
from tests.sim.engine.loop import SimEnded, SimStuck, SimTimeout
from tests.sim.engine.process import current_process


def simulate(main: Callable[[Engine], Awaitable[Any]], *, seed: int = 1) -> Any:
    engine = Engine(seed)

    async def run() -> Any:
        return await main(engine)

    return engine.run(run(), budget_s=1000)


def interleaving(seed: int) -> tuple[str, str]:
    """Three processes count side by side: in which order, and the trace's digest."""
    engine = Engine(seed)
    order: list[str] = []

    async def count(name: str) -> None:
        for _ in range(20):
            order.append(name)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(engine.start_process(n).call(count(n)) for n in "abc"))

    engine.run(main(), budget_s=10)
    return "".join(order), engine.trace.digest


# -- time ------------------------------------------------------------------------------------------


def test_time_begins_at_zero_and_jumps_to_the_next_timer() -> None:
    async def main(engine: Engine) -> tuple[float, float, int]:
        before = engine.loop.time()
        await asyncio.sleep(500)
        return before, engine.loop.time(), engine.now_us

    before, after, now_us = simulate(main)
    assert before < 0.001
    assert 500 <= after - before < 500.001
    assert now_us == round(after * 1e6)


def test_a_callback_costs_between_1_and_20_microseconds() -> None:
    async def main(engine: Engine) -> set[int]:
        costs = set()
        for _ in range(2000):
            before = engine.now_us
            await asyncio.sleep(0)
            costs.add(engine.now_us - before)
        return costs

    assert simulate(main) == set(range(1, 21))


def test_a_timer_never_runs_before_its_time() -> None:
    async def main(engine: Engine) -> None:
        chance = engine.random("delays")
        loop = engine.loop
        early: list[float] = []

        def due(when: float) -> None:
            if loop.time() < when:
                early.append(when)

        whens = [chance.random() * 3 for _ in range(1000)]
        for when in whens:
            loop.call_at(when, due, when)
        await asyncio.sleep(4)
        assert early == []

    simulate(main)


def test_timers_of_the_same_time_run_in_the_order_they_were_made() -> None:
    async def main(engine: Engine) -> list[int]:
        order: list[int] = []
        for number in range(100):
            engine.loop.call_at(1.0, order.append, number)
        await asyncio.sleep(2)
        return order

    assert simulate(main) == list(range(100))


def test_cancelled_timers_neither_run_nor_move_time_nor_pile_up() -> None:
    async def main(engine: Engine) -> None:
        ran: list[int] = []
        for number in range(5000):
            engine.loop.call_later(50 + number, ran.append, number).cancel()
        await asyncio.sleep(1)
        assert ran == []
        assert engine.loop.time() < 2
        assert len(engine.loop._timers) < 1000

    simulate(main)


# -- schedule --------------------------------------------------------------------------------------


def test_within_a_process_callbacks_run_in_the_order_they_were_asked_for() -> None:
    async def main(engine: Engine) -> None:
        seen: dict[str, list[int]] = {"a": [], "b": []}

        async def ask(name: str) -> None:
            for number in range(100):
                engine.loop.call_soon(seen[name].append, number)
            await asyncio.sleep(0.01)

        await asyncio.gather(*(engine.start_process(n).call(ask(n)) for n in "ab"))
        assert seen == {"a": list(range(100)), "b": list(range(100))}

    simulate(main)


def test_processes_interleave_and_seeds_differ() -> None:
    orders = {interleaving(seed)[0] for seed in range(20)}
    assert len(orders) == 20
    assert all(sorted(order) == sorted("abc" * 20) for order in orders)
    assert "a" * 20 + "b" * 20 + "c" * 20 not in orders


def test_the_same_seed_gives_the_same_run() -> None:
    assert interleaving(7) == interleaving(7)
    assert interleaving(7)[1] != interleaving(8)[1]


def test_another_interpreter_with_other_hashes_gives_the_same_run() -> None:
    root = Path(__file__).parents[3]
    program = "from tests.sim.engine import test_loop; print(*test_loop.interleaving(7))"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        )
        assert done.stdout.split() == list(interleaving(7))


def test_streams_of_chance_depend_on_seed_and_name_alone() -> None:
    engine, other = Engine(3), Engine(3)
    other.random("disk").random()
    assert engine.random("host").random() == other.random("host").random()
    assert engine.random("host") is engine.random("host")
    assert engine.random("a").random() != engine.random("b").random()
    assert Engine(4).random("a").random() != Engine(3).random("a").random()


def test_sets_of_tasks_have_one_order() -> None:
    def order() -> list[str]:
        names: list[str] = []

        async def main(engine: Engine) -> None:
            garbage = [object() for _ in range(engine.random("addresses").randrange(1000))]
            tasks = [asyncio.create_task(asyncio.sleep(1)) for _ in range(100)]
            done, _ = await asyncio.wait(tasks)
            names.extend(task.get_name() for task in done)
            assert garbage is not None

        simulate(main)
        return names

    assert order() == order()
    assert len(set(order())) == 100


# -- asyncio on top of it --------------------------------------------------------------------------


def test_asyncio_works() -> None:
    async def main(engine: Engine) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        assert 2 <= engine.loop.time() < 2.01
        results = await asyncio.gather(asyncio.sleep(2, "slow"), asyncio.sleep(1, "fast"))
        assert list(results) == ["slow", "fast"]

        lock, inside = asyncio.Lock(), 0

        async def enter() -> None:
            nonlocal inside
            async with lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.1)
                inside -= 1

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(enter())
        tasks = [asyncio.create_task(asyncio.sleep(delay)) for delay in (1, 50)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert done == {tasks[0]}
        assert pending == {tasks[1]}
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        writer = asyncio.create_task(queue.put(1))
        assert await queue.get() == 1
        await writer

        async def numbers() -> Any:
            for number in range(3):
                yield number
                await asyncio.sleep(0.1)

        assert [number async for number in numbers()] == [0, 1, 2]

    simulate(main)


def test_an_abandoned_generator_is_closed_in_its_process() -> None:
    async def main(engine: Engine) -> None:
        closed: list[str] = []

        async def numbers() -> Any:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(0.1)
                closed.append(current_process().machine)

        async def abandon() -> None:
            async for _ in numbers():
                break

        await engine.start_process("a").call(abandon())
        await asyncio.sleep(1)
        assert closed == ["a"]

    simulate(main)


def test_threads_and_names_are_refused() -> None:
    async def main(engine: Engine) -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            await engine.loop.run_in_executor(None, print)
        with pytest.raises(RuntimeError, match="no threads"):
            engine.loop.call_soon_threadsafe(print)
        with pytest.raises(RuntimeError, match="no names"):
            await engine.loop.getaddrinfo("localhost", 80)
        with pytest.raises(NotImplementedError, match="ssl"):
            await engine.loop.create_connection(asyncio.Protocol, "world", 80, ssl=True)

    simulate(main)


# -- the end ---------------------------------------------------------------------------------------


def test_a_run_gives_the_result_or_the_error_of_its_main() -> None:
    async def result(engine: Engine) -> str:
        return "result"

    async def error(engine: Engine) -> None:
        raise KeyError("of main")

    assert simulate(result) == "result"
    with pytest.raises(KeyError, match="of main"):
        simulate(error)


def test_a_run_over_its_budget_ends() -> None:
    async def sleep() -> None:
        await asyncio.sleep(11)

    async def busy() -> None:
        for _ in range(100_000):
            await asyncio.sleep(0)

    engine = Engine(1)
    with pytest.raises(SimTimeout, match="10 virtual seconds"):
        engine.run(sleep(), budget_s=10)
    with pytest.raises(SimTimeout, match=r"0\.01 virtual seconds"):
        Engine(1).run(busy(), budget_s=0.01)


def test_a_run_ends_when_it_is_told_to() -> None:
    engine = Engine(1)

    async def main() -> None:
        await asyncio.sleep(1)
        engine.end()
        await asyncio.sleep(10)

    with pytest.raises(SimEnded):
        engine.run(main(), budget_s=100)
    assert engine.now_us < 2_000_000


def test_a_run_with_nothing_left_to_do_is_stuck() -> None:
    async def main(engine: Engine) -> None:
        process = engine.start_process("a")
        task = process.spawn(asyncio.sleep(1))
        process.kill()
        await task

    with pytest.raises(SimStuck):
        simulate(main)


def test_nothing_is_left_of_a_run() -> None:
    """No warnings (they are errors here), no effects, and no memory."""
    effects: list[str] = []

    async def clean_up(engine: Engine) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            engine.loop.call_soon(effects.append, "called")
            task = asyncio.create_task(asyncio.sleep(0))
            await task
            effects.append("went on")

    async def fail() -> None:
        raise KeyError("never retrieved")

    async def main(engine: Engine) -> None:
        for number in range(5):
            process = engine.start_process(f"m{number}")
            for _ in range(5):
                process.spawn(clean_up(engine))
            await asyncio.sleep(0.1)
            if number % 2:
                process.kill()
                process.spawn(clean_up(engine))
                process.spawn(fail())
            process.spawn(fail())
        engine.loop.call_later(100, print)

    def run() -> None:
        engine = Engine(1)
        engine.run(main(engine), budget_s=10)

    run()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(10):
        run()
    gc.collect()
    assert len(gc.get_objects()) - before < 50
    assert effects == []
