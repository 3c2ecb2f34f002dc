"""A ZooKeeper session over servers that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import TypeVar

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore import zookeeper_session
from fencelog.ledgers.metastore import zookeeper_wire as wire
from fencelog.ledgers.metastore.zookeeper_credentials import NOBODY, ZooKeeperCredentials
from fencelog.ledgers.metastore.zookeeper_session import ZooKeeperSession
from fencelog.ledgers.metastore.zookeeper_wire import AUTHENTICATION_XID

T = TypeVar("T")

LONG_TIMEOUT_MS = 60_000
CONNECTED = pack(">iiiqi", 37, 0, LONG_TIMEOUT_MS, 5, 16) + bytes(16) + b"\0"

GET = pack(">ii", 1, 4)  # the first request, if it reads a node


class HostOfOneOrder(SystemHost):
    """A host that leaves the servers in the order given."""

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(items)


@asynccontextmanager
async def service(*hellos: bytes, answer: bytes = b"") -> AsyncIterator[str]:
    """Run a name of servers that greet each client so, and answer its first request so, and say no
    more: each connection reaches the next one, the last one from then on. Yield its address."""
    left = list(hellos)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        try:
            while packet := await reader.read(4096):
                if GET in packet:
                    writer.write(answer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def session_at(*hosts: str, credentials: ZooKeeperCredentials = NOBODY) -> ZooKeeperSession:
    return ZooKeeperSession(
        hosts,
        host=HostOfOneOrder(),
        timeout_ms=LONG_TIMEOUT_MS,
        on_state=lambda state: None,
        on_event=lambda path: None,
        credentials=credentials,
    )


async def test_a_silent_server_does_not_use_up_the_time_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 2_000)
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with service(b"") as silent, service(CONNECTED) as well:
        session = session_at(silent, well)
        await session.start()
        assert session.session_id == 5
        await session.close()


async def test_a_name_that_no_resolver_takes_leaves_the_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 2_000)
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with service(CONNECTED) as well:
        session = session_at("zk..1:2181", well)
        await session.start()
        assert session.session_id == 5
        await session.close()


async def test_a_name_of_several_servers_is_tried_again_when_one_of_them_is_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One attempt takes a part of the time in which the session has to be resumed."""
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 3_000)
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with service(b"", CONNECTED) as name:
        session = session_at(name)
        began = asyncio.get_running_loop().time()
        await session.start()
        assert asyncio.get_running_loop().time() - began < 1.5
        assert session.session_id == 5
        await session.close()


async def test_attempts_take_longer_where_servers_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 600)
    async with service(b"") as slow:
        session = session_at(slow)
        timeouts: list[float] = []
        connect = session._connect

        async def recorded(address: str, timeout_s: float) -> None:
            timeouts.append(round(timeout_s, 3))
            await connect(address, 0.001)

        monkeypatch.setattr(session, "_connect", recorded)
        monkeypatch.setattr(zookeeper_session, "_RECONNECT_DELAY_S", 0.01)
        monkeypatch.setattr(zookeeper_session, "_RECONNECT_DELAY_MAX_S", 0.01)
        with pytest.raises(FencelogError):
            await session.start()
        await session.close()
    assert timeouts[:5] == [0.1, 0.2, 0.4, 0.6, 0.6]


CREDENTIALS = ZooKeeperCredentials(Path("/secrets/users"), (b"ann:her password is long",))
ACCEPTED, REFUSED = (pack(">iiqi", 16, AUTHENTICATION_XID, 0, error) for error in (0, -115))


async def test_refused_credentials_are_a_definite_error_at_once() -> None:
    async with service(CONNECTED + REFUSED) as name:
        session = session_at(name, credentials=CREDENTIALS)
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            FencelogError, match=f"{name} does not take .* /secrets/users"
        ) as caught:
            await session.start()
        assert asyncio.get_running_loop().time() - began < zookeeper_session.START_TIMEOUT_MS / 2000
    assert caught.value.code is ErrorCode.METADATA_UNAUTHORIZED
    assert "her password" not in str(caught.value)


async def test_a_server_that_takes_the_credentials_is_found_behind_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with service(CONNECTED + REFUSED) as strict, service(CONNECTED + ACCEPTED) as well:
        session = session_at(strict, well, credentials=CREDENTIALS)
        await session.start()
        assert session.session_id == 5
        await session.close()


async def test_a_node_of_others_is_a_definite_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    no_auth = pack(">iiqi", 16, 1, 0, -102)
    for hello, credentials, why in (
        (CONNECTED, NOBODY, "the metadata URL has no credentials=FILE"),
        (CONNECTED + ACCEPTED, CREDENTIALS, "for others than the users in /secrets/users"),
    ):
        for use in ("read", "write", "arm"):
            async with service(hello, answer=no_auth) as name:
                session = session_at(name, credentials=credentials)
                await session.start()
                request = wire.get("/x")
                with pytest.raises(FencelogError, match=why) as caught:
                    await (
                        session.arm(request)
                        if use == "arm"
                        else getattr(session, use)("x", request)
                    )
                assert caught.value.code is ErrorCode.METADATA_UNAUTHORIZED
                await session.close()
