"""The lag of subscriptions during the last hour: samples of the cursors in a broker's open
partitions.

They are in memory alone, and belong to the owner: the next one begins anew. Samples are taken at
multiples of the interval since 1970, so that those of several brokers can be added up.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress

from fencelog.broker.limits import (
    LAG_SAMPLE_MS,
    LAG_SAMPLES,
    MAX_SAMPLED_CURSORS,
    STATS_AT_ONCE,
)
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.ledgers.host import Host

LAG_SAMPLE_US = LAG_SAMPLE_MS * 1000
_NOT_SAMPLED = -1


class CursorSamples:
    """The samples of one cursor, the newest of which was taken at ``newest`` times LAG_SAMPLE_US
    since 1970."""

    __slots__ = ("_messages", "newest")

    def __init__(self, tick: int, messages: int) -> None:
        self.newest = tick
        self._messages = array("q", (messages,))

    def add(self, tick: int, messages: int) -> None:
        """Add a sample. One of a time that was sampled already is left out: the clock was set
        back."""
        missed = tick - self.newest - 1
        if missed < 0:
            return
        self.newest = tick
        if missed >= LAG_SAMPLES:
            del self._messages[:]
        elif missed:
            self._messages.extend((_NOT_SAMPLED,) * missed)
        self._messages.append(messages)
        if len(self._messages) > LAG_SAMPLES:
            del self._messages[:-LAG_SAMPLES]

    def messages(self) -> list[int | None]:
        """Return the messages that were not acknowledged, the newest sample last; None: no sample
        was taken at that time."""
        return [None if each == _NOT_SAMPLED else each for each in self._messages]


class LagHistory:
    """The samples of the cursors in the slots that ``slots`` returns."""

    def __init__(self, slots: Callable[[], Iterable[PartitionSlot]], host: Host) -> None:
        self._slots = slots
        self._host = host
        self._cursors: dict[tuple[str, int], CursorSamples] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="lag history")

    async def close(self) -> None:
        """Stop. Never raises."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def of(self, subscription_id: str, partition: int) -> CursorSamples | None:
        """Return the samples of a subscription's cursor in one partition; None: there are none, as
        when it was opened just now, or more than MAX_SAMPLED_CURSORS are open."""
        return self._cursors.get((subscription_id, partition))

    async def _run(self) -> None:
        while True:
            due_us = (self._host.now_us() // LAG_SAMPLE_US + 1) * LAG_SAMPLE_US
            # A sleep may end a little too early, and its sample would be of the time before.
            while (left_us := due_us - self._host.now_us()) > 0:  # noqa: ASYNC110 - a time
                await asyncio.sleep(left_us / 1_000_000)
            await self.sample()

    async def sample(self) -> None:
        """Take a sample of every cursor, and forget those that are not here any more."""
        tick = self._host.now_us() // LAG_SAMPLE_US
        before, looked_at = self._cursors, 0
        now: dict[tuple[str, int], CursorSamples] = {}
        fresh: list[tuple[tuple[str, int], int]] = []
        for slot in list(self._slots()):
            log = slot.open_log
            if log is None or not log.subscriptions.has_cursors:
                continue
            for backlog in log.subscriptions.backlogs():
                looked_at += 1
                key = backlog.subscription_id, slot.partition
                samples = before.get(key)
                if samples is None:
                    fresh.append((key, backlog.messages))
                else:
                    samples.add(tick, backlog.messages)
                    now[key] = samples
            if looked_at >= STATS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        for key, messages in fresh[: max(0, MAX_SAMPLED_CURSORS - len(now))]:
            now[key] = CursorSamples(tick, messages)
        self._cursors = now
