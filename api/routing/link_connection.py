"""The asking end of a link's connection: HTTP's ``Upgrade``, the handshake, then frames."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from fencelog.api.routing.link_frames import KIND, PATH, UPGRADE
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.bookie_connection import (
    BookieConnection,
    OnFrame,
    OnLost,
    as_stream,
    establish,
)
from fencelog.ledgers.rpc.handshake import ClientHandshake

Connect = Callable[[Callable[[], asyncio.Protocol], str], Awaitable[None]]
"""A function that makes a connection to a URL's host, for a protocol. Raises OSError."""

_MAX_HEAD_BYTES = 8 * 1024
_SWITCHED = b"HTTP/1.1 101 "
_PORTS = {"http": 80, "https": 443}


class LinkConnection(BookieConnection, asyncio.Protocol):
    """A connection that begins with an HTTP request, on the port that clients use."""

    def __init__(
        self,
        url: str,
        credentials: Credentials | None,
        on_frame: OnFrame,
        on_lost: OnLost,
        *,
        cluster: str = "",
    ) -> None:
        handshake = ClientHandshake(
            url, credentials, features=frozenset(), kind=KIND, cluster=cluster
        )
        super().__init__(handshake, on_frame, on_lost)
        self._host = urlsplit(url).netloc.encode()
        self._head: bytes | None = b""
        self._hello = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._hello = self._handshake.hello()
        self.transport = stream = as_stream(transport)
        stream.write(
            b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n"
            % (PATH, self._host, UPGRADE)
        )

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end and len(head) <= _MAX_HEAD_BYTES:
                return
            if not end or not head.startswith(_SWITCHED):
                status = head.partition(b"\r\n")[0][:80].decode("latin-1")
                self._end(FencelogError(ErrorCode.UNSUPPORTED_VERSION, f"it answers {status!r}"))
                return
            self._head = None
            if self.transport is not None:
                self.transport.write(self._hello)
        if data:
            super().data_received(data)


async def connect_tcp(factory: Callable[[], asyncio.Protocol], url: str) -> None:
    """Connect to the host of a URL. Raises OSError; ConnectionRefusedError only if every address of
    the host refuses connections."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(factory, host, port, ssl=secure)
    except OSError as error:
        if error.errno is not None:
            raise
        await _connect_each(factory, host, port, secure)


async def _connect_each(
    factory: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    secure: ssl.SSLContext | None,
) -> None:
    """Connect to the first address of a host that takes a connection: when several fail, the event
    loop gives one error that does not say why each of them did."""
    loop = asyncio.get_running_loop()
    errors: list[OSError] = []
    name = host if secure else None
    for *_, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            await loop.create_connection(
                factory, str(address[0]), port, ssl=secure, server_hostname=name
            )
        except OSError as error:
            errors.append(error)
        else:
            return
    if all(error.errno == errno.ECONNREFUSED for error in errors):
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"all addresses of {host} refuse")
    raise next(error for error in errors if error.errno != errno.ECONNREFUSED)


async def dial(
    url: str,
    credentials: Credentials | None,
    connect: Connect,
    *,
    on_frame: OnFrame,
    on_lost: OnLost,
    cluster: str = "",
) -> LinkConnection:
    """Connect to a broker and shake hands, within CONNECT_TIMEOUT_MS. Raises what ``connect`` and
    the handshake raise, TimeoutError."""
    connection = LinkConnection(url, credentials, on_frame, on_lost, cluster=cluster)
    await establish(connection, lambda: connect(lambda: connection, url))
    return connection
