"""The newest batches of a partition, in memory, for readers at the tail."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable
from operator import attrgetter

from fencelog.broker.limits import BROKER_CACHE_BYTES, TAIL_CACHE_BYTES
from fencelog.broker.read.stored import ReadLimits, StoredBatch

BATCH_OVERHEAD_BYTES = 512
"""The memory that a batch takes besides its bytes, so that batches of single messages are bounded
too (measured: 500)."""

_TRIM_AT = 1024
"""The number of evicted places at which they are cut off the list's front, in strides and not one
by one; the batches in them are released at once."""

WAKE_AT_ONCE = 32
"""The readers that are woken in one iteration of the event loop: a few ms of answering."""

_PUBLISH_TIME = attrgetter("publish_time_us")

_EVICTED = StoredBatch(0, 0, 0, memoryview(b""))


class TailCaches:
    """A common bound for the caches of one broker: the one that was written to longest ago is
    evicted."""

    def __init__(self, limit: int = BROKER_CACHE_BYTES) -> None:
        self._limit = limit
        self._by_use: OrderedDict[TailCache, None] = OrderedDict()
        self.size = 0

    def changed(self, cache: TailCache, by: int) -> None:
        """Record that ``cache`` was written to and holds ``by`` bytes more (or less)."""
        self.size += by
        self._by_use[cache] = None
        self._by_use.move_to_end(cache)
        while self.size > self._limit and len(self._by_use) > 1:
            next(iter(self._by_use)).clear()

    def forget(self, cache: TailCache) -> None:
        """Remove ``cache``, which is empty or no longer used."""
        if cache in self._by_use:
            del self._by_use[cache]
            self.size -= cache.size


class TailCache:
    """A window of consecutive batches that ends at the tail, bounded in bytes."""

    def __init__(self, caches: TailCaches, *, limit: int = TAIL_CACHE_BYTES) -> None:
        self._caches = caches
        self._limit = limit
        self._batches: list[StoredBatch] = []
        self._offsets: list[int] = []
        self._head = 0
        self.size = 0

    def extend(self, batches: Iterable[StoredBatch]) -> None:
        """Add batches that follow the last one; the oldest are evicted when the limit is
        reached."""
        before = self.size
        for batch in batches:
            self._batches.append(batch)
            self._offsets.append(batch.base_offset)
            self.size += len(batch.batch) + BATCH_OVERHEAD_BYTES
        while self.size > self._limit:
            self.size -= len(self._batches[self._head].batch) + BATCH_OVERHEAD_BYTES
            self._batches[self._head] = _EVICTED
            self._head += 1
        if self._head >= _TRIM_AT and self._head * 2 >= len(self._batches):
            del self._batches[: self._head], self._offsets[: self._head]
            self._head = 0
        self._caches.changed(self, self.size - before)

    def clear(self) -> None:
        """Drop all batches; the ledgers have them."""
        self._caches.forget(self)
        self._batches.clear()
        self._offsets.clear()
        self._head = self.size = 0

    def holds(self, offset: int) -> bool:
        """Tell whether ``offset``, which is below the tail, is in the cache."""
        return self._head < len(self._offsets) and self._offsets[self._head] <= offset

    def offset_for_time(self, time_us: int) -> int | None:
        """Return the offset of the first batch published at or after ``time_us``, if the batch
        before it is in the cache too."""
        head = self._head
        if head == len(self._offsets) or self._batches[head].publish_time_us >= time_us:
            return None
        position = bisect_left(self._batches, time_us, lo=self._head, key=_PUBLISH_TIME)
        return self._offsets[position] if position < len(self._offsets) else None

    def read(self, offset: int, limits: ReadLimits) -> list[StoredBatch]:
        """Return batches from the one that holds ``offset``, at least one; [] if it is not in the
        cache."""
        start = bisect_right(self._offsets, offset, lo=self._head) - 1
        if start < self._head:
            return []
        max_messages, max_bytes, _ = limits
        taken: list[StoredBatch] = []
        enough = offset + max_messages
        for batch in self._batches[start : start + max_messages]:
            max_bytes -= len(batch.batch)
            if taken and (max_bytes < 0 or batch.base_offset >= enough):
                break
            taken.append(batch)
        return taken if offset < taken[-1].end_offset else []


class TailNotifier:
    """The notifier of readers that wait for the tail to move. It wakes all of them, once per move,
    but not all in one iteration of the event loop: a thousand readers that answer at once would
    delay the next append."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._ringing: deque[asyncio.Future[None]] | None = None

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        if self._ringing is None:
            self._ringing = deque(waiting)
            self._wake_some(self._ringing)
        else:
            self._ringing += waiting

    async def wait(self, timeout_ms: int) -> None:
        """Wait until the next ``notify``, or until the timeout."""
        future = next(reversed(self._waiting), None)
        if future is None or self._waiting[future] == WAKE_AT_ONCE:
            future = asyncio.get_running_loop().create_future()
            self._waiting[future] = 0
        self._waiting[future] += 1
        try:
            # ``asyncio.wait`` leaves the future alone when one of its many waiters is cancelled.
            await asyncio.wait((future,), timeout=timeout_ms / 1000)
        finally:
            if future in self._waiting:  # there was no ``notify``
                self._waiting[future] -= 1
                if not self._waiting[future]:
                    del self._waiting[future]

    def _wake_some(self, ringing: deque[asyncio.Future[None]]) -> None:
        ringing.popleft().set_result(None)
        if ringing:
            asyncio.get_running_loop().call_soon(self._wake_some, ringing)
        else:
            self._ringing = None
