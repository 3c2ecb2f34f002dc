"""How many connections a server takes, and what becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest_asyncio

from fencelog.api.server.limits import MAX_REFUSED_CONNECTIONS
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from tests.support.fake_broker import FakeBookies, FakeBroker, app_over, serving
from tests.support.until import until_found

MOST = 4
POST = b"POST /v1/topics/ns/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
LINK = (
    b"GET /v1/link HTTP/1.1\r\nHost: localhost\r\n"
    b"Connection: Upgrade\r\nUpgrade: fencelog-link/1\r\n\r\n"
)


class Clients:
    """Clients of one server, each with a connection."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, number: int) -> Client:
        """Connect from the loopback address of that number."""
        reader, writer = await asyncio.open_connection(
            self._address.hostname, self._address.port, local_addr=(f"127.0.0.{number}", 0)
        )
        self._writers.append(writer)
        return Client(reader, writer)

    async def status(self, number: int) -> int:
        """Return the status of a post on a connection of its own."""
        client = await self.connect(number)
        try:
            return await client.ask(POST)
        finally:
            client.writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> int:
        """Return the status of the answer; 0 if the connection was closed without one."""
        self.writer.write(request)
        try:
            async with asyncio.timeout(10):
                head = await self.reader.readuntil(b"\r\n\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            return 0
        return int(head.split()[1])


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[Clients]:
    broker = FakeBroker()
    await broker.topics.create(TopicName("ns", "t"), TopicConfig())
    async with serving(app_over(broker, FakeBookies()), MOST) as url:
        clients = Clients(url)
        yield clients
        clients.close()


async def test_all_connections_have_a_limit(clients: Clients) -> None:
    held = [await clients.connect(1 + i // 2) for i in range(MOST)]
    assert await clients.status(3) == 503
    assert await held[0].ask(POST) == 201
    held[1].writer.close()

    async def has_space() -> bool:
        return await clients.status(3) == 201

    await until_found(has_space)


async def test_one_address_has_half_of_them(clients: Clients) -> None:
    held = [await clients.connect(1) for _ in range(MOST // 2)]
    assert await clients.status(1) == 503
    assert await clients.status(2) == 201
    held[1].writer.close()

    async def has_space() -> bool:
        return await clients.status(1) == 201

    await until_found(has_space)


async def test_links_count_among_the_connections_of_an_address(clients: Clients) -> None:
    links = [await clients.connect(1) for _ in range(MOST // 2)]
    for link in links:
        assert await link.ask(LINK) == 101
    assert await clients.status(1) == 503
    links[0].writer.close()

    async def has_space() -> bool:
        return await clients.status(1) == 201

    await until_found(has_space)


async def test_a_flood_is_not_told_that_it_is_refused(clients: Clients) -> None:
    """Each refusal holds a descriptor until its client has read it."""
    for i in range(MOST):
        assert await (await clients.connect(1 + i // 2)).ask(POST) == 201
    flood = [await clients.connect(3) for _ in range(3 * MAX_REFUSED_CONNECTIONS)]
    statuses = await asyncio.gather(*[client.ask(POST) for client in flood])
    assert 0 < statuses.count(503) < len(flood)
    assert statuses.count(0) == len(flood) - statuses.count(503)

    async def is_over() -> bool:
        return await clients.status(3) == 503

    await until_found(is_over)
