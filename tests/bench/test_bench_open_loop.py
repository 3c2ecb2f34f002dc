"""The open load against a server of the test's own that can pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from fencelog.api.bench.harness import open_loop
from fencelog.api.bench.harness.load import connected, encode_request
from fencelog.api.bench.harness.open_loop import OpenLoop
from fencelog.ledgers.errors import ErrorCode, FencelogError

CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"


class Server:
    """Answers every request with ``answer`` while ``may_answer`` is set; ``seen``: the bodies."""

    def __init__(self) -> None:
        self.answer = CREATED
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.seen: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.seen.append(int(await reader.readexactly(8)))
                await self.may_answer.wait()
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def loading(
    server: Server, latencies_s: list[float], *, per_s: float, connections: int = 4
) -> AsyncIterator[OpenLoop]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    url = f"http://{host}:{port}"
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connected(url)) for _ in range(connections)]
        yield OpenLoop(
            opened,
            lambda number: encode_request("POST", url, "/", body=b"%08d" % number),
            per_s=per_s,
            on_answer=latencies_s.append,
        )
    listener.close()
    await listener.wait_closed()


async def test_every_request_is_sent_once_and_answered() -> None:
    server = Server()
    latencies_s: list[float] = []
    async with loading(server, latencies_s, per_s=500.0) as load:
        await load.run(0.4)
    assert sorted(server.seen) == list(range(200))
    assert load.answered == load.sent == len(latencies_s) == 200
    assert all(latency_s >= 0 for latency_s in latencies_s)


async def test_a_pause_of_the_service_counts_for_all_requests_that_were_due_in_it() -> None:
    """A closed loop over these two connections would have measured two long latencies."""
    server = Server()
    server.may_answer.clear()
    latencies_s: list[float] = []
    async with loading(server, latencies_s, per_s=100.0, connections=2) as load:
        running = asyncio.create_task(load.run(1.0))
        await asyncio.sleep(0.6)
        assert len(server.seen) == 2
        server.may_answer.set()
        await running
    assert sorted(server.seen) == list(range(100))
    assert sum(latency_s > 0.1 for latency_s in latencies_s) >= 40
    assert max(latencies_s) >= 0.55


async def test_another_answer_ends_the_load() -> None:
    server = Server()
    server.answer = REFUSED
    async with loading(server, [], per_s=1000.0) as load:
        with pytest.raises(FencelogError, match="503: busy"):
            await load.run(60.0)


async def test_a_lost_connection_ends_the_load() -> None:
    server = Server()
    server.answer = b"HTTP/1.1 201 Created\r\n\r\n"  # no length: the connection is given up
    async with loading(server, [], per_s=50.0, connections=1) as load:
        with pytest.raises(FencelogError, match="no Content-Length"):
            await load.run(60.0)


async def test_a_service_that_is_too_slow_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_loop, "MAX_LATE_S", 0.1)
    server = Server()
    server.may_answer.clear()
    async with loading(server, [], per_s=1000.0, connections=1) as load:
        with pytest.raises(FencelogError) as caught:
            await load.run(60.0)
    assert caught.value.code is ErrorCode.OVERLOADED
    server.may_answer.set()
