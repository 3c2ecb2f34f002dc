"""A client's connection to one bookie: dialled, past its handshake, then frames both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import cast

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import CONNECT_TIMEOUT_MS
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.handshake import ClientHandshake
from fencelog.ledgers.rpc.receiving import ReceiveBuffer
from fencelog.ledgers.rpc.wire import Frame, FrameReader, PlacedFrame

OnFrame = Callable[[Frame], None]
OnAnyFrame = Callable[[Frame | PlacedFrame], None]
OnLost = Callable[["BookieConnection", str], None]


def as_stream(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Return the transport as what it is. uvloop's are Transports by duck typing only, so there is
    nothing to check."""
    return cast("asyncio.Transport", transport)


class BookieConnection(asyncio.BaseProtocol):
    """A connection. ``on_frame`` gets every frame after the handshake and may raise ProtocolError;
    ``on_lost(connection, reason)`` is called once when the connection ends after the handshake.

    It belongs to one process at the other end and so to one ``incarnation``. It is no
    ``asyncio.Protocol``: uvloop would call ``data_received`` of a buffered one too.
    """

    def __init__(self, handshake: ClientHandshake, on_frame: OnFrame, on_lost: OnLost) -> None:
        self._handshake = handshake
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._frames = FrameReader()
        self.is_over = False
        self.transport: asyncio.Transport | None = None
        self.handshake_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def incarnation(self) -> str:
        return self._handshake.incarnation

    @property
    def features(self) -> Set[str]:
        return self._handshake.features

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = stream = as_stream(transport)
        stream.write(self._handshake.hello())

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                if self._handshake.is_done:
                    self._on_frame(frame)
                else:
                    self._shake_hands(frame)
        except FencelogError as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc else "closed by the other end"
        self._end(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, reason))

    def abort(self) -> None:
        """Drop the connection without calling ``on_lost``."""
        self.is_over = True
        self.handshake_done.cancel()
        if self.transport is not None:
            self.transport.abort()

    def _shake_hands(self, frame: Frame) -> None:
        answer = self._handshake.answer(frame)
        if self.transport is not None and answer:
            self.transport.write(answer)
        if self._handshake.is_done:
            self._frames.accept_large_frames()
            if not self.handshake_done.done():  # otherwise it timed out in this same turn
                self.handshake_done.set_result(None)

    def _end(self, error: FencelogError) -> None:
        if self.is_over:
            return
        if not self.handshake_done.done():
            self.handshake_done.set_exception(error)
        self.abort()
        if self._handshake.is_done:
            self._on_lost(self, error.detail)


class BufferedBookieConnection(BookieConnection, asyncio.BufferedProtocol):
    """A connection that receives large replies in place, without a copy."""

    def __init__(self, handshake: ClientHandshake, on_frame: OnAnyFrame, on_lost: OnLost) -> None:
        super().__init__(handshake, on_frame, on_lost)
        self._on_any_frame = on_frame
        self._buffer = ReceiveBuffer(self._frames)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._buffer.received(nbytes):
                if self._handshake.is_done:
                    self._on_any_frame(frame)
                elif isinstance(frame, Frame):
                    self._shake_hands(frame)
        except FencelogError as error:
            self._end(error)


async def dial(
    bookie_id: str,
    address: str,
    credentials: Credentials | None,
    *,
    on_frame: OnAnyFrame,
    on_lost: OnLost,
) -> BookieConnection:
    """Connect to ``host:port`` and shake hands, within CONNECT_TIMEOUT_MS.

    Raises the errors of an address (OSError, ValueError, TimeoutError, …) and those of the
    handshake (``ClientHandshake.answer``).
    """
    handshake = ClientHandshake(bookie_id, credentials)
    connection = BufferedBookieConnection(handshake, on_frame, on_lost)
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()

    async def connect() -> None:
        await loop.create_connection(lambda: connection, host.strip("[]"), int(port))

    await establish(connection, connect)
    return connection


async def establish(connection: BookieConnection, connect: Callable[[], Awaitable[None]]) -> None:
    """Connect and shake hands, within CONNECT_TIMEOUT_MS; after a failure the connection is over.

    Raises what ``connect`` and the handshake raise, TimeoutError, ConnectionResetError.
    """
    limit = asyncio.timeout(CONNECT_TIMEOUT_MS / 1000)
    try:
        async with limit:
            await connect()
            await connection.handshake_done
            if connection.is_over:
                raise ConnectionResetError("lost right after the handshake")
    except BaseException as error:
        connection.abort()
        if isinstance(error, TimeoutError) and limit.expired():
            raise TimeoutError(f"no answer within {CONNECT_TIMEOUT_MS} ms") from error
        raise
