"""I/O threads of the simulated disk: order, time, deaths; and the real bookie on top of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.disk.port import IoThread
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.limits import KIB
from tests.sim.disk.disk import SimDisk
from tests.sim.engine.engine import Engine
from tests.sim.engine.host import SimHost
from tests.sim.engine.process import Process, ProcessDied, ProcessLost, current_process

DATA = Path("/b1/data")


class Machine:
    """A disk, and one process after the other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.disk = SimDisk(engine, "b1")

    def boot(self) -> Process:
        process = self.engine.start_process("b1")
        self.disk.attach(process)
        return process


def simulate(main: Callable[[Machine], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    engine = Engine(seed)
    return engine.run(main(Machine(engine)), budget_s=600)


# -- I/O threads -----------------------------------------------------------------------------------


def test_work_of_a_io_thread_runs_in_order_and_is_reported_in_order_and_later() -> None:
    async def main(machine: Machine) -> None:
        process = machine.boot()
        log: list[object] = []

        def work(number: int) -> Callable[[], None]:
            def run() -> None:
                assert current_process() is process
                log.append(number)
                if number == 3:
                    raise ValueError("three")

            return run

        def told(number: int, error: BaseException | None) -> None:
            log.append((number, error))

        async def life() -> None:
            io_thread = machine.disk.io_thread("test")
            for number in range(6):
                io_thread.submit(work(number), partial(told, number))
            assert log == []
            await io_thread.close()

        await process.call(life())
        assert [item for item in log if isinstance(item, int)] == list(range(6))
        reports = [item for item in log if isinstance(item, tuple)]
        assert [number for number, _ in reports] == list(range(6))
        assert [type(error) for _, error in reports] == [type(None)] * 3 + [ValueError] + [
            type(None)
        ] * 2
        assert all(log.index(number) < log.index(report) for number, report in enumerate(reports))

    simulate(main)


def test_two_io_threads_interleave_in_more_than_one_way() -> None:
    async def main(machine: Machine) -> str:
        process = machine.boot()
        log: list[str] = []

        async def life() -> None:
            io_threads = [machine.disk.io_thread(name) for name in "ab"]
            for _ in range(3):
                for name, io_thread in zip("ab", io_threads, strict=True):
                    io_thread.submit(partial(log.append, name), lambda error: None)
            await asyncio.gather(*(io_thread.close() for io_thread in io_threads))

        await process.call(life())
        return "".join(log)

    seen = {simulate(main, seed) for seed in range(1, 41)}
    assert len(seen) > 5
    assert all(sorted(order) == sorted("aaabbb") for order in seen)
    assert simulate(main, 7) == simulate(main, 7)


def test_syncs_take_their_time_and_slow_disks_longer() -> None:
    async def main(machine: Machine) -> tuple[float, float]:
        process = machine.boot()
        disk = machine.disk
        disk.latency_s, disk.sync_latency_s = (0.001, 0.001), (0.010, 0.010)
        loop = machine.engine.loop

        async def life() -> tuple[float, float]:
            io_thread = disk.io_thread("test")
            await io_thread.run(lambda: disk.make_directory(DATA))
            file = await io_thread.run(lambda: disk.create(DATA / "1"))
            took = []

            def sync_twice() -> None:
                file.sync()
                file.sync()

            for factor in (1, 7):
                disk.slow(factor)
                began = loop.time()
                await io_thread.run(sync_twice)
                took.append(loop.time() - began)
            return took[0], took[1]

        return await process.call(life())

    usual, slow = simulate(main)
    assert usual == pytest.approx(0.021, abs=0.001)
    assert slow == pytest.approx(0.147, abs=0.001)


def test_results_and_errors_come_back_and_a_cancelled_caller_stops_nothing() -> None:
    async def main(machine: Machine) -> None:
        process = machine.boot()
        done: list[int] = []

        async def life() -> None:
            io_thread: IoThread = machine.disk.io_thread("test")
            assert await io_thread.run(lambda: 42) == 42
            with pytest.raises(ZeroDivisionError):
                await io_thread.run(lambda: 1 // 0)
            task = asyncio.create_task(io_thread.run(lambda: done.append(1)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert done == []
            await asyncio.gather(io_thread.close(), io_thread.close())
            assert done == [1]
            with pytest.raises(AssertionError, match="closed"):
                io_thread.submit(lambda: None, lambda error: None)

        await process.call(life())
        assert process.failures == []

    simulate(main)


def test_nothing_of_a_dead_process_runs_and_a_planned_death_is_reported_to_nobody() -> None:
    async def main(machine: Machine) -> tuple[bool, ...]:
        process = machine.boot()
        disk = machine.disk
        log: list[str] = []

        async def life() -> None:
            io_thread = disk.io_thread("test")
            await io_thread.run(lambda: disk.make_directory(DATA))
            disk.die_after(2)

            def work() -> None:
                disk.create(DATA / "1")
                try:
                    disk.create(DATA / "2")
                finally:
                    with pytest.raises(ProcessDied):
                        disk.create(DATA / "3")
                log.append("went on")

            io_thread.submit(work, lambda error: log.append("reported"))
            io_thread.submit(lambda: log.append("next"), lambda error: log.append("reported"))
            await io_thread.close()

        with pytest.raises(ProcessLost):
            await process.call(life())
        await asyncio.sleep(1)
        assert log == []
        machine.boot()
        names = disk.names(DATA)
        assert "3" not in names
        return "1" in names, "2" in names

    assert {simulate(main, seed) for seed in range(1, 21)} == {(True, False), (True, True)}


def test_a_paused_process_does_no_work_until_it_goes_on() -> None:
    async def main(machine: Machine) -> None:
        process = machine.boot()
        log: list[str] = []

        async def life() -> None:
            await machine.disk.io_thread("test").run(lambda: log.append("ran"))

        process.spawn(life())
        await asyncio.sleep(0)
        process.pause()
        await asyncio.sleep(1)
        assert log == []
        process.resume()
        await asyncio.sleep(1)
        assert log == ["ran"]

    simulate(main)


# -- the bookie ----------------------------------------------------------------------------------


class Promises:
    """Runs that a bookie has acknowledged, and those that it was only given."""

    def __init__(self) -> None:
        self.given = 0
        self.kept: dict[int, bytes] = {}

    async def add_until_death(self, machine: Machine) -> None:
        bookie = await open_bookie(machine)
        random = machine.engine.random("adds")
        while True:
            entry_id = self.given
            self.given += 1
            payload = f"entry {entry_id} ".encode() * random.randint(1, 200)
            run = build_run(7, entry_id, [payload], lac=-1, length_before=0)
            bookie.add(run, recovery=False, on_reply=self._on_reply(entry_id, run))
            if random.random() < 0.5:
                await asyncio.sleep(random.random() / 100)

    def _on_reply(self, entry_id: int, run: bytes) -> Callable[[FencelogError | None], None]:
        def replied(error: FencelogError | None) -> None:
            assert error is None
            self.kept[entry_id] = run

        return replied


async def open_bookie(machine: Machine) -> Bookie:
    config = BookieConfig(
        data_dir=DATA,
        bookie_id="b1",
        write_cache_bytes=32 * KIB,
        flush_interval_ms=40,
    )
    # Below what the configuration allows: replay searches all of a file, and files end often so.
    object.__setattr__(config, "journal_file_bytes", 64 * KIB)
    return await Bookie.open(config, disk=machine.disk, host=SimHost(machine.engine, "b1"))


async def bookie_through_crashes(machine: Machine) -> int:
    """Crash after crash, some in the middle of opening; then what was acknowledged is read."""
    promises = Promises()
    random = machine.engine.random("crashes")
    for _ in range(4):
        process = machine.boot()
        task = process.spawn(promises.add_until_death(machine))
        if random.random() < 0.7:
            machine.disk.die_after(random.randint(1, 120))
        for _ in range(random.randint(1, 60)):
            await asyncio.sleep(0.005)
            if not process.is_alive:
                break
        process.kill()
        assert process.failures == []
        assert not task.done(), task
        if random.random() < 0.8:
            machine.disk.power_loss()

    async def check() -> None:
        bookie = await open_bookie(machine)
        for entry_id, run in promises.kept.items():
            reply = await bookie.read(7, entry_id, max_entries=1, max_bytes=1 << 20)
            assert reply.run == run
        await bookie.close()

    process = machine.boot()
    await process.call(check())
    assert process.live_tasks() == []
    return len(promises.kept)


def test_a_bookie_keeps_its_promises_through_power_losses() -> None:
    kept = [simulate(bookie_through_crashes, seed) for seed in range(1, 101)]
    assert sum(kept) > 1000


def test_the_same_seed_is_the_same_history() -> None:
    def digest(seed: int) -> str:
        engine = Engine(seed)
        engine.run(bookie_through_crashes(Machine(engine)), budget_s=600)
        return engine.trace.digest

    assert digest(5) == digest(5) != digest(6)


@pytest.mark.parametrize("forgotten", ["files.FileData.sync", "names.Directory.sync"])
def test_a_disk_that_forgets_a_sync_is_found_out(
    monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    """The test above can fail: without syncs promises are broken."""
    monkeypatch.setattr(f"tests.sim.disk.{forgotten}", lambda _: None)

    def history(seed: int) -> bool:
        try:
            simulate(bookie_through_crashes, seed)
        except (AssertionError, FencelogError):
            return False
        return True

    assert not all(history(seed) for seed in range(1, 21))
