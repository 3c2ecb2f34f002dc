"""A connection to ZooKeeper, at a server that does what the test says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from struct import pack, unpack
from typing import Any

import pytest

from fencelog.ledgers.limits import MAX_ZOOKEEPER_PACKET_BYTES
from fencelog.ledgers.metastore import zookeeper_wire as wire
from fencelog.ledgers.metastore.zookeeper_connection import (
    DIAL_S,
    TICKS_PER_TIMEOUT,
    AuthenticationRefused,
    ConnectionLost,
    SessionExpired,
    ZooKeeperConnection,
)
from tests.support.network.deaf_address import deaf_address
from tests.support.until import until, until_found

STAT = pack(">qqqqiiiqiiq", *[0] * 11)
CONNECTED = pack(">iiqi", 0, 6000, 5, 16) + bytes(range(16)) + b"\0"

Script = Callable[["Peer"], Coroutine[Any, Any, None]]


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def receive(self) -> bytes:
        (length,) = unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def request(self) -> tuple[int, int]:
        """Return the xid and the kind of the next request that is no ping."""
        while True:
            xid, kind = unpack(">ii", (await self.receive())[:8])
            if xid != wire.PING_XID:
                return xid, kind

    def send(self, packet: bytes) -> None:
        self.writer.write(pack(">i", len(packet)) + packet)

    def answer(self, xid: int, data: bytes, *, zxid: int = 1) -> None:
        self.send(pack(">iqi", xid, zxid, 0) + pack(">i", len(data)) + data + STAT)


@asynccontextmanager
async def connection_to(
    script: Script,
    *,
    hello: bytes = CONNECTED,
    timeout_ms: int = 6000,
    users: Sequence[bytes] = (),
) -> AsyncIterator[tuple[ZooKeeperConnection, list[str]]]:
    events: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.receive()
        peer.send(hello)
        try:
            await script(peer)
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        connection = await ZooKeeperConnection.open(
            ["127.0.0.1"],
            port,
            wire.SessionIdentity(),
            timeout_ms=timeout_ms,
            last_zxid=0,
            on_event=events.append,
            users=users,
        )
        try:
            yield connection, events
        finally:
            connection.abort()
            await connection.ended


async def open_at(*addresses: str, port: int) -> ZooKeeperConnection:
    return await ZooKeeperConnection.open(
        addresses,
        port,
        wire.SessionIdentity(),
        timeout_ms=6000,
        last_zxid=0,
        on_event=lambda path: None,
    )


async def test_an_address_that_takes_no_connection_is_left_for_the_next_one() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        Peer(reader, writer).send(CONNECTED)
        await reader.read()
        writer.close()

    async def open_or_late() -> ZooKeeperConnection | None:
        """A machine that pauses for half a second has none of these in time."""
        with suppress(OSError):
            return await open_at("127.0.0.2", "127.0.0.1", port=port)
        return None

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with deaf_address("127.0.0.2", port):
            connection = await until_found(open_or_late)
            assert connection.identity.session_id == 5
            connection.abort()
            await connection.ended


async def test_no_more_is_waited_for_a_connection_than_its_time() -> None:
    with deaf_address("127.0.0.1") as port:
        began_s = time.monotonic()
        with pytest.raises(OSError, match="takes no connection within 500 ms") as caught:
            await open_at("127.0.0.1", port=port)
        assert time.monotonic() - began_s >= DIAL_S
    assert not isinstance(caught.value, TimeoutError)  # nothing for which more time would do


async def test_requests_are_in_flight_together_and_answered_in_order() -> None:
    async def script(peer: Peer) -> None:
        xids = [(await peer.request())[0] for _ in range(3)]
        for xid in xids:
            peer.answer(xid, b"%d" % xid, zxid=100 + xid)

    async with connection_to(script) as (connection, _):
        assert connection.identity == wire.SessionIdentity(5, bytes(range(16)))
        answers = [connection.send(wire.get(f"/{n}")) for n in range(3)]
        assert [(await answer)[0] for answer in answers] == [b"1", b"2", b"3"]
        assert connection.last_zxid == 103


async def test_the_newest_change_that_was_seen_stays_the_newest() -> None:
    """The next server is told of it, so that reads do not go back; not every answer names one."""

    async def script(peer: Peer) -> None:
        for zxid in (100, 0, -1):
            xid, _ = await peer.request()
            peer.answer(xid, b"", zxid=zxid)

    async with connection_to(script) as (connection, _):
        for _ in range(3):
            await connection.send(wire.get("/x"))
        assert connection.last_zxid == 100


@pytest.mark.parametrize("xid", [1, 2], ids=["without a body", "to no request"])
async def test_what_is_no_answer_names_no_change(xid: int) -> None:
    """No server has seen such a change: all would refuse the next connection."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(pack(">iqi", xid, 1 << 60, 0))

    async with connection_to(script) as (connection, _):
        with pytest.raises(ConnectionLost):
            await connection.send(wire.get("/x"))
        assert connection.last_zxid == 0


USERS = (b"ann:her password is long", b"bob:and his is too, it is")


