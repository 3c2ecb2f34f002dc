"""The addresses of ZooKeeper's servers: looked up each time, and never for longer than it takes to
see that no name server answers."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fencelog.ledgers.metastore import zookeeper_names
from fencelog.ledgers.metastore.zookeeper_names import ServerNames

NAME = "zookeeper.test"
ANSWER = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


class NameServer:
    """A name server that answers with these addresses, with an error, or (None) not at all."""

    def __init__(self) -> None:
        self.answer: list[str] | OSError | None = ANSWER
        self.asked = 0
        self.left = asyncio.Event()
        """The event of answering those who wait, which are answered as it is then."""

    async def getaddrinfo(self, name: str, port: None, **options: Any) -> list[Any]:
        assert (name, port, options) == (NAME, None, {"type": socket.SOCK_STREAM})
        self.asked += 1
        while self.answer is None:
            await self.left.wait()
        if isinstance(self.answer, OSError):
            raise self.answer
        # Each address comes once for each protocol.
        found = [address for address in self.answer for _ in range(2)]
        return [(socket.AF_INET, None, 6, "", (address, 0)) for address in found]


@pytest_asyncio.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> NameServer:
    server = NameServer()
    monkeypatch.setattr(zookeeper_names, "LOOKUP_S", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", server.getaddrinfo)
    return server


@pytest_asyncio.fixture
async def names() -> AsyncIterator[ServerNames]:
    names = ServerNames()
    yield names
    await names.close()


async def test_addresses_are_looked_up_each_time(names: ServerNames, server: NameServer) -> None:
    assert await names.addresses(NAME) == ANSWER
    server.answer = ["10.0.0.4"]
    assert await names.addresses(NAME) == ["10.0.0.4"]
    assert server.asked == 2


async def test_what_was_found_is_tried_while_no_name_server_answers(
    names: ServerNames, server: NameServer
) -> None:
    """Another one is the first each time: a dead one takes the time of one attempt."""
    await names.addresses(NAME)
    server.answer = None
    found = [list(await names.addresses(NAME)) for _ in range(3)]
    assert [sorted(each) for each in found] == [ANSWER] * 3
    assert {each[0] for each in found} == {*ANSWER}


async def test_there_is_one_lookup_at_a_time(names: ServerNames, server: NameServer) -> None:
    """Each occupies a thread until the resolver gives up."""
    await names.addresses(NAME)
    server.answer = None
    for _ in range(3):
        await names.addresses(NAME)
    assert server.asked == 2


async def test_a_late_answer_counts_from_then_on(names: ServerNames, server: NameServer) -> None:
    await names.addresses(NAME)
    server.answer = None
    await names.addresses(NAME)
    server.answer = ["10.0.0.4"]
    server.left.set()
    await asyncio.sleep(0)
    server.answer = OSError("no name server")
    assert await names.addresses(NAME) == ["10.0.0.4"]


async def test_a_lookup_that_fails_leaves_what_was_found(
    names: ServerNames, server: NameServer
) -> None:
    await names.addresses(NAME)
    server.answer = OSError("no name server")
    assert sorted(await names.addresses(NAME)) == ANSWER
    server.answer = ["10.0.0.4"]
    assert await names.addresses(NAME) == ["10.0.0.4"]


async def test_a_name_that_was_never_found_is_an_error(
    names: ServerNames, server: NameServer
) -> None:
    server.answer = OSError("no name server")
    with pytest.raises(OSError, match="no name server"):
        await names.addresses(NAME)


async def test_a_first_lookup_is_waited_for(names: ServerNames, server: NameServer) -> None:
    server.answer = None
    found = asyncio.create_task(names.addresses(NAME))
    await asyncio.sleep(5 * zookeeper_names.LOOKUP_S)
    assert not found.done()
    server.answer = ANSWER
    server.left.set()
    assert await found == ANSWER


async def test_an_attempt_that_is_given_up_leaves_its_lookup_to_the_next_one(
    names: ServerNames, server: NameServer
) -> None:
    server.answer = None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await names.addresses(NAME)
    server.answer = ANSWER
    server.left.set()
    assert await names.addresses(NAME) == ANSWER
    assert server.asked == 1


async def test_the_error_of_a_lookup_that_was_left_behind_is_no_news(
    names: ServerNames, server: NameServer
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
    await names.addresses(NAME)
    server.answer = None
    await names.addresses(NAME)
    server.answer = OSError("no name server")
    server.left.set()
    await asyncio.sleep(0)
    server.answer = ANSWER
    assert await names.addresses(NAME) == ANSWER
    gc.collect()
    assert complaints == []


async def test_lookups_end_with_their_client(server: NameServer) -> None:
    names = ServerNames()
    server.answer = None
    waiting = asyncio.create_task(names.addresses(NAME))
    await asyncio.sleep(0)
    await names.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task for task in others if "_look_up" in repr(task)] == []
