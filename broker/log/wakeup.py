"""The signal that wakes the task of an open log."""

from __future__ import annotations

import asyncio


class Wakeup:
    """A flag that one task at a time waits for: an ``asyncio.Event`` without a queue of waiters,
    which would take 800 bytes of every open log."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Set the flag, and wake the task that waits."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        """Return at once if the flag is set, else when it is set next."""
        if self._is_set:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
