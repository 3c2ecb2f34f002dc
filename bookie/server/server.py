"""A bookie's TCP server, over ``ledgers/rpc/wire.py``; ``server/connection.py`` has one client.

All queues are bounded:

* adds and explicit LACs in flight over BOOKIE_MAX_IN_FLIGHT_BYTES (all connections), or a write
  cache that waits for its flush: no connection is read from;
* answers waiting for a slow peer, or reads in progress, over their limit: that connection is not
  read from;
* frames over their limit, and all other invalid requests: that connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.connection import Connection
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import BOOKIE_MAX_CONNECTIONS, BOOKIE_MAX_IN_FLIGHT_BYTES
from fencelog.ledgers.rpc.authentication import Authenticator


class BookieServer:
    """The server of one bookie. The bookie belongs to the caller and outlives the server."""

    def __init__(
        self,
        bookie: Bookie,
        *,
        authenticator: Authenticator | None = None,
        max_connections: int = BOOKIE_MAX_CONNECTIONS,
    ) -> None:
        self.bookie = bookie
        self.authenticator = authenticator
        self.in_flight_bytes = 0
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._connections: dict[Connection, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._paused = False
        self._is_closing = False

    @classmethod
    async def start(
        cls,
        bookie: Bookie,
        host: str,
        port: int,
        *,
        authenticator: Authenticator | None = None,
        max_connections: int = BOOKIE_MAX_CONNECTIONS,
    ) -> BookieServer:
        """Listen; port 0 takes a free one. With an ``authenticator``, clients have to satisfy it.
        Raises OSError."""
        server = cls(bookie, authenticator=authenticator, max_connections=max_connections)
        loop = asyncio.get_running_loop()
        bookie.on_pressure[server._update_reading] = None
        server._server = await loop.create_server(lambda: Connection(server), host, port)
        return server

    @property
    def address(self) -> str:
        """Return ``host:port`` as it is registered for clients."""
        if self._server is None or not self._server.sockets:
            raise FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "the server is not listening")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening and drop all connections. Adds in flight are still made durable."""
        self._is_closing = True
        self.bookie.on_pressure.pop(self._update_reading, None)
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    # -- for connections ---------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Register a connection; return whether one more is allowed."""
        if self._is_closing or len(self._connections) >= self._max_connections:
            return False
        self._connections[connection] = None
        return True

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def add_in_flight(self, size: int) -> None:
        """Count bytes of adds and explicit LACs received (or, negative, answered), and pause all
        connections at the limit, until half of it is answered."""
        self.in_flight_bytes += size
        if not self._paused and self.in_flight_bytes > BOOKIE_MAX_IN_FLIGHT_BYTES:
            self._paused = True
        elif self._paused and self.in_flight_bytes < BOOKIE_MAX_IN_FLIGHT_BYTES // 2:
            self._paused = False
        else:
            return
        self._update_reading()

    @property
    def is_paused(self) -> bool:
        """Tell whether to stop reading from all connections."""
        return self._paused or self.bookie.is_under_pressure

    def _update_reading(self) -> None:
        for connection in self._connections:
            connection.update_reading()
