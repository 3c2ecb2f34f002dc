"""Catch-up reads: what is older than the tail cache comes from bookies in chunks, each read once.

A chunk is what one read of a ledger brought: consecutive batches from its ``start`` on. Readers
that want the same place wait for the same chunk and share it, so ten of them that follow each other
cost one read from bookies. A read that goes on from where a chunk ends, or within one, is of
somebody who reads on: the chunk after it is fetched before it is asked for. A read at a place of
its own fetches what it asked for and no more.

Memory is bounded in the whole broker: chunks that nobody used for longest go first, at most half of
it is for chunks that nobody has asked for yet, a quarter for those that a reader has been through,
and reads on their way take turns (``FairByteSemaphore``).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fencelog.broker.limits import CATCH_UP_BYTES, READ_AHEAD_BYTES, READ_AHEAD_CHUNK_BYTES
from fencelog.broker.read.read_fairness import FairByteSemaphore, LoopYielder
from fencelog.broker.read.stored import StoredBatch, take
from fencelog.broker.read.tail_cache import BATCH_OVERHEAD_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of

MAX_ENDS = 64
"""Of chunks of one log that are remembered, to know who reads on: more than there are chunks."""

STALE_AFTER_LOADS = 64
"""A chunk that was fetched ahead and is not asked for during so many loads may go for another."""

Found = tuple[list[StoredBatch], int]
"""Batches, and the offset after what was looked at."""

Load = Callable[[int, int], Awaitable[Found]]
"""``load(offset, max_bytes)``: batches from the one that holds ``offset``."""


@dataclass(slots=True, eq=False)
class Chunk:
    """``start`` to ``end`` of a log; empty while it is loaded."""

    start: int
    owner: LogReadAhead
    end: int = -1
    batches: list[StoredBatch] = field(default_factory=list)
    size: int = 0
    loading: asyncio.Task[None] | None = None
    goes_on: bool = False
    """Fetched for somebody who reads on, not for the place alone."""
    is_ahead: bool = False
    """Nobody has asked for it yet."""


class BrokerReads:
    """What the readers of one broker share: a bound for their chunks, ``semaphore`` of bytes on
    their way from bookies, and ``steps`` of long work on the event loop."""

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
        """Whether there is room for one more chunk that nobody has asked for. One whose reader does
        not come makes room in the end."""
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
        """Somebody asks for it."""
        self.ahead -= chunk.is_ahead
        chunk.is_ahead = False
        if self._take_out(chunk):
            self._used[chunk] = self._loads

    def passed(self, chunk: Chunk) -> None:
        """Somebody has read it to its end. It stays for those who follow, though not for long:
        memory that is touched for the first time costs more than the read itself."""
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
        """Whether it was counted."""
        if self._passed.pop(chunk, None) is not None:
            self._passed_size -= chunk.size
            return True
        return (self._used.pop(chunk, None) or self._ahead.pop(chunk, None)) is not None


class LogReadAhead:
    """The chunks of one log, or of another view of it."""

    def __init__(self, shared: BrokerReads, load: Load, *, is_worth: Callable[[int], bool]) -> None:
        """``is_worth(offset)``: whether there is anything from there on that has to be fetched."""
        self._shared = shared
        self._load = load
        self._is_worth = is_worth
        self._starts: list[int] = []
        self._chunks: dict[int, Chunk] = {}
        self._ends: OrderedDict[int, None] = OrderedDict()

    async def read(self, offset: int, *, max_messages: int, max_bytes: int) -> Found:
        """Batches from the one that holds ``offset``, at least one unless there is none before the
        offset that is returned. Raises what ``load`` raises."""
        chunk = self._holding(offset)
        if chunk is None:
            goes_on = offset in self._ends
            size = self._shared.chunk_bytes if goes_on else max_bytes
            chunk = self._begin(offset, size, goes_on=goes_on)
        self._shared.used(chunk)
        if chunk.loading is not None:
            # Whoever goes away leaves the others, and the read, alone.
            await asyncio.wait((chunk.loading,))
            _raise_failure(chunk)
        if chunk.goes_on or offset > chunk.start:
            self._go_ahead(chunk.end)
        batches, end = _take(chunk, offset, max_messages=max_messages, max_bytes=max_bytes)
        if end == chunk.end:
            self._shared.passed(chunk)
        return batches, end

    def trim(self, start_offset: int) -> None:
        """What ends at or below is not read any more."""
        for chunk in list(self._chunks.values()):
            if chunk.loading is None and chunk.end <= start_offset:
                self.drop(chunk)

    def clear(self) -> None:
        """Let go of everything; those who wait learn that it has ended."""
        for chunk in list(self._chunks.values()):
            self.drop(chunk)
            if chunk.loading is not None:
                chunk.loading.cancel()

    def drop(self, chunk: Chunk) -> None:
        """Forget a chunk; whoever reads it keeps it until then."""
        self._shared.forget(chunk)
        if self._chunks.get(chunk.start) is chunk:
            del self._chunks[chunk.start]
            self._starts.remove(chunk.start)

    def _holding(self, offset: int) -> Chunk | None:
        """The chunk with ``offset``, or the one on its way that begins there."""
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
            self._ends[chunk.end] = None
            self._ends.move_to_end(chunk.end)
            if len(self._ends) > MAX_ENDS:
                self._ends.popitem(last=False)

    def _go_ahead(self, offset: int) -> None:
        if self._is_worth(offset) and self._holding(offset) is None and self._shared.may_go_ahead():
            self._begin(offset, self._shared.chunk_bytes, ahead=True)


def _take(chunk: Chunk, offset: int, *, max_messages: int, max_bytes: int) -> Found:
    """What is in the chunk from ``offset`` on. Less than half of it is copied: who reads little,
    and takes it slowly, does not hold all of the chunk in memory."""
    taken = take(chunk.batches, offset, max_messages=max_messages, max_bytes=max_bytes)
    end = taken[-1].end_offset if taken and taken[-1] is not chunk.batches[-1] else chunk.end
    if 2 * sum(batch.size for batch in taken) < chunk.size:
        taken = [batch.copy() for batch in taken]
    return taken, end


def _raise_failure(chunk: Chunk) -> None:
    """The error of a load that failed, an exception of its own for each who waited."""
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
    """Its error is told to those who wait; nobody may be waiting."""
    if not loading.cancelled():
        loading.exception()
