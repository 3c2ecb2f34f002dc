"""Adds that wait for space in the write cache.

Disks write journal and entry logs at different speeds; when the flush falls behind, adds are held
back here, unanswered and in order, until it has caught up. So a writer's window fills and it slows
down; only adds beyond that are refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import RunHeader
from fencelog.ledgers.rpc.bookie_port import AddCallback


@dataclass(frozen=True, slots=True)
class _HeldAdd:
    header: RunHeader
    run: bytes
    on_reply: AddCallback


class Throttle:
    """A bounded queue. ``take`` carries out an add now; ``on_change`` is called when the queue
    becomes non-empty and when it becomes empty, so that transports stop reading meanwhile."""

    def __init__(
        self,
        *,
        max_bytes: int,
        has_space: Callable[[], bool],
        take: Callable[[RunHeader, bytes, AddCallback], None],
        on_change: Callable[[], None],
    ) -> None:
        self._max_bytes = max_bytes
        self._has_space = has_space
        self._take = take
        self._on_change = on_change
        self._held: deque[_HeldAdd] = deque()
        self._held_bytes = 0

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def hold(self, header: RunHeader, run: bytes, on_reply: AddCallback) -> None:
        """Queue an add behind those that wait already; refuse it with OVERLOADED when too many
        bytes wait. An empty queue takes an add of any size."""
        if self._held and self._held_bytes + len(run) > self._max_bytes:
            error = FencelogError(
                ErrorCode.OVERLOADED,
                f"{self._held_bytes} bytes of adds are waiting for the write cache to be flushed",
            )
            asyncio.get_running_loop().call_soon(on_reply, error)
            return
        self._held.append(_HeldAdd(header, run, on_reply))
        self._held_bytes += len(run)
        if len(self._held) == 1:
            self._on_change()

    def release(self) -> None:
        """Take as many adds as there is space for now."""
        if not self._held:
            return
        while self._held and self._has_space():
            add = self._held.popleft()
            self._held_bytes -= len(add.run)
            self._take(add.header, add.run, add.on_reply)
        if not self._held:
            self._on_change()

    def refuse(self, error: FencelogError) -> None:
        """Answer all waiting adds with ``error``: none of them was stored."""
        held, self._held, self._held_bytes = self._held, deque(), 0
        for add in held:
            add.on_reply(error)
        if held:
            self._on_change()
