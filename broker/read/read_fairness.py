"""Fair scheduling of readers: of bytes in flight, and of the event loop.

A greedy reader asks for more than its share of two things. Bytes: every read from bookies, and
every answer that its client has not taken yet, holds memory; ``FairByteSemaphore`` bounds them and
serves waiting readers in turn, log by log. Time: decoding and rendering a large answer takes long
and blocks the event loop meanwhile; ``LoopYielder`` allows one step of such work in each iteration
of the event loop, however many are waiting, so that an append is delayed by one step per iteration
at most.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from fencelog.ledgers.limits import KIB

STEP_MESSAGES = 500
"""The messages decoded or rendered in one step: about a ms."""

STEP_BYTES = 256 * KIB
"""The bytes of adjacent batches, uncompressed, that are opened in one step: so much is held, and
unpacked in one turn of the event loop, whatever is delivered or rendered of it."""


class FairByteSemaphore:
    """A bound for bytes in use. Waiting readers are served in the order of arrival, and in rotation
    where they wait for different logs (``who``)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        self._waiting: OrderedDict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = (
            OrderedDict()
        )

    @asynccontextmanager
    async def turn(self, who: Hashable, size: int) -> AsyncIterator[None]:
        """Use ``size`` bytes as long as the context lasts; a larger size than the limit has the
        semaphore to itself."""
        await self.take(who, size)
        try:
            yield
        finally:
            self.give_back(size)

    async def take(self, who: Hashable, size: int) -> None:
        """Wait for ``size`` bytes, to be given back by the caller."""
        if not self.try_take(size):
            await self._wait(who, size)

    def try_take(self, size: int) -> bool:
        """Take ``size`` bytes at once, to be given back by the caller, if they are free and no
        reader waits."""
        if self._waiting or not self._has_capacity(size):
            return False
        self.in_use += size
        return True

    def give_back(self, size: int) -> None:
        self.in_use -= size
        self._wake()

    def _has_capacity(self, size: int) -> bool:
        return self.in_use == 0 or self.in_use + size <= self.limit

    async def _wait(self, who: Hashable, size: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append((size, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(size)  # the bytes were granted in the same moment
            else:
                self._remove(who, future)
                self._wake()
            raise

    def _remove(self, who: Hashable, future: asyncio.Future[None]) -> None:
        left = deque(item for item in self._waiting.get(who, ()) if item[1] is not future)
        if left:
            self._waiting[who] = left
        else:
            self._waiting.pop(who, None)  # it may be removed already

    def _wake(self) -> None:
        while self._waiting:
            who, queue = next(iter(self._waiting.items()))
            size, future = queue[0]
            if not self._has_capacity(size):
                return
            queue.popleft()
            if queue:
                self._waiting.move_to_end(who)
            else:
                del self._waiting[who]
            if not future.cancelled():
                self.in_use += size
                future.set_result(None)


class LoopYielder:
    """A scheduler of one step of long work in each iteration of the event loop, in the order of
    arrival."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def turn(self) -> None:
        """Wait until a step may be done, which lasts until the next ``await``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._next)
        await future

    def _next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._is_scheduled = False
