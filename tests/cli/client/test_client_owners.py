"""The Python client goes straight to the owner of a partition, and back to the service when that
leads nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.client import owners as limits
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.until import until


@dataclass
class Server:
    """A server that counts requests. ``names``: whom its answers name as the owner; ``fails``: the
    problem that it answers with; ``hangs_up``: it never answers; ``stopped``: neither, and its
    connections stay open until the event is set."""

    url: str = ""
    names: str | None = None
    fails: ErrorCode | None = None
    hangs_up: bool = False
    stopped: asyncio.Event | None = None
    asked: list[str] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            await reader.readexactly(size)
            self.asked.append(head.partition(" http/1.1")[0])
            if self.stopped is not None:
                await self.stopped.wait()
            elif not self.hangs_up:
                writer.write(self._answer())
                await writer.drain()
        writer.close()

    def _answer(self) -> bytes:
        body: dict[str, object]
        if self.fails is None:
            status, body = 201, {"appended": [{"partition": 0, "offset": 7, "count": 1}]}
        else:
            status, body = self.fails.status, {"code": self.fails.slug, "detail": "no"}
        text = json.dumps(body)
        named = "" if self.names is None else f"fencelog-owner: {self.names}\r\n"
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\nconnection: close\r\n{named}"
        return f"{head}\r\n{text}".encode()


@contextlib.asynccontextmanager
async def serving(*servers: Server) -> AsyncIterator[FencelogClient]:
    """Serve all of them; yields a client that knows the first one."""
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
            await stack.enter_async_context(listening)
            server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield await stack.enter_async_context(FencelogClient(servers[0].url))


async def append(client: FencelogClient, partition: int | None = 0) -> None:
    appended = await client.append("orders", b"x", partition=partition)
    assert appended.offset == 7


async def test_the_owner_is_asked_once_it_is_known() -> None:
    service, owner = Server(), Server()
    async with serving(service, owner) as client:
        service.names = owner.url
        for _ in range(3):
            await append(client)
        assert (len(service.asked), len(owner.asked)) == (1, 2)
        await append(client, 1)  # Another partition has another owner, or not.
        assert (len(service.asked), len(owner.asked)) == (2, 2)
        await append(client, None)
        await append(client, None)
        assert (len(service.asked), len(owner.asked)) == (3, 3)
        await client.append_keyed("orders", b"")
        assert (len(service.asked), len(owner.asked)) == (4, 3)


async def test_the_owner_is_asked_for_offsets_of_times_too() -> None:
    service, owner = Server(), Server()
    async with serving(service, owner) as client:
        service.names = owner.url
        await append(client)
        await client.partition_offsets("orders", 0, 7)
        await client.partition_offsets("orders", 1, 7)
        assert [request.split("?")[0] for request in owner.asked] == [
            "get /v1/topics/default/orders/partitions/0/offsets"
        ]


async def test_a_broker_that_is_the_owner_no_more_tells_the_next_one() -> None:
    service, previous, owner = Server(), Server(), Server()
    async with serving(service, previous, owner) as client:
        service.names, previous.names = previous.url, owner.url
        for _ in range(4):
            await append(client)
        assert [len(each.asked) for each in (service, previous, owner)] == [1, 1, 2]


@pytest.mark.parametrize("ending", ["", "/"])
async def test_an_owner_that_cannot_be_reached_is_not_tried_again_for_some_time(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Server()
    async with serving(service) as client:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
            service.names = nobody + ending
            for _ in range(4):
                await append(client)
            assert len(service.asked) == 4
            assert client._service._owners.of("/v1/topics/default/orders/0") is None
        monkeypatch.setattr(limits, "AVOID_S", -1.0)
        client._service._owners.avoid(nobody)
        await append(client)
        assert client._service._owners.of("/v1/topics/default/orders/0") == nobody


@dataclass
class Silent:
    """Servers that let the first attempts to connect wait in vain, or refuse them."""

    attempts: int
    error: type[httpx.TransportError] = httpx.ConnectTimeout
    asked: list[tuple[str, float]] = field(default_factory=list)

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((str(request.url.host), request.extensions["timeout"]["connect"]))
        if len(self.asked) <= self.attempts:
            raise self.error("")
        return httpx.Response(201, json={"appended": [{"partition": 0, "offset": 7, "count": 1}]})


@contextlib.asynccontextmanager
async def asking(servers: Silent, *names: str) -> AsyncIterator[FencelogClient]:
    async with FencelogClient([f"http://{name}" for name in names]) as client:
        await client._service.close()
        client._service._http = httpx.AsyncClient(transport=httpx.MockTransport(servers.answer))
        yield client


async def test_a_name_of_several_servers_is_asked_again_when_one_of_them_is_silent() -> None:
    servers = Silent(attempts=2)
    async with asking(servers, "service") as client:
        await append(client)
    assert servers.asked == [("service", 1.0), ("service", 1.0), ("service", 3.0)]


async def test_every_server_is_asked_before_a_silent_one_is_asked_again() -> None:
    servers = Silent(attempts=3)
    async with asking(servers, "a", "b") as client:
        await append(client)
    assert servers.asked == [("a", 1.0), ("b", 1.0), ("a", 1.0), ("b", 1.0)]


async def test_silence_has_an_end() -> None:
    servers = Silent(attempts=100)
    async with asking(servers, "service") as client:
        with pytest.raises(FencelogError, match="cannot reach http://service") as raised:
            await append(client)
    assert raised.value.code is ErrorCode.NO_OWNER
    assert sum(connect_s for _, connect_s in servers.asked) == 5.0


async def test_what_refuses_is_not_asked_again_by_the_same_request() -> None:
    servers = Silent(attempts=100, error=httpx.ConnectError)
    async with asking(servers, "a", "b") as client:
        with pytest.raises(FencelogError, match="cannot reach") as raised:
            await append(client)
    assert raised.value.code is ErrorCode.NO_OWNER
    assert [name for name, _ in servers.asked] == ["a", "b"]


async def test_an_append_that_the_owner_does_not_answer_is_not_sent_again() -> None:
    """The append may have been written."""
    service, owner = Server(), Server(hangs_up=True)
    async with serving(service, owner) as client:
        service.names = owner.url
        await append(client)
        with pytest.raises(FencelogError, match="did not answer") as raised:
            await append(client)
        assert raised.value.code is ErrorCode.APPEND_UNKNOWN
        assert (len(service.asked), len(owner.asked)) == (1, 1)
        await append(client)
        assert (len(service.asked), len(owner.asked)) == (2, 1)


async def test_after_a_wait_that_its_caller_ended_the_service_is_asked() -> None:
    """An owner that stands still keeps its connections, and never answers."""
    goes_on = asyncio.Event()
    first, owner = Server(), Server(stopped=goes_on)
    async with serving(first, owner) as client:
        first.names = owner.url
        await client.append("t", b"1", partition=0)
        waiting = asyncio.create_task(client.append("t", b"2", partition=0))
        await until(lambda: len(owner.asked) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        first.names = None
        await client.append("t", b"3", partition=0)
        assert (len(first.asked), len(owner.asked)) == (2, 1)
        goes_on.set()


async def test_after_a_refusal_of_the_owner_the_service_is_asked() -> None:
    service, owner = Server(), Server(fails=ErrorCode.DRAINING)
    async with serving(service, owner) as client:
        service.names = owner.url
        await append(client)
        with pytest.raises(FencelogError) as raised:
            await append(client)
        assert raised.value.code is ErrorCode.DRAINING
        await append(client)
        assert (len(service.asked), len(owner.asked)) == (2, 1)


async def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED_OWNERS", 3)
    known = limits.KnownOwners()
    for number in range(10):
        known.note(f"t/{number}", "http://a/")
        known.avoid(f"http://b{number}")
        assert known.of(f"t/{number}") == "http://a"
        assert len(known._of) <= 3
        assert len(known._avoided_until) <= 3


async def test_only_urls_are_followed() -> None:
    known = limits.KnownOwners()
    for url in ("", "broker-1", "ftp://x", None):
        known.note("t", url)
    known.note("", "http://a")
    assert known.of("t") is None
    assert known.of("") is None
