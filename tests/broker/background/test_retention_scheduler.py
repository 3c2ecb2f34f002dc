"""The one task that looks after the retention of all logs: how often it wakes, what it looks at."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from fencelog.broker.background.retention_scheduler import (
    LOOKS_AT_ONCE,
    STEPS,
    RetentionScheduler,
)
from tests.support.until import until

PERIOD_S = 5.0


class Log:
    """The part of a partition's log that the scheduler uses; it records the calls."""

    def __init__(self, looked_at: Counter[Log]) -> None:
        self._looked_at = looked_at

    @property
    def is_serving(self) -> bool:
        self._looked_at[self] += 1
        return False


@pytest.mark.parametrize("count", [0, 1, 3, 49, 50, 51, 120, 1000])
async def test_every_log_is_looked_at_once_in_a_period(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """One that has few wakes up for each of them, one that has many a bounded number of times."""
    sleeps: list[float] = []
    is_over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if sum(sleeps) > PERIOD_S * 0.999:
            is_over.set()
            await asyncio.Event().wait()
        sleeps.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    looked_at: Counter[Log] = Counter()
    logs: list[Any] = [None, *(Log(looked_at) for _ in range(count))]
    scheduler = RetentionScheduler(lambda: logs, period_s=PERIOD_S)
    scheduler.start()
    await is_over.wait()
    await scheduler.close()
    assert [looked_at[each] for each in logs[1:]] == [1] * count
    assert len(sleeps) == min(max(count, 1), STEPS)
    assert sum(sleeps) == pytest.approx(PERIOD_S)


async def test_no_turn_of_the_loop_looks_at_more_than_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With many logs, each part of the period has more than can be looked at without a pause."""
    looks = [0]
    is_over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if sum(looks) == len(logs):
            is_over.set()
            await asyncio.Event().wait()
        looks.append(0)

    class CountedLog:
        @property
        def is_serving(self) -> bool:
            looks[-1] += 1
            return False

    logs: list[Any] = [CountedLog() for _ in range(3 * STEPS * LOOKS_AT_ONCE)]
    monkeypatch.setattr(asyncio, "sleep", sleep)
    scheduler = RetentionScheduler(lambda: logs, period_s=PERIOD_S)
    scheduler.start()
    await is_over.wait()
    await scheduler.close()
    assert max(looks) == LOOKS_AT_ONCE


async def test_a_bug_at_one_log_ends_the_look_at_no_other() -> None:
    class Failing(Log):
        name = "failing"

        @property
        def is_serving(self) -> bool:
            super().is_serving  # noqa: B018 - it is counted
            raise ZeroDivisionError("a bug")

    looked_at: Counter[Log] = Counter()
    logs: list[Any] = [Failing(looked_at), Log(looked_at)]
    scheduler = RetentionScheduler(lambda: logs, period_s=0.1)
    scheduler.start()
    await until(lambda: min(looked_at[each] for each in logs) >= 3)
    await scheduler.close()
