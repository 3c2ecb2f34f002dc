"""An HTTP/1.1 load generator: raw asyncio protocols, so that it costs less than what it measures.

It knows just enough HTTP: whole responses with Content-Length, or 204, on kept-alive connections,
one request at a time on each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from urllib.parse import urlsplit

from fencelog.api.http.addresses import parse_address
from fencelog.ledgers.errors import ErrorCode, FencelogError, check
from fencelog.ledgers.rpc.bookie_connection import as_stream

NO_CONTENT = b"204"
"""The status of the one answer without a length: it has no body."""

RequestSource = Callable[[], bytes]
"""The source of a connection's requests: each call returns the next one."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response. ``headers`` is its raw head, lower-cased."""

    status: int
    headers: bytes
    body: bytes

    def header(self, name: str) -> str:
        """Return the value of a header, or '' if it is not there."""
        _, found, rest = self.headers.partition(b"\r\n" + name.lower().encode() + b":")
        return rest.partition(b"\r\n")[0].strip().decode("latin-1") if found else ""


def encode_request(
    method: str, url: str, path: str, *, body: bytes = b"", headers: Mapping[str, str] = {}
) -> bytes:
    """Build a whole request, once, to be sent many times."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class LoadConnection(asyncio.Protocol):
    """A kept-alive connection, which carries one request at a time."""

    def __init__(self) -> None:
        self._on_response: Callable[[Response], None] = _unexpected
        self._on_failure: Callable[[FencelogError], None] = _raise
        self._parts: list[bytes] = []
        self._missing_bytes = 0
        self._has_body = True
        self._waiting = False
        self._transport: asyncio.Transport | None = None

    def send(
        self,
        request: bytes,
        on_response: Callable[[Response], None],
        on_failure: Callable[[FencelogError], None],
    ) -> None:
        """Send one request; the answer to the previous one must have arrived.

        ``on_response`` is called with the answer, and may send the next request at once. A broken
        connection or an answer that is no HTTP calls ``on_failure`` instead.
        """
        check(not self._waiting, "one request at a time")
        self._waiting, self._on_response, self._on_failure = True, on_response, on_failure
        self._has_body = not request.startswith(b"HEAD ")
        if self._transport is None or self._transport.is_closing():
            self._fail("the connection is closed")
        else:
            self._transport.write(request)

    async def request(self, request: bytes) -> Response:
        """Send one request and wait for its answer; for everything that is not the hot loop."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def answered(response: Response) -> None:
            if not answer.done():  # the caller may have gone away
                answer.set_result(response)

        def failed(error: FencelogError) -> None:
            if not answer.done():
                answer.set_exception(error)

        self.send(request, answered, failed)
        return await answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_stream(transport)

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._missing_bytes -= len(data)
        if self._missing_bytes > 0:
            return
        received = data if len(self._parts) == 1 else b"".join(self._parts)
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            self._parts = [received]
            return
        headers = received[: head_end + 2].lower()
        _, found, rest = headers.partition(b"\r\ncontent-length:")
        if not found and self._has_body and headers[9:12] != NO_CONTENT:
            self._fail("an answer has no Content-Length")
            return
        has_body = found and self._has_body
        size = head_end + 4 + (int(rest[: rest.index(b"\r")]) if has_body else 0)
        self._missing_bytes = size - len(received)
        if self._missing_bytes > 0:
            self._parts = [received]
            return
        self._parts, self._missing_bytes, self._waiting = [], 0, False
        self._on_response(Response(int(headers[9:12]), headers, received[head_end + 4 :]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting:
            self._fail(f"the connection was lost before the answer: {exc or 'closed by the peer'}")

    def _fail(self, detail: str) -> None:
        self._waiting = False
        self.close()
        self._on_failure(FencelogError(ErrorCode.INTERNAL, detail))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[LoadConnection]:
    """Open a connection to the service at ``url``, and close it at the end."""
    host, port = parse_address(urlsplit(url).netloc)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(LoadConnection, host, port)
    try:
        yield connection
    finally:
        connection.close()


def _unexpected(response: Response) -> None:
    raise AssertionError(f"an answer without a request: {response.status}")


def _raise(error: FencelogError) -> None:
    raise error


@dataclass(slots=True)
class LoadResult:
    """The result of a phase of load: requests answered, seconds it took, times of the requests."""

    requests: int
    elapsed_s: float
    latencies_s: list[float]

    @property
    def per_s(self) -> float:
        return self.requests / self.elapsed_s


async def closed_loop(
    urls: Sequence[str], sources: Sequence[RequestSource], *, seconds: float, status: int = 201
) -> LoadResult:
    """Send requests from one connection for each source, each waiting for its own answer.

    Connection ``i`` goes to ``urls[i % len(urls)]``. After ``seconds`` no further request is sent;
    those in flight are waited for and counted, so the count is exactly what was answered. Raises
    FencelogError at the first answer with another status, and when a connection is lost.
    """
    async with AsyncExitStack() as stack:
        opened = [
            (await stack.enter_async_context(connected(urls[i % len(urls)])), source)
            for i, source in enumerate(sources)
        ]
        return await _ClosedLoop(seconds, status).run(opened)


def repeated(request: bytes, connections: int) -> list[RequestSource]:
    """Return sources that repeat one request on so many connections."""
    return [lambda: request] * connections


class _ClosedLoop:
    """The hot loop: for each request one callback, one clock reading and one write."""

    def __init__(self, seconds: float, status: int) -> None:
        self._seconds = seconds
        self._status = status
        self._end = 0.0
        self._running = 0
        self._latencies_s: list[float] = []
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, opened: list[tuple[LoadConnection, RequestSource]]) -> LoadResult:
        begin = perf_counter()  # the loop's own clock counts whole milliseconds under uvloop
        self._end = begin + self._seconds
        self._running = len(opened)
        for connection, source in opened:
            self._start(connection, source)
        await self._finished
        elapsed_s = perf_counter() - begin
        return LoadResult(len(self._latencies_s), elapsed_s, sorted(self._latencies_s))

    def _start(self, connection: LoadConnection, source: RequestSource) -> None:
        sent = perf_counter()

        def answered(response: Response) -> None:
            nonlocal sent
            now = perf_counter()
            self._latencies_s.append(now - sent)
            if response.status != self._status:
                self._failed(refused(response))
            elif now < self._end:
                sent = now
                connection.send(source(), answered, self._failed)
            else:
                self._ended()

        connection.send(source(), answered, self._failed)

    def _ended(self) -> None:
        self._running -= 1
        if not self._running and not self._finished.done():
            self._finished.set_result(None)

    def _failed(self, error: FencelogError) -> None:
        if not self._finished.done():
            self._finished.set_exception(error)


def refused(response: Response) -> FencelogError:
    """Return the error for an unexpected answer; its text names the service's reason."""
    text = response.body[:500].decode("utf-8", "replace")
    return FencelogError(ErrorCode.INTERNAL, f"the service answered {response.status}: {text}")
