"""This instance's claim to a chain while something is being repaired: keep trying, but never fight.

Before every new attempt the chain is read again and the leadership is asked for: if another owner
has changed the chain, or stands ready to, the instance has lost it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencelog.broker.chain_node import ChainLost, ChainNode
from fencelog.ledgers.errors import FencelogError

T = TypeVar("T")

RETRY_MIN_S, RETRY_MAX_S = 0.1, 2.0
"""Pauses between attempts, doubling."""

log = logging.getLogger(__name__)


class ChainHold:
    """``is_leader`` answers False only if another broker is the leader for certain."""

    def __init__(self, node: ChainNode, is_leader: Callable[[], Awaitable[bool]]) -> None:
        self._node = node
        self._is_leader = is_leader

    async def check(self) -> None:
        """Raises ChainLost where another owner has changed the chain, or is about to."""
        await self._node.check_unchanged()
        if not await self._is_leader():
            raise ChainLost(self._node.path, self._node.chain)

    async def insist(self, step: Callable[[], Awaitable[T]]) -> T:
        """The result of ``step``, tried until it works. Raises ChainLost only."""
        pause_s = RETRY_MIN_S
        while True:
            try:
                return await step()
            except FencelogError as error:
                log.warning("%s: tries again in %.1f s: %s", self._node.path, pause_s, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            await self.check()
