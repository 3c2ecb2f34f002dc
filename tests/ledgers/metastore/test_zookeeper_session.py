"""A ZooKeeper session over servers that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any, TypeVar

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore import zookeeper_connection, zookeeper_session
from fencelog.ledgers.metastore import zookeeper_wire as wire
from fencelog.ledgers.metastore.port import SessionState
from fencelog.ledgers.metastore.zookeeper_connection import ZooKeeperConnection
from fencelog.ledgers.metastore.zookeeper_credentials import NOBODY, ZooKeeperCredentials
from fencelog.ledgers.metastore.zookeeper_session import ZooKeeperSession
from fencelog.ledgers.metastore.zookeeper_wire import AUTHENTICATION_XID
from tests.support.network.deaf_address import deaf_address
from tests.support.network.zookeeper_server import GET, MULTI, SYNC, Node, ZooKeeperServer
from tests.support.until import until

T = TypeVar("T")

LONG_TIMEOUT_MS = 60_000
SILENCE_S = 1.0
"""The time after which a test gives up a server that says nothing."""
CONNECTED = pack(">iiiqi", 37, 0, LONG_TIMEOUT_MS, 5, 16) + bytes(16) + b"\0"
EXPIRED = pack(">iiiqi", 37, 0, 0, 0, 16) + bytes(16) + b"\0"

FIRST_GET = pack(">ii", 1, 4)  # the first request, if it reads a node


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
                if FIRST_GET in packet:
                    writer.write(answer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def session_at(
    *hosts: str,
    credentials: ZooKeeperCredentials = NOBODY,
    on_state: Callable[[SessionState], None] = lambda state: None,
) -> ZooKeeperSession:
    return ZooKeeperSession(
        hosts,
        host=HostOfOneOrder(),
        timeout_ms=LONG_TIMEOUT_MS,
        on_state=on_state,
        on_event=lambda path: None,
        credentials=credentials,
    )


async def test_a_silent_server_does_not_use_up_the_time_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", LONG_TIMEOUT_MS)
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with service(b"") as silent, service(CONNECTED) as well:
        session = session_at(silent, well)
        timeouts = record_timeouts(session, monkeypatch, first_instead_s=SILENCE_S)
        await session.start()
        assert timeouts == [10.0, 10.0]  # a sixth of the time each
        assert session.session_id == 5
        await session.close()


async def test_a_name_that_no_resolver_takes_leaves_the_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", LONG_TIMEOUT_MS)
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
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", LONG_TIMEOUT_MS)
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)
    async with service(b"", CONNECTED) as name:
        session = session_at(name)
        timeouts = record_timeouts(session, monkeypatch, first_instead_s=SILENCE_S)
        await session.start()
        assert timeouts == [10.0, 20.0]
        assert session.session_id == 5
        await session.close()


@pytest.mark.parametrize("answers", [1, 9], ids=["one lookup", "all lookups"])
async def test_an_address_that_says_nothing_is_not_the_first_of_its_name_again(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    """Though the name server, or what is known of its answers, may name it first each time."""
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", LONG_TIMEOUT_MS)
    loop = asyncio.get_running_loop()
    look_up, asked = loop.getaddrinfo, 0

    async def silent_first(name: str, port: int | None, **options: Any) -> Any:
        nonlocal asked
        if name != "zookeeper.test":
            return await look_up(name, port, **options)
        asked += 1
        if asked > answers:
            raise OSError("no name server")
        found = [await look_up(each, port, **options) for each in ("127.0.0.2", "127.0.0.1")]
        return [address for each in found for address in each]

    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(loop, "getaddrinfo", silent_first)
    port = (await server.start()).rpartition(":")[2]
    async with await asyncio.start_server(says_nothing, "127.0.0.2", int(port)):
        session = session_at(f"zookeeper.test:{port}")
        timeouts = record_timeouts(session, monkeypatch, first_instead_s=SILENCE_S)
        await session.start()
        assert len(timeouts) == 2
        await session.close()


async def test_a_server_that_opens_no_session_is_left_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers at once that a session has expired which was not there."""
    monkeypatch.setattr(zookeeper_session, "_RECONNECT_DELAY_MAX_S", 0.01)
    states: list[SessionState] = []
    async with service(EXPIRED) as name:
        session = session_at(name, on_state=states.append)
        timeouts = record_timeouts(session, monkeypatch)
        await attempted(session, timeouts)
    assert states == []


