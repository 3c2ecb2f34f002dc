"""Few openings at a time; and one that is slow holds nobody up."""

from __future__ import annotations

import asyncio

from fencelog.broker.partition.opening_gate import OpeningGate


async def test_few_are_opened_at_a_time_in_the_order_of_asking() -> None:
    gate = OpeningGate(2, slow_ms=60_000)
    under_way = most = 0
    begun: list[int] = []

    async def open_one(number: int) -> None:
        nonlocal under_way, most
        async with gate.turn():
            begun.append(number)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    await asyncio.gather(*(open_one(number) for number in range(20)))
    assert most == 2
    assert begun == list(range(20))


async def test_a_slow_one_gives_its_turn_away_once() -> None:
    gate = OpeningGate(1, slow_ms=20)
    stuck = asyncio.Event()

    async def slow() -> None:
        async with gate.turn():
            await stuck.wait()

    slow_one = asyncio.create_task(slow())
    await asyncio.sleep(0)
    async with asyncio.timeout(10), gate.turn():
        stuck.set()
        await slow_one  # it ends, and does not give away a turn that is another's now
        beside = asyncio.create_task(slow())
        await asyncio.sleep(0)
        assert gate._slots.locked()
    await beside


async def test_one_that_fails_or_is_cancelled_gives_its_turn_back() -> None:
    gate = OpeningGate(1, slow_ms=60_000)

    async def fail() -> None:
        async with gate.turn():
            raise ValueError

    async def wait() -> None:
        async with gate.turn():
            await asyncio.Event().wait()

    await asyncio.gather(fail(), return_exceptions=True)
    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    async with asyncio.timeout(10), gate.turn():
        pass
