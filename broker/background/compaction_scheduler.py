"""The scheduling of compaction: one task for all logs of a broker, one of them at a time.

So the memory of a pass is needed once, and ten thousand topics cost one iteration over a list. The
log that is due longest comes first; due times are spread by the logs' names, so that logs that
began together do not stay together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from fencelog.broker.limits import COMPACTION_LOOK_MS
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.host import Host

if TYPE_CHECKING:
    from fencelog.broker.partition.partition_log import PartitionLog


class CompactionScheduler:
    """The scheduler: ``start`` it, ``close`` it. ``logs``: the logs that are open here now, None
    for others."""

    def __init__(self, logs: Callable[[], Iterable[PartitionLog | None]], host: Host) -> None:
        self._logs = logs
        self._host = host
        self._asked: list[PartitionLog] = []
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="compaction")

    async def close(self) -> None:
        """Stop the scheduler. A pass in progress ends with its log."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def ask(self, log: PartitionLog) -> None:
        """Compact this log next, whatever its policy says."""
        if log not in self._asked:
            self._asked.append(log)
            self._wakeup.set()

    def is_asked(self, log: PartitionLog) -> bool:
        """Tell whether the log still waits for its pass."""
        return log in self._asked

    async def _keep(self) -> None:
        while True:
            log = self._asked[0] if self._asked else self._most_due()
            if log is None:
                self._wakeup.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(COMPACTION_LOOK_MS / 1000):
                        await self._wakeup.wait()
                continue
            if log.is_serving:
                await log.compaction.run()
            if log in self._asked:
                self._asked.remove(log)

    def _most_due(self) -> PartitionLog | None:
        now = self._host.now_us()
        best: tuple[int, PartitionLog] | None = None
        for log in self._logs():
            interval_ms = None if log is None else log.policy.compaction_ms
            if log is None or interval_ms is None:
                continue
            due = log.compaction.due_us(interval_ms)
            if due is None:
                continue
            due += spread_us(log.name, interval_ms)
            if due <= now and (best is None or due < best[0]):
                best = (due, log)
        return None if best is None else best[1]


def spread_us(name: str, interval_ms: int) -> int:
    """Return a delay of up to a tenth of the interval, the same for the same log."""
    return crc32c(name.encode()) % max(1, interval_ms * 100)
