"""A bookie's end of the wire that answers as a test scripts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.rpc.wire import Frame, FrameReader, Op, encode_hello, encode_reply
from tests.support.until import until


class ScriptedServer:
    """A server that accepts connections, shakes hands, and passes every other frame to
    ``answer``."""

    def __init__(self) -> None:
        self.bookie_id = "b1"
        self.incarnation = "1"
        self.handshake: ServerHandshake | None = None
        self.frames: list[Frame] = []
        self.answer: Callable[[Frame], bytes] = lambda frame: encode_reply(
            frame.op, frame.request_id
        )
        self.connections = 0
        self.server: asyncio.Server | None = None
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        frames = FrameReader()
        frames.accept_large_frames()
        while data := await reader.read(65536):
            for frame in frames.feed(data):
                if frame.op in (Op.HELLO, Op.AUTH) and self.handshake is not None:
                    writer.write(self.handshake.answer(frame))
                elif frame.op == Op.HELLO:
                    hello = encode_hello(
                        {"version": 1, "bookie_id": self.bookie_id, "incarnation": self.incarnation}
                    )
                    writer.write(encode_reply(Op.HELLO, frame.request_id, hello))
                else:
                    self.frames.append(frame)
                    writer.write(self.answer(frame))
        writer.close()

    async def received(self, count: int) -> None:
        """Wait until so many frames have arrived."""
        await until(lambda: len(self.frames) >= count)

    async def close(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await self.server.wait_closed()
        await asyncio.sleep(0.01)
