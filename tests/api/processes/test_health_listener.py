"""A probe is answered, whatever else is connected to the listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
import pytest_asyncio
import uvloop

from fencelog.api.processes import health_listener
from fencelog.api.processes.health_listener import MAX_CONNECTIONS, listening_for_health
from fencelog.api.server.health import Health
from tests.support.network.http_client import http_client
from tests.support.until import until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


class Served:
    """A listener. ``may_answer``: /readyz and /metrics wait for it."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0
        self.metrics = b"fencelog_bookie_up 1\n"
        self.url = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def check(self) -> None:
        self.asked += 1
        await self.may_answer.wait()

    async def tell(self) -> bytes:
        return self.metrics

    async def connect(self, request: bytes = b"") -> asyncio.StreamReader:
        """Connect and send this."""
        url = httpx.URL(self.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        self._writers.append(writer)
        writer.write(request)
        return reader

    async def probe(self, path: str = "/healthz") -> int:
        async with http_client() as http:
            return (await http.get(f"{self.url}{path}")).status_code

    def close(self) -> None:
        self.may_answer.set()
        for writer in self._writers:
            writer.close()


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    listening = listening_for_health(Health(served.check), "127.0.0.1:0", metrics=served.tell)
    async with listening as served.url:
        yield served
        served.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Tell whether the listener has closed a connection without any answer."""
    try:
        async with asyncio.timeout(20):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_silent_connections_make_space_for_a_probe(served: Served) -> None:
    silent = [await served.connect() for _ in range(MAX_CONNECTIONS)]
    assert [await served.probe() for _ in range(3)] == [200, 200, 200]
    assert await is_closed(silent[0])
    assert not silent[-1].at_eof(), "those that came last are the last to go"


async def test_a_connection_that_is_being_answered_is_the_last_to_go(served: Served) -> None:
    asking = asyncio.create_task(served.probe("/readyz"))
    await until(lambda: served.asked == 1)
    for _ in range(2 * MAX_CONNECTIONS):
        await served.connect(HEAD)
    assert await served.probe() == 200
    served.may_answer.set()
    assert await asking == 200


async def test_requests_that_are_not_answered_make_space_as_well(served: Served) -> None:
    ready = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    waiting = [await served.connect(ready) for _ in range(MAX_CONNECTIONS)]
    await until(lambda: served.asked == MAX_CONNECTIONS)
    assert await served.probe() == 200
    assert await is_closed(waiting[0])


@pytest.mark.parametrize("sent", [b"", HEAD])
async def test_a_request_has_to_arrive(
    served: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(health_listener, "REQUEST_S", 0.2)
    assert await is_closed(await served.connect(sent))


async def test_an_answer_has_to_be_taken(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_listener, "ANSWER_S", 0.2)
    served.metrics = b"#" * (64 << 20)
    reader = await served.connect(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.sleep(1)  # the client takes nothing
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(len(served.metrics))


async def test_a_head_has_a_limit(served: Served) -> None:
    assert await is_closed(await served.connect(HEAD + b"X: " + b"x" * (1 << 20)))
    assert await served.probe() == 200


async def test_a_connection_has_one_exchange(served: Served) -> None:
    reader = await served.connect((HEAD + b"\r\n") * 2)
    async with asyncio.timeout(10):
        answer = await reader.read()
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b"connection: close" in answer.lower()
