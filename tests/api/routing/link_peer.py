"""The other end of a link, which accepts connections and then does as a test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from fencelog.api.routing.link_frames import KIND, UPGRADE, LinkOp
from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.rpc.wire import Frame, FrameReader


class LinkPeer:
    """One connection, after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader()
        self._ready: list[Frame] = []

    async def shake_hands(self, url: str) -> None:
        await self.reader.readuntil(b"\r\n\r\n")
        self.writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: %b\r\n\r\n" % UPGRADE)
        handshake = ServerHandshake(url, "peer", features=frozenset(), kind=KIND)
        while not handshake.is_accepted:
            self.writer.write(handshake.answer(await self.frame()))
        self._frames.accept_large_frames()

    async def frame(self) -> Frame:
        """The next frame. Raises ConnectionError."""
        while not self._ready:
            data = await self.reader.read(65_536)
            if not data:
                raise ConnectionResetError
            self._ready = self._frames.feed(data)
        return self._ready.pop(0)

    async def request(self, op: int = LinkOp.REQUEST) -> Frame:
        """The next frame of that operation."""
        while (frame := await self.frame()).op != op:
            pass
        return frame


Behave = Callable[[LinkPeer], Awaitable[None]]


@contextlib.asynccontextmanager
async def link_peer(behave: Behave) -> AsyncIterator[str]:
    """A broker's address; each link to it does as ``behave``, and is then lost."""
    url = ""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = LinkPeer(reader, writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await peer.shake_hands(url)
            await behave(peer)
        writer.transport.abort()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield url
