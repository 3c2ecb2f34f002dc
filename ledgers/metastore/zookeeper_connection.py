"""One connection to a ZooKeeper server on the event loop.

Requests are pipelined: any number of them are in flight, in their order, and the server answers in
the same order. Those that are sent in one turn of the loop leave in one write. The connection ends
once: every request without an answer then fails with ``ConnectionLost`` and is never sent again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, cast

from fencelog.ledgers.limits import MAX_ZOOKEEPER_PACKET_BYTES
from fencelog.ledgers.metastore.zookeeper_wire import (
    AUTHENTICATION_XID,
    EVENT_XID,
    NODE_EVENTS,
    PING,
    PING_XID,
    Request,
    SessionIdentity,
    decode_connected,
    decode_event,
    decode_header,
    encode,
    encode_authentication,
    encode_connect,
    error_of,
)

DIAL_S = 0.5
"""The time in which an address has to take a connection; its answers have longer. The kernel of a
server that lives takes one in a round trip, and more time helps none that is dead."""

TICKS_PER_TIMEOUT = 6
"""The pings within the timeout of a session."""

_SILENT_TICKS = 3
"""The pings without an answer after which, when the next is due, a server counts as gone: two
thirds of the session's timeout, which leaves time to reach another one. Ticks are counted, not
seconds, so a pause of this process is not taken for the server's."""

_MANY_IN_FLIGHT = 16
"""The requests in flight from which on the next ones wait for each other: thousands of partitions
are being opened, and a system call for each request would take longer than the request."""

_GATHER_S = 0.003
"""The time for which they wait, about as long as the server takes to sync a change."""

_MAX_XID = (1 << 31) - 1

_LENGTH = Struct(">i")

_log = logging.getLogger(__name__)


class ConnectionLost(Exception):
    """The error of a request whose connection has ended: it may have taken effect."""


class SessionExpired(Exception):
    """The refusal of a connection, because the server has ended the session."""


class AuthenticationRefused(Exception):
    """The refusal of a connection, because the server does not take a user."""


