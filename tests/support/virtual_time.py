"""An event loop whose time does not pass while there is work: tests of time-outs hold on a machine
of any speed, and none of them waits."""

from __future__ import annotations

import asyncio
import selectors

_READY = tuple[selectors.SelectorKey, int]


class _InstantSelector(selectors.DefaultSelector):
    """A selector that adds the time for which it was to wait to ``now_s`` instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[_READY]:
        if timeout is None:  # no timer: only another thread or a signal can go on
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.now_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop for tests that have no sockets and no threads of their own: when nothing is left to
    run, its time jumps to the next timer."""

    def __init__(self) -> None:
        self._instant = _InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now_s
