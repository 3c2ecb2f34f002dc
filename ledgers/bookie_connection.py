"""A client's connection to one bookie: dialled, greeted, then frames both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from fencelog.ledgers.errors import FencelogError, ProtocolError, code_from_wire
from fencelog.ledgers.limits import CONNECT_TIMEOUT_MS
from fencelog.ledgers.wire import (
    VERSION,
    Frame,
    FrameReader,
    Op,
    decode_hello,
    encode_hello,
    encode_request,
)


class BookieConnection(asyncio.Protocol):
    """``on_frame`` gets every frame after the handshake and may raise ProtocolError;
    ``on_lost(connection, reason)`` is told once when the connection ends after it.

    It belongs to one process at the other end and so to one ``incarnation``.
    """

    def __init__(
        self,
        bookie_id: str,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[BookieConnection, str], None],
    ) -> None:
        self._bookie_id = bookie_id
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._frames = FrameReader()
        self._is_greeted = False
        self.is_over = False
        self.transport: asyncio.Transport | None = None
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.incarnation = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports by duck typing only, so there is nothing to check.
        self.transport = stream = cast("asyncio.Transport", transport)
        hello = encode_hello({"versions": [VERSION]})
        stream.write(encode_request(Op.HELLO, 0, hello))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                if self._is_greeted:
                    self._on_frame(frame)
                else:
                    self._greeting(frame)
        except ProtocolError as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ProtocolError(str(exc) if exc else "closed by the bookie"))

    def abort(self) -> None:
        """Give it up. Nobody is told."""
        self.is_over = True
        self.greeted.cancel()
        if self.transport is not None:
            self.transport.abort()

    def _greeting(self, frame: Frame) -> None:
        """Agree on a version, and be sure that the address still belongs to this bookie."""
        error = error_of(frame, self._bookie_id)
        if error is not None:
            raise ProtocolError(error.detail)
        fields = decode_hello(frame.body)
        if fields.get("version") != VERSION or fields.get("bookie_id") != self._bookie_id:
            raise ProtocolError(
                f"expected bookie {self._bookie_id} with version {VERSION}, "
                f"found {fields.get('bookie_id')} with version {fields.get('version')}"
            )
        self.incarnation = str(fields.get("incarnation"))
        self._frames.accept_large_frames()
        self._is_greeted = True
        self.greeted.set_result(None)

    def _end(self, error: FencelogError) -> None:
        if self.is_over:
            return
        if not self._is_greeted:
            self.greeted.set_exception(error)
        self.abort()
        if self._is_greeted:
            self._on_lost(self, error.detail)


async def dial(
    address: str,
    bookie_id: str,
    on_frame: Callable[[Frame], None],
    on_lost: Callable[[BookieConnection, str], None],
) -> BookieConnection:
    """Connect to ``host:port`` and shake hands, within CONNECT_TIMEOUT_MS.

    Raises what an address may cause (OSError, ValueError, TimeoutError, …) and FencelogError.
    """
    connection = BookieConnection(bookie_id, on_frame, on_lost)
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
        try:
            await loop.create_connection(lambda: connection, host.strip("[]"), int(port))
            await connection.greeted
            if connection.is_over:
                raise ConnectionResetError("lost right after the handshake")
        except BaseException:
            connection.abort()
            raise
    return connection


def error_of(frame: Frame, bookie_id: str) -> FencelogError | None:
    """The error that a reply carries, if any."""
    if frame.status == 0:
        return None
    detail = frame.body.decode("utf-8", "replace")
    return FencelogError(code_from_wire(frame.status), f"bookie {bookie_id}: {detail}")