def record_timeouts(
    session: ZooKeeperSession,
    monkeypatch: pytest.MonkeyPatch,
    *,
    instead_s: float | None = None,
    first_instead_s: float | None = None,
) -> list[float]:
    """Return a list that the timeout of each attempt to connect is added to. ``instead_s``: the
    time that each gets, ``first_instead_s``: that the first one alone gets."""
    timeouts: list[float] = []
    connect = session._connect

    async def recorded(address: str, timeout_s: float) -> ZooKeeperConnection | None:
        timeouts.append(round(timeout_s, 3))
        given_s = first_instead_s if len(timeouts) == 1 else None
        return await connect(address, given_s or instead_s or timeout_s)

    monkeypatch.setattr(session, "_connect", recorded)
    return timeouts


async def attempted(session: ZooKeeperSession, timeouts: Sequence[float]) -> None:
    """Start a session and stop it after its fifth attempt to connect."""
    starting = asyncio.create_task(session.start())
    await until(lambda: len(timeouts) >= 5)
    starting.cancel()
    await asyncio.wait((starting,))


async def test_attempts_take_longer_where_servers_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 30_000)
    monkeypatch.setattr(zookeeper_session, "_RECONNECT_DELAY_MAX_S", 0.01)
    async with service(b"") as slow:
        session = session_at(slow)
        timeouts = record_timeouts(session, monkeypatch, instead_s=0.001)
        await attempted(session, timeouts)
    assert timeouts[:5] == [5.0, 10.0, 20.0, 30.0, 30.0]


async def test_attempts_that_fail_at_once_take_no_longer_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Servers that elect a leader close connections at once, and a dead one is still among them."""
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 30_000)
    monkeypatch.setattr(zookeeper_session, "_RECONNECT_DELAY_MAX_S", 0.01)
    session = session_at("127.0.0.1:1")
    timeouts = record_timeouts(session, monkeypatch)
    await attempted(session, timeouts)
    assert {*timeouts} == {5.0}


async def test_attempts_at_a_server_that_takes_no_connection_take_no_longer_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name of all servers leads to a dead one now and then: the others are to have their turn."""
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 30_000)
    monkeypatch.setattr(zookeeper_session, "_RECONNECT_DELAY_MAX_S", 0.01)
    monkeypatch.setattr(zookeeper_connection, "DIAL_S", 0.05)
    with deaf_address("127.0.0.1") as port:
        session = session_at(f"127.0.0.1:{port}")
        timeouts = record_timeouts(session, monkeypatch)
        await attempted(session, timeouts)
    assert {*timeouts} == {5.0}


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


# -- what a loss means ---------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[ZooKeeperServer]:
    server = ZooKeeperServer()
    yield server
    await server.close()


@pytest.fixture
def states() -> list[SessionState]:
    return []


@pytest.fixture
async def session(
    server: ZooKeeperServer, states: list[SessionState]
) -> AsyncIterator[ZooKeeperSession]:
    """A session at the server, which has the node ``/x``."""
    server.nodes["/x"] = Node(b"1", wire.OPEN_TO_ALL)
    session = session_at(await server.start(), on_state=states.append)
    await session.start()
    yield session
    await session.close()