class ZooKeeperConnection(asyncio.Protocol):
    """A connection, made by ``open``. ``ended`` is done when it has ended; ``last_zxid`` is the
    newest change that its answers have shown."""

    def __init__(
        self,
        identity: SessionIdentity,
        *,
        timeout_ms: int,
        last_zxid: int,
        on_event: Callable[[str], None],
        users: Sequence[bytes] = (),
    ) -> None:
        self.identity = identity
        self.last_zxid = last_zxid
        self._timeout_ms = timeout_ms
        self._users = users
        self._unanswered_users: int | None = None
        """The users whose authentication is not answered yet; None: the session is not open."""
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._to_send: list[bytes] = []
        self._in_flight: deque[tuple[int, Request, asyncio.Future[Any]]] = deque()
        self._xid = 0
        self._silent_ticks = 0
        self._tick: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        addresses: Sequence[str],
        port: int,
        identity: SessionIdentity,
        *,
        timeout_ms: int,
        last_zxid: int,
        on_event: Callable[[str], None],
        users: Sequence[bytes] = (),
        tls: ssl.SSLContext | None = None,
        name: str = "",
    ) -> ZooKeeperConnection:
        """Connect to a server at the first of its addresses that answers, over TLS with a context,
        and continue a session, or begin one, and authenticate as each of the users
        (``name:password``) before any request. ``name``: the one in the server's certificate.

        ``on_event`` is called with the path of a node that was watched and has changed. Raises
        OSError, ConnectionLost, SessionExpired, AuthenticationRefused.
        """
        connection = cls(
            identity, timeout_ms=timeout_ms, last_zxid=last_zxid, on_event=on_event, users=users
        )
        try:
            await connection._reach(addresses, port, tls, name)
            await connection._opened
        except BaseException:
            connection._opened.cancel()
            connection.abort()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def shown_certificate(self) -> Mapping[str, Any] | None:
        """The certificate of the server, as ``ssl`` describes it; None without TLS."""
        return None if self._transport is None else self._transport.get_extra_info("peercert")

    def send(self, request: Request) -> asyncio.Future[Any]:
        """Send a request, while the connection is open; the future gives its decoded answer, or
        fails with ``ServerError`` or ConnectionLost."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._xid = self._xid % _MAX_XID + 1
        self._in_flight.append((self._xid, request, answer))
        self._write(encode(request, self._xid))
        return answer

    def abort(self) -> None:
        """End the connection at once; the session lives on until its timeout."""
        if self._transport is not None:
            self._transport.abort()

    async def _reach(
        self, addresses: Sequence[str], port: int, tls: ssl.SSLContext | None, name: str
    ) -> None:
        expected = None if tls is None else name
        failure = OSError("no address")
        for address in addresses:
            try:
                dialled = await self._dial(address, port)
                await self._loop.create_connection(
                    lambda: self, sock=dialled, ssl=tls, server_hostname=expected
                )
                return
            except OSError as error:
                failure = error
        raise failure

    async def _dial(self, address: str, port: int) -> socket.socket:
        """Return a socket that is connected. Raises OSError."""
        dialled = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            dialled.setblocking(False)
            async with asyncio.timeout(DIAL_S):
                await self._loop.sock_connect(dialled, (address, port))
        except TimeoutError:
            dialled.close()
            raise OSError(f"takes no connection within {DIAL_S * 1000:.0f} ms") from None
        except BaseException:
            dialled.close()
            raise
        return dialled

    # -- the protocol ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        timeout_ms, last_zxid = self._timeout_ms, self.last_zxid
        connect = encode_connect(self.identity, timeout_ms=timeout_ms, last_zxid=last_zxid)
        self._transport.write(connect)

    def data_received(self, data: bytes) -> None:
        self._silent_ticks = 0
        try:
            self._received = self._take_packets(self._received + data)
        except (struct.error, ValueError) as error:
            _log.error("ZooKeeper sent what cannot be understood: %s", error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self._to_send.clear()
        lost = ConnectionLost() if exc is None else ConnectionLost(str(exc))
        for _, _, answer in self._in_flight:
            if not answer.done():
                answer.set_exception(lost)
        self._in_flight.clear()
        if not self._opened.done():
            self._opened.set_exception(lost)
        self.ended.set_result(None)

    # -- packets ---------------------------------------------------------------------------------

    def _take_packets(self, received: bytes) -> bytes:
        """Take the packets that are complete; return the rest. Raises struct.error, ValueError."""
        view, at = memoryview(received), 0
        while len(received) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, at)
            if not 0 <= length <= MAX_ZOOKEEPER_PACKET_BYTES:
                raise ValueError(f"a packet of {length} bytes")
            begin, end = at + _LENGTH.size, at + _LENGTH.size + length
            if end > len(received):
                break
            self._take(view[begin:end])
            at = end
        return received[at:]

    def _take(self, packet: memoryview) -> None:
        if not self._opened.done():
            if self._unanswered_users is None:
                self._open_with(packet)
            else:
                self._authenticate_with(packet, self._unanswered_users)
            return
        xid, zxid, error, body = decode_header(packet)
        if xid == EVENT_XID:
            kind, path = decode_event(body)
            if kind in NODE_EVENTS:
                self._on_event(path)
            return
        if xid == PING_XID:
            return
        if not self._in_flight or self._in_flight[0][0] != xid:
            raise ValueError(f"an answer to request {xid}, which is not the next")
        _, request, answer = self._in_flight[0]
        result = error_of(error) if error else request.decode(body)
        # Not before: what is no answer names no change, and no server would have seen it.
        self.last_zxid = max(self.last_zxid, zxid)
        self._in_flight.popleft()
        if answer.done():  # its caller has gone away
            return
        if error:
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def _open_with(self, packet: memoryview) -> None:
        self.identity, timeout_ms = decode_connected(packet)
        if timeout_ms == 0:
            self._opened.set_exception(SessionExpired())
            return
        self._tick_after(timeout_ms / 1000 / TICKS_PER_TIMEOUT)
        self._unanswered_users = len(self._users)
        if not self._users:
            self._opened.set_result(None)
            return
        for user in self._users:
            self._write(encode_authentication(user))

    def _authenticate_with(self, packet: memoryview, unanswered: int) -> None:
        """Take an answer to an authentication. Until all are there the connection is not open: a
        request before them would be carried out as one of a stranger."""
        xid, _, error, _ = decode_header(packet)
        if xid == PING_XID:
            return
        if xid != AUTHENTICATION_XID:
            raise ValueError(f"an answer to request {xid} before those to authentications")
        if error:
            self._opened.set_exception(AuthenticationRefused(str(error_of(error))))
            return
        self._unanswered_users = unanswered - 1
        if self._unanswered_users == 0:
            self._opened.set_result(None)

    def _tick_after(self, pause_s: float) -> None:
        self._tick = self._loop.call_later(pause_s, self._on_tick, pause_s)

    def _on_tick(self, pause_s: float) -> None:
        self._silent_ticks += 1
        if self._silent_ticks > _SILENT_TICKS:
            _log.warning("ZooKeeper does not answer")
            self.abort()
            return
        self._write(encode(PING, PING_XID))
        self._tick_after(pause_s)

    def _write(self, packet: bytes) -> None:
        if not self._to_send:
            if len(self._in_flight) < _MANY_IN_FLIGHT:
                self._loop.call_soon(self._flush)
            else:
                self._loop.call_later(_GATHER_S, self._flush)
        self._to_send.append(packet)

    def _flush(self) -> None:
        to_send, self._to_send = self._to_send, []
        if self._transport is not None and to_send:
            self._transport.write(b"".join(to_send))
