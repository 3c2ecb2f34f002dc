"""Turns of bytes and of the event loop: nobody is passed by, nothing is counted twice."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, so that a failure can be repeated

import pytest

from fencelog.broker.read.read_fairness import FairByteSemaphore, LoopYielder


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Users:
    """Tasks that use bytes until they are told to stop."""

    def __init__(self, semaphore: FairByteSemaphore) -> None:
        self.semaphore = semaphore
        self.order: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, size: int, *, who: str = "") -> None:
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._use(name, size, who or name))

    async def _use(self, name: str, size: int, who: str) -> None:
        async with self.semaphore.turn(who, size):
            self.order.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await settle()


async def test_bytes_are_bounded_and_given_in_the_order_of_arrival() -> None:
    users = Users(FairByteSemaphore(10))
    for name, size in (("a", 6), ("b", 5), ("c", 1), ("d", 99)):
        users.start(name, size)
    await settle()
    assert users.order == ["a"]  # c would have room, and does not pass b by
    assert not users.semaphore.try_take(1)
    await users.end("a")
    assert (users.order, users.semaphore.in_use) == (["a", "b", "c"], 6)
    await users.end("b")
    assert users.order == ["a", "b", "c"]
    await users.end("c")
    assert users.order[-1] == "d"  # larger than all there is: alone
    await users.end("d")
    assert users.semaphore.in_use == 0
    assert users.semaphore.try_take(10)


async def test_logs_take_turns_however_many_readers_one_has() -> None:
    users = Users(FairByteSemaphore(1))
    users.start("first", 1)
    await settle()
    for number in range(3):
        users.start(f"greedy {number}", 1, who="greedy")
    users.start("modest", 1)
    await settle()
    for name in ("first", "greedy 0", "modest", "greedy 1", "greedy 2"):
        assert users.order[-1] == name
        await users.end(name)


async def test_who_stops_waiting_is_not_waited_for() -> None:
    users = Users(FairByteSemaphore(10))
    users.start("a", 10)
    await settle()
    for name, size in (("b", 9), ("c", 5), ("d", 5)):
        users.start(name, size, who="b")
    users.start("e", 1)
    await settle()
    users.tasks["c"].cancel()
    await settle()
    users.ends["a"].set()
    await asyncio.sleep(0)
    users.tasks["b"].cancel()  # in the moment in which its turn comes
    await settle()
    assert users.order == ["a", "e", "d"]
    for name in ("d", "e"):
        await users.end(name)
    assert users.semaphore.in_use == 0


async def test_who_leaves_in_the_moment_in_which_the_queue_moves_just_leaves() -> None:
    semaphore = FairByteSemaphore(10)
    assert semaphore.try_take(10)
    leaving = asyncio.create_task(semaphore.take("a", 5))
    await settle()
    leaving.cancel()
    semaphore.give_back(10)  # passes by somebody who has gone, and has not noticed yet
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert semaphore.try_take(10)


async def test_bytes_are_never_over_the_limit_nor_lost() -> None:
    draw = random.Random(1)
    semaphore = FairByteSemaphore(20)

    async def use() -> None:
        size = draw.randint(1, 12)
        async with semaphore.turn(draw.randint(0, 3), size):
            assert semaphore.in_use <= 20
            for _ in range(draw.randint(0, 4)):
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(use()) for _ in range(300)]
    for _ in range(100):
        await asyncio.sleep(0)
        draw.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert semaphore.in_use == 0
    assert semaphore.try_take(20)


async def test_the_loop_does_one_step_in_a_round() -> None:
    semaphore = LoopYielder()
    steps: list[str] = []
    rounds: list[int] = []

    async def work(name: str, count: int) -> None:
        for _ in range(count):
            await semaphore.turn()
            steps.append(name)

    async def watch() -> None:
        while len(steps) < 7:
            before = len(steps)
            await asyncio.sleep(0)
            rounds.append(len(steps) - before)

    gone = asyncio.create_task(work("gone", 1))
    working = [asyncio.create_task(work(name, 3)) for name in ("a", "b")]
    await asyncio.sleep(0)
    gone.cancel()
    working.append(asyncio.create_task(work("c", 1)))
    await asyncio.gather(watch(), *working)
    assert steps == ["a", "b", "c", "a", "b", "a", "b"]
    assert max(rounds) == 1
    await work("later", 1)  # it begins anew
