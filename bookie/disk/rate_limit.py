"""A rate limit for background work."""

from __future__ import annotations

import asyncio


class Pace:
    """A limit in bytes per second, averaged since the last pause. None: there is no limit."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self.bytes_per_s = bytes_per_s
        self._loop = asyncio.get_running_loop()
        self._due = 0.0

    def part(self, most: int, part_ms: int) -> int:
        """Return how many bytes to move at a time: those of ``part_ms``, ``most`` at most."""
        if self.bytes_per_s is None:
            return most
        return max(1, min(most, self.bytes_per_s * part_ms // 1000))

    async def took(self, size: int) -> None:
        """Account for ``size`` bytes that were moved, and return when the next bytes may be
        moved."""
        if self.bytes_per_s is None:
            return
        now = self._loop.time()
        self._due = max(self._due, now) + size / self.bytes_per_s
        await asyncio.sleep(self._due - now)
