"""The limit of partitions that a broker opens at the same time.

An opening sends about ten requests to ZooKeeper and bookies. Thousands of them at once, after
another broker has died, would each take as long as all together, and time out; a few dozen keep
both busy. An opening that waits for a bookie that does not answer must not hold up the others: it
releases its slot and continues beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fencelog.broker.limits import MAX_OPENING_PARTITIONS, SLOW_OPENING_MS


class OpeningGate:
    """Grants slots to openings, in the order of their requests."""

    def __init__(
        self, limit: int = MAX_OPENING_PARTITIONS, *, slow_ms: int = SLOW_OPENING_MS
    ) -> None:
        self._slots = asyncio.Semaphore(limit)
        self._slow_s = slow_ms / 1000

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot; an opening that takes longer than ``slow_ms`` continues without one."""
        await self._slots.acquire()
        holds = True

        def let_go() -> None:
            nonlocal holds
            if holds:
                holds = False
                self._slots.release()

        slow = asyncio.get_running_loop().call_later(self._slow_s, let_go)
        try:
            yield
        finally:
            slow.cancel()
            let_go()
