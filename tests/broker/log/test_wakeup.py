"""The signal that wakes the task of an open log."""

from __future__ import annotations

import asyncio

from fencelog.broker.log.wakeup import Wakeup


async def test_a_task_waits_until_the_flag_is_set_and_not_when_it_is_set_already() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    wakeup.set()
    wakeup.set()  # before the task has run
    await waiting
    await wakeup.wait()
    wakeup.clear()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait((waiting,))
    wakeup.set()  # nobody waits any more
    await wakeup.wait()
