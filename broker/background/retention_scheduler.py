"""The task that applies retention, time to live and quotas to all open logs of a broker, and has
quiet ones checked.

Ten thousand logs do not have a timer each: within a period every log is examined once, some at a
time, which costs microseconds where there is nothing to do. Only a log with work to do gets a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from math import ceil

from fencelog.broker.ledger_list.store import LedgerListLost
from fencelog.broker.partition.partition_log import PartitionLog

STEPS = 50
"""The parts of a period, at most: a broker with few logs wakes up for each of them and no more."""

LOOKS_AT_ONCE = 100
"""The logs that are looked at in one turn of the event loop: two milliseconds, in which no request
is served. With 30,000 logs a part of the period has 600."""

AT_ONCE = 16
"""The logs that are processed at the same time: each changes metadata, and producers need that
too."""

log = logging.getLogger(__name__)


class RetentionScheduler:
    """The scheduler. ``logs``: the logs that are open now (None: one that is not)."""

    def __init__(
        self, logs: Callable[[], Iterable[PartitionLog | None]], *, period_s: float
    ) -> None:
        self._logs = logs
        self._period_s = period_s
        self._tending: dict[PartitionLog, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="retention")

    async def close(self) -> None:
        """Stop the scheduler. Work in progress ends as after a crash. Never raises."""
        tasks = [*self._tending.values(), *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _keep(self) -> None:
        while True:
            logs = [each for each in self._logs() if each is not None]
            steps = max(1, min(STEPS, len(logs)))
            share = ceil(len(logs) / steps)
            for step in range(steps):
                await asyncio.sleep(self._period_s / steps)
                for number, each in enumerate(logs[step * share : (step + 1) * share]):
                    if number and number % LOOKS_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    try:
                        await self._look_at(each)
                    except Exception:  # a bug; the other logs are to be looked at all the same
                        log.exception("retention of %s failed", each.name)

    async def _look_at(self, each: PartitionLog) -> None:
        if not each.is_serving or each in self._tending:
            return
        if not each.retention.is_due() and not each.quiet_check.is_due():
            return
        while len(self._tending) >= AT_ONCE:
            await asyncio.wait(self._tending.values(), return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.get_running_loop().create_task(self._tend(each))
        self._tending[each] = task
        task.add_done_callback(lambda _: self._tending.pop(each))

    async def _tend(self, each: PartitionLog) -> None:
        try:
            if each.quiet_check.is_due():
                await each.quiet_check.check()
            if each.retention.is_due():
                await each.retention.tend()
        except LedgerListLost:
            pass  # the log has ended
        except Exception:
            log.exception("retention of %s failed", each.name)