async def test_a_connection_opens_when_all_its_users_are_authenticated() -> None:
    """What is sent before is carried out as the request of a stranger."""
    received: list[bytes] = []
    answered = 0

    async def script(peer: Peer) -> None:
        nonlocal answered
        received.extend([await peer.receive() for _ in USERS])
        for _ in USERS:
            peer.send(pack(">iqi", wire.PING_XID, 0, 0))
            await asyncio.sleep(0.05)
            answered += 1
            peer.send(pack(">iqi", wire.AUTHENTICATION_XID, 0, 0))
        xid, _ = await peer.request()
        peer.answer(xid, b"for ann")

    async with connection_to(script, users=USERS) as (connection, _):
        assert answered == len(USERS)
        assert (await connection.send(wire.get("/x")))[0] == b"for ann"
    assert received == [wire.encode_authentication(user)[4:] for user in USERS]


async def test_a_user_who_is_refused_is_no_lost_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.send(pack(">iqi", wire.AUTHENTICATION_XID, 0, 0))
        peer.send(pack(">iqi", wire.AUTHENTICATION_XID, 0, -115))
        peer.writer.close()

    with pytest.raises(AuthenticationRefused, match="-115"):
        async with connection_to(script, users=USERS):
            pass


async def test_another_answer_in_place_of_that_to_an_authentication_opens_nothing() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.send(pack(">iqi", 1, 0, 0))

    with pytest.raises(ConnectionLost):
        async with connection_to(script, users=USERS[:1]):
            pass


async def test_packets_may_arrive_in_any_pieces() -> None:
    async def script(peer: Peer) -> None:
        xid, _ = await peer.request()
        event = pack(">iqiiii", wire.EVENT_XID, -1, 0, 3, 3, 2) + b"/x"
        answer = pack(">iqii", xid, 1, 0, 3) + b"abc" + STAT
        stream = b"".join(pack(">i", len(packet)) + packet for packet in (event, answer))
        for position in range(len(stream)):
            peer.writer.write(stream[position : position + 1])
            await peer.writer.drain()
            await asyncio.sleep(0)

    async with connection_to(script) as (connection, events):
        assert await connection.send(wire.get("/x")) == (b"abc", wire.Stat(0, 0))
        assert events == ["/x"]


async def test_a_refused_request_fails_and_the_next_is_answered() -> None:
    async def script(peer: Peer) -> None:
        xid, _ = await peer.request()
        peer.send(pack(">iqi", xid, 1, -101))
        xid, _ = await peer.request()
        peer.answer(xid, b"")

    async with connection_to(script) as (connection, _):
        with pytest.raises(wire.NoNodeError):
            await connection.send(wire.get("/x"))
        await connection.send(wire.get("/y"))


async def test_a_caller_that_went_away_does_not_shift_the_answers() -> None:
    async def script(peer: Peer) -> None:
        for _ in range(2):
            xid, _ = await peer.request()
            peer.answer(xid, b"%d" % xid)

    async with connection_to(script) as (connection, _):
        gone = connection.send(wire.get("/x"))
        answer = connection.send(wire.get("/y"))
        gone.cancel()
        assert (await answer)[0] == b"2"


GARBAGE = [
    pack(">i", -1),
    pack(">i", MAX_ZOOKEEPER_PACKET_BYTES + 1),
    pack(">i", 3) + b"abc",
    pack(">iiqi", 16, 2, 1, 0),  # an answer to a request that was not sent
    pack(">iiqii", 20 + len(STAT), 2, 1, 0, 0) + STAT,  # which would be one to the first
    pack(">iiqi", 16, 1, 1, 0),  # without a body
    pack(">iiqii", 20, 1, 1, 0, 99),  # with data beyond its end
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_what_cannot_be_understood_ends_the_connection(garbage: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(garbage)

    async with connection_to(script) as (connection, _):
        with pytest.raises(ConnectionLost):
            await connection.send(wire.get("/x"))
        await connection.ended
        assert not connection.is_open


async def test_the_requests_in_flight_fail_with_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.writer.transport.abort()

    async with connection_to(script) as (connection, _):
        answers = [connection.send(wire.get(f"/{n}")) for n in range(3)]
        for answer in answers:
            with pytest.raises(ConnectionLost):
                await answer


async def test_a_silent_server_is_left_after_two_thirds_of_the_session_s_timeout() -> None:
    pings = 0

    async def script(peer: Peer) -> None:
        nonlocal pings
        await peer.request()
        while await peer.receive() == pack(">ii", wire.PING_XID, 11):
            pings += 1

    hello = pack(">iiqi", 0, 600, 5, 16) + bytes(16) + b"\0"
    async with connection_to(script, hello=hello) as (connection, _):
        with pytest.raises(ConnectionLost):
            await connection.send(wire.get("/x"))
    # One more ping is due when it is left.
    assert (pings + 1) / TICKS_PER_TIMEOUT == pytest.approx(2 / 3)


async def test_pings_keep_an_idle_connection() -> None:
    answered = 0

    async def script(peer: Peer) -> None:
        nonlocal answered
        while True:
            await peer.receive()
            peer.send(pack(">iqi", wire.PING_XID, 1, 0))
            answered += 1

    hello = pack(">iiqi", 0, 300, 5, 16) + bytes(16) + b"\0"
    async with connection_to(script, hello=hello) as (connection, _):
        await until(lambda: answered >= 12)
        assert connection.is_open


async def test_an_expired_session_is_refused() -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read()

    expired = pack(">iiqi", 0, 0, 0, 16) + bytes(16) + b"\0"
    with pytest.raises(SessionExpired):
        async with connection_to(script, hello=expired):
            pass


async def test_a_server_that_hangs_up_during_the_handshake_is_lost() -> None:
    async def script(peer: Peer) -> None:
        peer.writer.transport.abort()

    with pytest.raises(ConnectionLost):
        async with connection_to(script, hello=b""):
            pass
