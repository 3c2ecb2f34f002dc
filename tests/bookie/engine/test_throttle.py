"""Adds that wait for room: in order, bounded, and answered whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any

from fencelog.bookie.engine.throttle import Throttle
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
from tests.support.bookie_stage import Requests


class Setup:
    def __init__(self, *, max_bytes: int) -> None:
        self.space = 0
        self.taken: list[int] = []
        self.changes: list[bool] = []
        self.answers: list[ErrorCode | None] = []
        self.throttle = Throttle(
            max_bytes=max_bytes,
            has_space=lambda: self.space > 0,
            take=self._take,
            on_change=lambda: self.changes.append(self.throttle.is_holding),
        )

    def _take(self, header: Any, _run: bytes, on_reply: Any) -> None:
        self.space -= 1
        self.taken.append(header.first_entry_id)
        on_reply(None)

    async def hold(self, run: bytes) -> None:
        def answer(error: FencelogError | None) -> None:
            self.answers.append(error.code if error else None)

        self.throttle.hold(read_run_header(run), run, answer)
        await asyncio.sleep(0)


async def test_they_are_taken_in_order_as_there_is_room(requests: Requests) -> None:
    setup = Setup(max_bytes=1000)
    for entry_id in range(3):
        await setup.hold(requests.run(1, entry_id))
    setup.space = 2
    setup.throttle.release()
    assert (setup.taken, setup.changes) == ([0, 1], [True])
    setup.space = 2
    setup.throttle.release()
    assert (setup.taken, setup.changes) == ([0, 1, 2], [True, False])
    setup.throttle.release()
    assert setup.answers == [None] * 3


async def test_more_than_the_limit_is_refused_but_one_may_always_wait(requests: Requests) -> None:
    """Else a bookie of many shards would refuse large entries whenever it has to catch up."""
    setup = Setup(max_bytes=1000)
    await setup.hold(requests.run(1, 0, size=5000))
    await setup.hold(requests.run(1, 1))
    assert setup.answers == [ErrorCode.OVERLOADED]
    setup.space = 1
    setup.throttle.release()
    assert setup.taken == [0]
    await setup.hold(requests.run(1, 2))
    await setup.hold(requests.run(1, 3))
    assert setup.answers == [ErrorCode.OVERLOADED, None]


async def test_all_are_answered_with_the_refusal(requests: Requests) -> None:
    setup = Setup(max_bytes=1000)
    error = FencelogError(ErrorCode.OUT_OF_SPACE, "full")
    setup.throttle.refuse(error)
    await setup.hold(requests.run(1, 0))
    await setup.hold(requests.run(1, 1))
    setup.throttle.refuse(error)
    assert setup.answers == [ErrorCode.OUT_OF_SPACE] * 2
    assert setup.changes == [True, False]
