"""When callers are told, and how often."""

from __future__ import annotations

import asyncio

from fencelog.broker.log.deadline import Deadline
from tests.support.broker_stage import Until


async def test_it_ends_once_and_no_later_for_being_begun_again(until: Until) -> None:
    ended: list[int] = []
    deadline = Deadline(0.01, lambda: ended.append(1))
    deadline.begin()
    first = deadline._timer
    deadline.begin()
    assert deadline._timer is first
    await until(lambda: bool(ended))
    deadline.begin()
    assert deadline._timer is first
    assert ended == [1]


async def test_who_waits_no_more_is_not_told_and_may_wait_again(until: Until) -> None:
    ended: list[int] = []
    deadline = Deadline(0.0, lambda: ended.append(1))
    deadline.stop()
    deadline.begin()
    deadline.stop()
    await asyncio.sleep(0.01)
    assert ended == []
    deadline.begin()
    await until(lambda: bool(ended))