async def test_a_session_is_resumed_while_no_name_server_answers(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo
    asked: list[str] = []

    async def answers_once(name: str, port: int | None, **options: Any) -> Any:
        if name != "zookeeper.test":
            return await look_up(name, port, **options)
        asked.append(name)
        if len(asked) > 1:
            await loop.create_future()
        return await look_up("127.0.0.1", port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", answers_once)
    server.nodes["/x"] = Node(b"1", wire.OPEN_TO_ALL)
    session = session_at("zookeeper.test:" + (await server.start()).rpartition(":")[2])
    await session.start()
    first = session.session_id
    server.cut()
    data, _ = await session.read("get", wire.get("/x"))
    assert (data, session.session_id, len(asked)) == (b"1", first, 2)
    await session.close()


WRITE = wire.transaction([wire.set_data("/x", b"2", 0)])


async def outcome(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await request
    return caught.value.code


async def test_a_write_whose_answer_is_lost_is_unknown_and_sent_once(
    server: ZooKeeperServer, session: ZooKeeperSession
) -> None:
    """The next server may be behind: it catches up before the read that shows the outcome."""
    server.loses = {MULTI}
    assert await outcome(session.write("set /x", WRITE)) is ErrorCode.METADATA_UNKNOWN
    assert (await session.read("get /x", wire.get("/x")))[0] == b"2"
    assert server.kinds == [MULTI, SYNC, GET]
    await session.read("get /x", wire.get("/x"))
    assert server.kinds[3:] == [GET]  # it has caught up


async def test_a_write_that_waits_for_a_connection_in_vain_has_not_happened(
    server: ZooKeeperServer,
    session: ZooKeeperSession,
    states: list[SessionState],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_session, "METADATA_TIMEOUT_MS", 50)
    await server.close()
    await until(lambda: states[-1] is SessionState.SUSPENDED)
    assert await outcome(session.write("set /x", WRITE)) is ErrorCode.METADATA_UNAVAILABLE
    assert await outcome(session.read("get /x", wire.get("/x"))) is ErrorCode.METADATA_UNAVAILABLE
    assert server.nodes["/x"].data == b"1"
    await server.start()


async def test_an_error_that_is_no_refusal_leaves_a_write_unknown(
    server: ZooKeeperServer, session: ZooKeeperSession
) -> None:
    """And the server behind what was decided elsewhere: also if it does not catch up at once."""
    operation_timeout = -7
    server.refuses = {MULTI: operation_timeout, SYNC: operation_timeout}
    assert await outcome(session.write("set /x", WRITE)) is ErrorCode.METADATA_UNKNOWN
    assert await outcome(session.read("get /x", wire.get("/x"))) is ErrorCode.METADATA_UNAVAILABLE
    assert (await session.read("get /x", wire.get("/x")))[0] == b"1"
    assert server.kinds == [MULTI, SYNC, SYNC, GET]


async def test_a_read_beside_a_sync_that_fails_has_one_of_its_own(
    server: ZooKeeperServer, session: ZooKeeperSession
) -> None:
    server.cut()
    await until(lambda: len(server.greetings) == 2)
    server.refuses = {SYNC: -7}
    reads = [session.read("get /x", wire.get("/x")) for _ in range(2)]
    first, second = await asyncio.gather(*reads, return_exceptions=True)
    assert isinstance(first, FencelogError)
    assert not isinstance(second, BaseException)
    assert server.kinds == [SYNC, SYNC, GET]


async def test_a_read_is_repeated_after_a_loss(
    server: ZooKeeperServer, session: ZooKeeperSession
) -> None:
    server.loses = {GET}
    assert (await session.read("get /x", wire.get("/x")))[0] == b"1"
    assert server.kinds == [GET, SYNC, GET]


async def test_a_session_is_continued_and_its_reads_do_not_go_back(
    server: ZooKeeperServer, session: ZooKeeperSession, states: list[SessionState]
) -> None:
    session_id = session.session_id
    await session.write("set /x", WRITE)
    server.cut()
    await session.read("get /x", wire.get("/x"))
    assert server.greetings == [(0, 0), (server.zxid, session_id)]
    assert session.session_id == session_id
    assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]


async def test_a_session_that_has_ended_is_followed_by_another_one(
    server: ZooKeeperServer, session: ZooKeeperSession, states: list[SessionState]
) -> None:
    session_id = session.session_id
    server.expire()
    await until(lambda: states[1:].count(SessionState.CONNECTED) == 1)
    assert states[1:] == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
    assert [known for _, known in server.greetings] == [0, session_id, 0]
    assert session.session_id not in (0, session_id)
    await session.write("set /x", WRITE)
