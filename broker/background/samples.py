"""Samples of figures, and what takes them: at multiples of an interval since 1970, so that those of
several brokers can be added up."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fencelog.broker.limits import MAX_SAMPLES_BACK
from fencelog.ledgers.host import Host

_NOT_SAMPLED = -1


class Samples:
    """The samples of one figure, none of them below 0, the last ``kept`` of them; the newest was
    taken at ``newest`` times the interval since 1970."""

    __slots__ = ("_kept", "_values", "newest")

    def __init__(self, tick: int, value: int, kept: int) -> None:
        self.newest = tick
        self._kept = kept
        self._values = array("q", (value,))

    def add(self, tick: int, value: int) -> None:
        """Add a sample. One of a time that was sampled already is left out: the clock was set back.
        If it was set back far, samples begin anew."""
        missed = tick - self.newest - 1
        if -MAX_SAMPLES_BACK <= missed < 0:
            return
        self.newest = tick
        if missed < 0 or missed >= self._kept:
            del self._values[:]
        elif missed:
            self._values.extend((_NOT_SAMPLED,) * missed)
        self._values.append(value)
        if len(self._values) > self._kept:
            del self._values[: -self._kept]

    @property
    def is_zero(self) -> bool:
        """Tell whether all samples that are kept are 0."""
        return not any(self._values)

    def values(self) -> list[int | None]:
        """Return the samples, the newest last; None: none was taken at that time."""
        return [None if each == _NOT_SAMPLED else each for each in self._values]


class Sampler:
    """Calls ``sample`` with the number of the interval at each of its multiples, until it is
    closed."""

    def __init__(
        self, name: str, interval_ms: int, sample: Callable[[int], Awaitable[None]], host: Host
    ) -> None:
        self._name = name
        self._interval_us = interval_ms * 1000
        self._sample = sample
        self._host = host
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def close(self) -> None:
        """Stop. Never raises."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            due_us = (self._host.now_us() // self._interval_us + 1) * self._interval_us
            # A sleep may end a little too early, and its sample would be of the time before. More
            # than an interval is left when the clock was set back: that is not waited for.
            while 0 < (left_us := due_us - self._host.now_us()) <= self._interval_us:  # noqa: ASYNC110 - a time
                await asyncio.sleep(left_us / 1_000_000)
            await self._sample(self._host.now_us() // self._interval_us)
