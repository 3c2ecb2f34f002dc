"""The newest batches of a partition, in memory, for readers at the tail."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable

from fencelog.broker.stored import StoredBatch
from fencelog.ledgers.limits import TAIL_CACHE_BYTES

_TRIM_AT = 1024
"""Evicted places are cut off the list's front in strides, not one by one."""


class TailCache:
    """A window of consecutive batches that ends at the tail, bounded in bytes."""

    def __init__(self, limit: int = TAIL_CACHE_BYTES) -> None:
        self._limit = limit
        self._batches: list[StoredBatch] = []
        self._offsets: list[int] = []
        self._head = 0
        self.size = 0

    def extend(self, batches: Iterable[StoredBatch]) -> None:
        """Add batches that follow the last one; the oldest go when the limit is reached."""
        for batch in batches:
            self._batches.append(batch)
            self._offsets.append(batch.base_offset)
            self.size += len(batch.batch)
        while self.size > self._limit:
            self.size -= len(self._batches[self._head].batch)
            self._head += 1
        if self._head >= _TRIM_AT and self._head * 2 >= len(self._batches):
            del self._batches[: self._head], self._offsets[: self._head]
            self._head = 0

    def read(self, offset: int, *, max_messages: int, max_bytes: int) -> list[StoredBatch]:
        """Batches from the one that holds ``offset``, at least one; [] if it is not here."""
        start = bisect_right(self._offsets, offset, lo=self._head) - 1
        if start < self._head:
            return []
        taken: list[StoredBatch] = []
        enough = offset + max_messages
        for batch in self._batches[start : start + max_messages]:
            max_bytes -= len(batch.batch)
            if taken and (max_bytes < 0 or batch.base_offset >= enough):
                break
            taken.append(batch)
        return taken if offset < taken[-1].end_offset else []


class TailBell:
    """Wakes everybody who waits for the tail to move, once per move."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def ring(self) -> None:
        waiting, self._next = self._next, None
        if waiting is not None:
            waiting.set_result(None)

    async def wait(self, timeout_ms: int) -> None:
        """Until the next ``ring``, or the time is over."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        # ``asyncio.wait`` leaves the future alone when one of its many waiters goes away.
        await asyncio.wait((self._next,), timeout=timeout_ms / 1000)
