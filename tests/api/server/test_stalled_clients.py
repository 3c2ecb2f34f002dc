"""Clients that take nothing of their answers: each of them ends, and so do the longest stalled ones
where all together hold too much."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from fencelog.api.server import connections
from fencelog.api.server.gathering_transport import GatheringTransport
from fencelog.api.server.serve import HttpServer, bind
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.limits import MIB
from tests.support.fake_broker import FakeBookies, FakeBroker, app_over
from tests.support.network.http_client import http_client
from tests.support.until import until

MESSAGES = "/v1/topics/ns/t/partitions/0/messages"
WHOLE = (f"{MESSAGES}/0", "")
READS = [
    WHOLE,
    (f"{MESSAGES}?from=earliest&max_bytes=4194304", "Accept: application/x-ndjson\r\n"),
    (f"{MESSAGES}?from=earliest&max_bytes=4194304", "Accept: text/event-stream\r\n"),
]


class Asking:
    """A service with three messages of 4 MiB, and clients that ask for them."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.clients: list[socket.socket] = []

    @property
    def waiting(self) -> set[Any]:
        """The transports whose clients have not taken all."""
        every: set[Any] = set(self._server._server.server_state.connections)
        return {each.transport for each in every if each.transport.untaken_bytes}

    @property
    def stalled(self) -> set[Any]:
        """The transports whose clients have taken nothing for a while."""
        every: set[Any] = set(self._server._server.server_state.connections)
        return {each.transport for each in every if each.transport.stalled_s}

    def ask(self, path: str, header: str) -> socket.socket:
        """A client with hardly any space for the answer."""
        address = urlsplit(self._server.url)
        client = socket.socket()
        self.clients.append(client)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.hostname, address.port))
        client.setblocking(False)
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        return client


def connected(host: str, port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, port))
    client.setblocking(False)
    return client


@pytest.fixture
async def asking(fake_broker: FakeBroker) -> AsyncIterator[Asking]:
    await fake_broker.topics.create(TopicName("ns", "t"), TopicConfig())
    server = await HttpServer.start(app_over(fake_broker, FakeBookies()), bind("127.0.0.1", 0))
    asking = Asking(server)
    async with http_client(server.url) as http:
        for _ in range(3):
            answer = await http.post("/v1/topics/ns/t/messages", content=bytes(4 * MIB))
            assert answer.status_code == 201
    yield asking
    for client in asking.clients:
        client.close()
    await server.close()


@pytest.mark.parametrize(("path", "header"), READS)
async def test_who_takes_nothing_is_disconnected(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, path: str, header: str
) -> None:
    monkeypatch.setattr(connections, "ANSWER_STALL_MS", 2_500)
    client, loop = asking.ask(path, header), asyncio.get_running_loop()
    await until(lambda: bool(asking.waiting))
    (transport,) = asking.waiting
    await until(transport.is_closing)
    await until(lambda: not asking.waiting)
    size = 0
    while part := await loop.sock_recv(client, 1 << 20):
        size += len(part)
    assert size < 4 * MIB


class Sending(asyncio.Protocol):
    """Sends 4 MiB to whoever connects."""

    transport: GatheringTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = GatheringTransport(cast("asyncio.Transport", transport))
        self.transport.write(bytes(4 * MIB))


async def test_who_takes_a_little_is_not_stalled() -> None:
    """The kernel takes no more before it has sent a large part of what it has."""
    loop, sending = asyncio.get_running_loop(), Sending()
    server = await loop.create_server(lambda: sending, "127.0.0.1", 0)
    async with server:
        with closing(connected(*server.sockets[0].getsockname())) as client:
            await until(lambda: hasattr(sending, "transport"))
            transport = sending.transport
            await until(lambda: transport.untaken_bytes > 0)
            taken = 0
            for now_s in range(100, 1100, 100):
                before = taken
                while taken - before < 50_000:
                    taken += len(await loop.sock_recv(client, 4096))
                await until(partial(has_moved, transport, float(now_s)))
            assert transport.untaken_bytes > 0
            await until(lambda: not has_moved(transport, 1_100.0))
            transport.abort()


def has_moved(transport: GatheringTransport, now_s: float) -> bool:
    transport.look(now_s)
    return transport.stalled_s == 0


async def test_those_that_stall_longest_make_space(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_UNTAKEN_BYTES", 3 * MIB)
    first = asking.ask(*WHOLE)
    await until(lambda: any(each.stalled_s > 1 for each in asking.stalled))
    (stalled,) = asking.stalled
    size = stalled.untaken_bytes
    assert size > MIB, "nothing happens below the limit"
    monkeypatch.setattr(connections, "MAX_UNTAKEN_BYTES", size + 1000)
    asking.ask(*WHOLE)
    await until(lambda: stalled not in asking.stalled)
    await until(lambda: len(asking.stalled) == 1)
    size = 0
    while part := await asyncio.get_running_loop().sock_recv(first, 1 << 20):
        size += len(part)
    assert size < 4 * MIB
