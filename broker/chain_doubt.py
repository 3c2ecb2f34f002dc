"""An owner that hears of appends which it does not have looks whether the log is still its own.

Who was replaced learns it from the bookies, by the next entry, or from the chain, by the next
change. One that only refuses appends touches neither, and a producer that has gone on with the new
owner would be told of a gap by the former one for ever.
"""

from __future__ import annotations

import asyncio
import logging

from fencelog.broker.chain_node import ChainLost, ChainNode
from fencelog.ledgers.errors import FencelogError

PAUSE_S = 1.0
"""Between two looks: a producer that is wrong must not keep the metadata store busy."""

log = logging.getLogger(__name__)


class ChainDoubt:
    """Of one partition's log. ``node.on_lost`` tells what comes of it; idle it costs nothing."""

    def __init__(self, node: ChainNode) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Task[None] | None = None
        self._not_before_s = 0.0
        self._closed = False

    def look(self) -> None:
        """Read the chain soon, unless that is under way or was done a moment ago: whoever is
        refused again asks again."""
        now_s = self._loop.time()
        if self._closed or self._looking is not None or now_s < self._not_before_s:
            return
        self._not_before_s = now_s + PAUSE_S
        self._looking = self._loop.create_task(self._look(), name=f"look at {self._node.path}")

    async def close(self) -> None:
        """Look no more. Never raises."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))

    async def _look(self) -> None:
        try:
            await self._node.check_unchanged()
        except ChainLost as lost:
            log.info("%s: %s", self._node.path, lost)
        except FencelogError as error:
            log.warning("%s: cannot tell whether it is still ours: %s", self._node.path, error)
        finally:
            self._looking = None
