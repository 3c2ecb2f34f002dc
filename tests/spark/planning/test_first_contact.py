"""The first contact with servers that answer, refuse connections, or are silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning import first_contact
from fencelog.spark_connector.planning.first_contact import servers_that_answer
from fencelog.spark_connector.planning.options import parse_options
from fencelog.spark_connector.stream.service import TopicFollower
from tests.spark.support.silent import silent_servers

NOBODY = "http://127.0.0.1:1"
LONGEST_S = 10
"""The time within which a query that reaches no server has to fail."""


@pytest.fixture
def silent() -> Iterator[list[str]]:
    with silent_servers(3) as servers:
        yield servers


@asynccontextmanager
async def serving(status: str, *, after: asyncio.Event | None = None) -> AsyncIterator[str]:
    """A server that answers everything with this status, once the event is set."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if after is not None:
            await after.wait()
        head = f"HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + b"{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()


@pytest.fixture
async def answering() -> AsyncIterator[str]:
    async with serving("404 Not Found") as server:
        yield server


async def test_a_server_that_answers_comes_first(silent: list[str], answering: str) -> None:
    servers = [silent[0], NOBODY, answering, silent[1]]
    found = await servers_that_answer(servers)
    assert found == (answering, silent[0], NOBODY, silent[1])


async def test_a_proxy_without_a_service_behind_it_is_no_server_that_answers() -> None:
    """It answers at once, and the next server does after it."""
    refused = asyncio.Event()
    async with serving("503 Service Unavailable") as proxy, serving("200 OK", after=refused) as it:
        found = asyncio.create_task(servers_that_answer([proxy, it]))
        with pytest.raises(FencelogError, match=f"503 Service Unavailable: {proxy}") as raised:
            await servers_that_answer([proxy, NOBODY])
        assert raised.value.code is ErrorCode.NO_OWNER
        refused.set()
        assert await found == (it, proxy)


async def test_all_servers_are_named_if_none_answers(
    silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_contact, "ANSWER_S", 2.0)
    with pytest.raises(FencelogError) as raised:
        await servers_that_answer([*silent, NOBODY])
    assert raised.value.code is ErrorCode.NO_OWNER
    for server in silent:
        assert f"{server} has not answered within 2 s" in raised.value.detail
    assert f"cannot reach {NOBODY}: " in raised.value.detail


async def test_a_stream_gives_up_silent_servers_within_seconds(silent: list[str]) -> None:
    """Its calls block, so they are made in a thread."""
    servers = ",".join([*silent, NOBODY])
    options = parse_options({"server": servers, "topic": "t"})

    def ask() -> float:
        began = time.monotonic()
        follower = TopicFollower(options)
        try:
            with pytest.raises(FencelogError, match=rf"reading topic .* {silent[1]} has not"):
                follower.segments(None)
        finally:
            follower.close()
        return time.monotonic() - began

    assert await asyncio.get_running_loop().run_in_executor(None, ask) < LONGEST_S
