"""Two machines and connections between them, for tests of the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.sim.engine.engine import Engine
from tests.sim.network.transport import SimTransport

PORT = 3181


class End(asyncio.Protocol):
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.transport: SimTransport
        self.data = bytearray()
        self.chunks: list[bytes] = []
        self.events: list[str] = []
        self.changed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.chunks.append(data)
        self.changed.set()

    def eof_received(self) -> None:
        self._note("eof")

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self._note(f"lost {type(exc).__name__}" if exc else "lost")

    def _note(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


class Pair:
    """A client on c, a server on s, and what each accepted."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.network = engine.network
        self.s = engine.start_process("s")
        self.c = engine.start_process("c")
        self.accepted: list[End] = []
        self._wakeup = asyncio.Event()

    async def listen(self) -> None:
        def factory() -> End:
            self.accepted.append(End())
            self._wakeup.set()
            return self.accepted[-1]

        await self.s.call(self.engine.loop.create_server(factory, "s", PORT))

    async def connect(self, within_s: float = 5) -> End:
        async with asyncio.timeout(within_s):
            dial = self.engine.loop.create_connection(End, "s", PORT)
            end: End = (await self.c.call(dial))[1]
        return end

    async def joined(self) -> tuple[End, End]:
        """A new connection: the client's end and the server's."""
        known = len(self.accepted)
        client = await self.connect()
        while len(self.accepted) == known:
            self._wakeup.clear()
            await self._wakeup.wait()
        return client, self.accepted[-1]


def simulate(main: Callable[[Pair], Awaitable[Any]], *, seed: int = 1, listen: bool = True) -> str:
    engine = Engine(seed)

    async def run() -> None:
        pair = Pair(engine)
        if listen:
            await pair.listen()
        await main(pair)
        assert [process.failures for process in engine.processes if process.failures] == []

    engine.run(run(), budget_s=1000)
    return engine.trace.digest


def pattern(size: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4))
