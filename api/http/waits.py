"""Long polls and event streams in flight: ended when their client goes or the service closes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fencelog.api.http.asgi import ClientGone, Exchange
from fencelog.ledgers.errors import ErrorCode, FencelogError

T = TypeVar("T")


class Waits:
    """All requests that wait for messages. ``close`` ends them at once."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, exchange: Exchange, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``, which answers the exchange.

        It is cancelled when the client goes (ClientGone) or the service closes (DRAINING; of an
        exchange that may have had an effect STATE_UNKNOWN). Only for exchanges whose request body
        does not matter: it is not read here.
        """
        task = asyncio.create_task(work)
        watcher = asyncio.create_task(exchange.until_gone())
        self._running.add(task)
        try:
            if not self._closed:
                await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if self._closed and (task.cancelled() or not task.done()):
                code = ErrorCode.STATE_UNKNOWN if exchange.may_have_effect else ErrorCode.DRAINING
                raise FencelogError(code, "this broker is being closed")
            if not task.done():
                raise ClientGone
            return task.result()
        finally:
            self._running.discard(task)
            task.cancel()
            watcher.cancel()
            await asyncio.gather(task, watcher, return_exceptions=True)

    def close(self) -> None:
        """End all waits, current and later ones; each client gets a problem that it may retry."""
        self._closed = True
        for task in self._running:
            task.cancel()
