"""How long callers wait for something that may take as long as others are away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls ``on_end`` once, ``limit_s`` after the first ``begin``, unless ``stop`` comes before:
    whatever else goes wrong meanwhile makes nobody wait longer."""

    def __init__(self, limit_s: float, on_end: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Callers wait from now on, if they did not already."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit_s, self._on_end)

    def stop(self) -> None:
        """They wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
