"""uvicorn in the running event loop: with the process's own signals, and a definite start and
end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from fencelog.api.http.addresses import format_address
from fencelog.api.server.app import Application
from fencelog.api.server.connections import Connections
from fencelog.api.server.http_protocol import HttpProtocol
from fencelog.api.server.limits import MAX_CONNECTIONS
from fencelog.ledgers.errors import ErrorCode, FencelogError

BACKLOG = 4096
"""The connections that wait to be accepted: a burst of clients after a restart."""

TICKS_PER_SECOND = 10
"""uvicorn's; it writes a new Date with the first of a second."""

SHUTDOWN_S = 3
"""The time that requests in flight get at the end; long polls and streams are cut after it."""


class HttpServer:
    """A listening HTTP server. ``start`` it, ``close`` it."""

    def __init__(self, server: _Server, task: asyncio.Task[None], url: str) -> None:
        self._server = server
        self._task = task
        self.url = url

    @classmethod
    async def start(
        cls, app: Application, sock: socket.socket, max_connections: int = MAX_CONNECTIONS
    ) -> HttpServer:
        """Serve an application on a bound socket (``bind``); it accepts on return."""
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            lifespan="auto",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        url = url_of(sock)
        server = _Server(config, max_connections)
        task = asyncio.create_task(server.serve([sock]), name="http server")
        accepting = asyncio.create_task(server.accepting.wait())
        try:
            await asyncio.wait((task, accepting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            accepting.cancel()
        if task.done():
            await task
            raise FencelogError(ErrorCode.INTERNAL, "the HTTP server ended at its start")
        return cls(server, task, url)

    async def close(self) -> None:
        """Stop accepting, let requests in flight end (SHUTDOWN_S), and return when all is over."""
        self._server.should_exit = True
        await self._task


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; port 0 takes a free one.

    Raises FencelogError(BAD_REQUEST) naming the address and the reason.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _cannot_listen(host, port, error) from error
    return sock


def url_of(sock: socket.socket) -> str:
    """Return ``http://host:port`` of a bound socket, with its actual port."""
    host, port = sock.getsockname()[:2]
    return f"http://{format_address(host, port)}"


def _cannot_listen(host: str, port: int, error: OSError) -> FencelogError:
    where = format_address(host, port)
    return FencelogError(ErrorCode.BAD_REQUEST, f"cannot listen on {where}: {error.strerror}")


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own (``lifecycle``)."""

    def __init__(self, config: uvicorn.Config, max_connections: int) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()
        self._connections = Connections(max_connections)
        self.server_state = self._connections

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        is_over = await super().on_tick(counter)
        if counter % TICKS_PER_SECOND == 0:
            self._connections.tick()
        return is_over

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._connections.cut_off()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()
