"""An HTTP listener for ``/healthz``, ``/readyz`` and ``/metrics`` alone, for processes without
other HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import uvicorn

from fencelog.api.http.addresses import parse_address
from fencelog.api.http.asgi import READING, Exchange, Receive, Scope, Send
from fencelog.api.http.metrics import METRICS, METRICS_TYPE
from fencelog.api.http.problems import send_problem
from fencelog.api.server.health import LIVE, READY, Health
from fencelog.api.server.serve import bind, url_of
from fencelog.ledgers.errors import ErrorCode, FencelogError

Metrics = Callable[[], Awaitable[bytes]]

MAX_CONNECTIONS = 64
"""Probes need one or two at a time; whoever opens more is refused with 503."""

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
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
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
