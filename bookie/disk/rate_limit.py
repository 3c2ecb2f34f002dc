"""Keeping work in the background below a rate."""

from __future__ import annotations

import asyncio


class Pace:
    """So many bytes a second, on average since the last pause. None: as fast as it goes."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self.bytes_per_s = bytes_per_s
        self._loop = asyncio.get_running_loop()
        self._due = 0.0

    async def took(self, size: int) -> None:
        """``size`` bytes were moved: return when the next may be."""
        if self.bytes_per_s is None:
            return
        now = self._loop.time()
        self._due = max(self._due, now) + size / self.bytes_per_s
        await asyncio.sleep(self._due - now)
