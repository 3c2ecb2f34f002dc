"""An HTTP listener for ``/healthz``, ``/readyz`` and ``/metrics`` alone, for processes without
other HTTP.

A probe that is not answered has a bookie restarted, so whoever else connects may not prevent that:
a connection has one exchange and little time, and where there are too many the oldest one ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fencelog.api.http.addresses import parse_address
from fencelog.api.http.asgi import READING, Exchange, Receive, Scope, Send
from fencelog.api.http.metrics import METRICS, METRICS_TYPE
from fencelog.api.http.problems import send_problem
from fencelog.api.server.health import LIVE, READY, Health
from fencelog.api.server.serve import bind, url_of
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB

Metrics = Callable[[], Awaitable[bytes]]

MAX_CONNECTIONS = 64
"""The limit of connections. Probes need one or two at a time; with more than these, the oldest one
that has not asked yet ends, or else the oldest one."""

REQUEST_S = 5
"""The time for a request to arrive: a probe sends it at once, and has given up by then."""

ANSWER_S = 30
"""The time for its answer to be found and taken: Prometheus waits 10 s, unless told otherwise."""

MAX_REQUEST_BYTES = 16 * KIB
"""The limit of what one connection may send: a head of what reads three fixed paths."""

SHUTDOWN_S = 1
"""The time for answers in flight at the end."""


@contextlib.asynccontextmanager
async def listening_for_health(
    health: Health, listen: str, *, metrics: Metrics | None = None
) -> AsyncIterator[str]:
    """Answer about a process's health at ``host:port``, and yield the URL. ``metrics()``: in
    Prometheus' text format (None: there are none).

    Raises FencelogError(BAD_REQUEST): the address cannot be listened on.
    """
    sock = bind(*parse_address(listen))
    with contextlib.closing(sock):
        server = _Server(
            uvicorn.Config(
                _application(health, metrics),
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                headers=[("Connection", "close")],
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
        )
        sock.listen()
        task = asyncio.create_task(server.serve([sock]), name="health listener")
        try:
            yield url_of(sock)
        finally:
            server.should_exit = True
            await task


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own (``lifecycle``)."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(HttpToolsProtocol):
    """A connection of the listener, for one exchange."""

    _numbers = itertools.count()

    def connection_made(  # type: ignore[override]  # as uvicorn has it
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self.number = next(self._numbers)
        self.has_asked = False
        self._received_bytes = 0
        self._deadline = self.loop.call_later(REQUEST_S, transport.abort)
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_space()

    def _make_space(self) -> None:
        others = [each for each in self.connections if isinstance(each, _Connection)]
        others.remove(self)
        oldest = min(others, key=lambda each: (each.has_asked, each.number))
        self.connections.discard(oldest)  # now: others may come before it is lost
        oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._received_bytes > MAX_REQUEST_BYTES:
            self.transport.abort()
        else:
            super().data_received(data)

    def on_headers_complete(self) -> None:
        if not self.has_asked:
            self.has_asked = True
            self._deadline.cancel()
            self._deadline = self.loop.call_later(ANSWER_S, self.transport.abort)
        super().on_headers_complete()


def _application(
    health: Health, metrics: Metrics | None
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    answers = {LIVE: health.live, READY: health.ready}
    if metrics is not None:

        async def show_metrics(exchange: Exchange) -> None:
            await exchange.respond(200, METRICS_TYPE, await metrics())

        answers[METRICS] = show_metrics

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            answer = answers.get(exchange.path)
            if answer is None or exchange.method not in READING:
                raise FencelogError(
                    ErrorCode.NOT_FOUND, f"here are {', '.join(answers)} alone, to be read"
                )
            await answer(exchange)
        except FencelogError as error:
            await send_problem(exchange, error)

    return application
