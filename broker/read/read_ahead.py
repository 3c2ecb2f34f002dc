"""Catch-up reads: messages older than the tail cache are read from bookies in chunks, each once.

A chunk is the result of one read of a ledger: consecutive batches from its ``start`` on. Readers of
the same position wait for the same chunk and share it, so ten readers that follow each other cost
one read from bookies. A read that continues at the end of a chunk, or within one, is sequential:
the next chunk is prefetched. A read at any other position fetches what it asked for and no more.

Memory is bounded in the whole broker: the least recently used chunks are evicted first, at most
half of it is for prefetched chunks that have not been requested yet, a quarter for chunks that a
reader has read to the end, and reads in flight are scheduled fairly (``FairByteSemaphore``).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fencelog.broker.limits import CATCH_UP_BYTES, READ_AHEAD_BYTES, READ_AHEAD_CHUNK_BYTES
from fencelog.broker.read.read_fairness import FairByteSemaphore, LoopYielder
from fencelog.broker.read.stored import ReadLimits, StoredBatch, take
from fencelog.broker.read.tail_cache import BATCH_OVERHEAD_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of

MAX_ENDS = 64
"""The ends of chunks of one log that are remembered, to recognise sequential readers: more than
there are chunks."""

STALE_AFTER_LOADS = 64
"""The number of loads after which a prefetched chunk that was not requested may be evicted for
another."""

Found = tuple[list[StoredBatch], int]
"""Batches, and the offset after the part that was examined."""

Load = Callable[[int, int], Awaitable[Found]]
"""A function ``load(offset, max_bytes)``: batches from the one that holds ``offset``."""


@dataclass(slots=True, eq=False)
class Chunk:
    """The range ``start`` to ``end`` of a log; empty while it is loaded."""

    start: int
    owner: LogReadAhead
    end: int = -1
    batches: list[StoredBatch] = field(default_factory=list)
    size: int = 0
    loading: asyncio.Task[None] | None = None
    goes_on: bool = False
    """A mark of a chunk fetched for a sequential reader, not for a single read."""
    is_ahead: bool = False
    """A mark of a prefetched chunk that was not requested yet."""


class BrokerReads:
    """The resources shared by the readers of one broker: a bound for their chunks, ``semaphore`` of
    bytes in flight from bookies, and ``steps`` of long work on the event loop."""

    def __init__(
        self, limit: int = READ_AHEAD_BYTES, *, chunk_bytes: int = READ_AHEAD_CHUNK_BYTES
    ) -> None:
        self.chunk_bytes = chunk_bytes
        self.semaphore = FairByteSemaphore(CATCH_UP_BYTES)
        self.steps = LoopYielder()
        self.size = 0
        self.ahead = 0
        self._limit = limit
        self._loads = 0
        self._used: OrderedDict[Chunk, int] = OrderedDict()
        self._ahead: OrderedDict[Chunk, int] = OrderedDict()
        self._passed: OrderedDict[Chunk, int] = OrderedDict()
        self._passed_size = 0

    def may_go_ahead(self) -> bool:
        """Tell whether there is space for one more prefetched chunk. A chunk that is never
        requested is evicted in the end."""
        if not self._fits_ahead() and self._ahead:
            oldest, loads = next(iter(self._ahead.items()))
            if self._loads - loads > STALE_AFTER_LOADS:
                oldest.owner.drop(oldest)
        return self._fits_ahead()

    def _fits_ahead(self) -> bool:
        return (self.ahead + 1) * self.chunk_bytes <= self._limit // 2

    def loaded(self, chunk: Chunk) -> None:
        self._loads += 1
        self.size += chunk.size
        (self._ahead if chunk.is_ahead else self._used)[chunk] = self._loads
        while self.size > max(self._limit, chunk.size):
            oldest = next(iter(self._passed or self._used or self._ahead))
            oldest.owner.drop(oldest)

    def used(self, chunk: Chunk) -> None:
        """Record that a reader requests the chunk."""
        self.ahead -= chunk.is_ahead
        chunk.is_ahead = False
        if self._take_out(chunk):
            self._used[chunk] = self._loads

    def passed(self, chunk: Chunk) -> None:
        """Record that a reader has read the chunk to its end. It stays for readers that follow,
        though not for long: memory that is touched for the first time costs more than the read
        itself."""
        if self._take_out(chunk):
            self._passed[chunk] = self._loads
            self._passed_size += chunk.size
        while self._passed_size > self._limit // 4:
            oldest = next(iter(self._passed))
            oldest.owner.drop(oldest)

    def forget(self, chunk: Chunk) -> None:
        self.ahead -= chunk.is_ahead
        chunk.is_ahead = False
        if self._take_out(chunk):
            self.size -= chunk.size

    def _take_out(self, chunk: Chunk) -> bool:
        """Remove a chunk, and tell whether it was counted."""
        if self._passed.pop(chunk, None) is not None:
            self._passed_size -= chunk.size
            return True
        return (self._used.pop(chunk, None) or self._ahead.pop(chunk, None)) is not None


class LogReadAhead:
    """The chunks of one log, or of another view of it."""

    def __init__(self, shared: BrokerReads, load: Load, *, is_worth: Callable[[int], bool]) -> None:
        """Create the chunks of a log. ``is_worth(offset)``: whether there is anything from there on
        that has to be fetched."""
        self._shared = shared
        self._load = load
        self._is_worth = is_worth
        self._starts: list[int] = []
        self._chunks: dict[int, Chunk] = {}
        self._ends: dict[int, None] = {}

    async def read(self, offset: int, limits: ReadLimits) -> Found:
        """Read batches from the one that holds ``offset``, at least one unless there is none before
        the offset that is returned. Raises what ``load`` raises."""
        chunk = self._holding(offset)
        if chunk is None:
            goes_on = offset in self._ends
            size = self._shared.chunk_bytes if goes_on else limits.max_bytes
            chunk = self._begin(offset, size, goes_on=goes_on)
        self._shared.used(chunk)
        if chunk.loading is not None:
            # A reader that is cancelled leaves the other readers, and the read, alone.
            await asyncio.wait((chunk.loading,))
            _raise_failure(chunk)
        if chunk.goes_on or offset > chunk.start:
            self._go_ahead(chunk.end)
        batches, end = _take(chunk, offset, limits)
        if end == chunk.end:
            self._shared.passed(chunk)
        return batches, end

    def trim(self, start_offset: int) -> None:
        """Drop the chunks that end at or below ``start_offset``."""
        for chunk in list(self._chunks.values()):
            if chunk.loading is None and chunk.end <= start_offset:
                self.drop(chunk)

    def clear(self) -> None:
        """Drop all chunks; waiting readers are notified that it has ended."""
        for chunk in list(self._chunks.values()):
            self.drop(chunk)
            if chunk.loading is not None:
                chunk.loading.cancel()

    def drop(self, chunk: Chunk) -> None:
        """Drop a chunk; a reader that is using it keeps it until it has finished."""
        self._shared.forget(chunk)
        if self._chunks.get(chunk.start) is chunk:
            del self._chunks[chunk.start]
            self._starts.remove(chunk.start)

    def _holding(self, offset: int) -> Chunk | None:
        """Return the chunk with ``offset``, or the one in flight that begins there."""
        position = bisect_right(self._starts, offset) - 1
        if position < 0:
            return None
        chunk = self._chunks[self._starts[position]]
        return chunk if offset < chunk.end or chunk.start == offset else None

    def _begin(self, offset: int, size: int, *, goes_on: bool = True, ahead: bool = False) -> Chunk:
        chunk = Chunk(offset, self, goes_on=goes_on, is_ahead=ahead)
        self._shared.ahead += ahead
        self._chunks[offset] = chunk
        insort(self._starts, offset)
        chunk.loading = asyncio.get_running_loop().create_task(self._fetch(chunk, size))
        chunk.loading.add_done_callback(_retrieve)
        return chunk

    async def _fetch(self, chunk: Chunk, size: int) -> None:
        try:
            async with self._shared.semaphore.turn(self, size):
                chunk.batches, chunk.end = await self._load(chunk.start, size)
        except BaseException:
            self.drop(chunk)
            raise
        chunk.loading = None
        chunk.size = sum(b.size + BATCH_OVERHEAD_BYTES for b in chunk.batches)
        if self._chunks.get(chunk.start) is chunk:
            self._shared.loaded(chunk)
            self._ends.pop(chunk.end, None)
            self._ends[chunk.end] = None
            if len(self._ends) > MAX_ENDS:
                del self._ends[next(iter(self._ends))]

    def _go_ahead(self, offset: int) -> None:
        if self._is_worth(offset) and self._holding(offset) is None and self._shared.may_go_ahead():
            self._begin(offset, self._shared.chunk_bytes, ahead=True)


def _take(chunk: Chunk, offset: int, limits: ReadLimits) -> Found:
    """Return the chunk's batches from ``offset`` on. Less than half of a chunk is copied, so that a
    reader that takes little, and takes it slowly, does not hold all of the chunk in memory."""
    taken = take(chunk.batches, offset, limits)
    end = taken[-1].end_offset if taken and taken[-1] is not chunk.batches[-1] else chunk.end
    if 2 * sum(batch.size for batch in taken) < chunk.size:
        taken = [batch.copy() for batch in taken]
    return taken, end


def _raise_failure(chunk: Chunk) -> None:
    """Raise the error of a load that failed, as a separate exception for each waiting reader."""
    if chunk.loading is None:
        return
    if chunk.loading.cancelled():
        raise FencelogError(ErrorCode.NO_OWNER, "the log was closed during the read")
    error = chunk.loading.exception()
    if isinstance(error, FencelogError):
        raise copy_of(error)
    if error is not None:
        raise error


def _retrieve(loading: asyncio.Task[None]) -> None:
    """Retrieve the load's error, which is reported to waiting readers; there may be none of
    them."""
    if not loading.cancelled():
        loading.exception()
