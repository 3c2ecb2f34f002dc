"""The rules of a server for its connections: limits, order, the server's end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from fencelog.bookie.server.connection import Connection
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.format.run import merge_runs
from fencelog.ledgers.rpc.answers import decode_answers
from fencelog.ledgers.rpc.lacs import decode_refusals, encode_lacs
from fencelog.ledgers.rpc.wire import (
    READ_BODY,
    WRITE_LAC_BODY,
    Flag,
    FrameReader,
    Op,
    encode_hello,
    encode_request,
    with_contexts,
)
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk
from tests.support.frames import FakeTransport

HELLO = encode_request(Op.HELLO, 0, encode_hello({"versions": [1]}))


@pytest.fixture
async def server(open_bookie: OpenBookie, faulty_disk: FaultyDisk) -> AsyncIterator[BookieServer]:
    bookie = await open_bookie(disk=faulty_disk, write_cache_bytes=1 << 20)
    server = await BookieServer.start(bookie, "127.0.0.1", 0)
    yield server
    faulty_disk.waits.clear()
    await server.close()


def connect(server: BookieServer) -> tuple[Connection, FakeTransport]:
    connection = Connection(server)
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    return connection, transport


async def connect_with(server: BookieServer, *features: str) -> tuple[Connection, FakeTransport]:
    """Connect, and shake hands."""
    connection, transport = connect(server)
    hello = {"versions": [1], "features": list(features)}
    connection.data_received(encode_request(Op.HELLO, 0, encode_hello(hello)))
    await asyncio.sleep(0)
    transport.written.clear()
    return connection, transport


async def test_a_connection_that_was_accepted_while_the_server_closes_is_dropped(
    server: BookieServer,
) -> None:
    """A loop makes it in a later turn than it accepted it; closing would wait for its end."""
    await server.close()
    _, transport = connect(server)
    assert transport.is_over


async def test_a_connection_that_comes_while_adds_wait_is_greeted_and_then_waits_too(
    server: BookieServer, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    faulty_disk.waits.add("sync .entrylog")
    answers: list[object] = []
    for i in range(8):
        run = requests.run(1, i, size=200_000)
        server.bookie.add(run, recovery=False, on_reply=answers.append)
    assert server.bookie.is_under_pressure
    connection, transport = connect(server)
    connection.data_received(HELLO)
    await asyncio.sleep(0)
    assert transport.written
    assert transport.is_reading_paused
    faulty_disk.waits.clear()
    await requests.until(lambda: not transport.is_reading_paused)


async def test_explicit_lacs_in_flight_are_limited(
    server: BookieServer,
    requests: Requests,
    faulty_disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A journal that hangs must not fill the memory with them."""
    monkeypatch.setattr("fencelog.bookie.server.server.BOOKIE_MAX_IN_FLIGHT_BYTES", 100_000)
    await requests.add(server.bookie, requests.run(1, 0))
    connection, transport = connect(server)
    connection.data_received(HELLO)
    faulty_disk.waits.add("sync .journal")
    for lac in range(1000):
        body = WRITE_LAC_BODY.pack(1, lac % 7)
        connection.data_received(encode_request(Op.WRITE_LAC, lac, body))
    assert transport.is_reading_paused
    faulty_disk.waits.clear()
    await requests.until(lambda: not transport.is_reading_paused)
    await requests.until(lambda: server.in_flight_bytes == 0)


async def test_the_lacs_of_one_request_count_each(
    server: BookieServer, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """Until all are durable; then one frame answers them, though some were refused at once."""
    await requests.add(server.bookie, requests.run(1, 0, 5))
    connection, transport = await connect_with(server, "write_lacs")
    before = server.in_flight_bytes
    faulty_disk.waits.add("sync .journal")
    one, many = encode_lacs([(1, 0)]), encode_lacs([(1, 3), (2, 0), (1, 1)])
    connection.data_received(encode_request(Op.WRITE_LACS, 7, one))
    per_lac = server.in_flight_bytes - before
    assert per_lac > 0
    connection.data_received(encode_request(Op.WRITE_LACS, 8, many))
    assert server.in_flight_bytes - before == 4 * per_lac
    for _ in range(20):
        await asyncio.sleep(0)
    assert not transport.written
    faulty_disk.waits.clear()
    await requests.until(lambda: server.in_flight_bytes == before)
    await asyncio.sleep(0)
    first, second = FrameReader(1 << 20).feed(bytes(transport.written))
    assert (first.request_id, first.status, first.body) == (7, 0, b"")
    assert (second.request_id, second.status) == (8, 0)
    refusals = decode_refusals(second.body, 3, "b")
    assert {place: error.code for place, error in refusals.items()} == {1: ErrorCode.NO_SUCH_LEDGER}


async def test_the_adds_of_one_request_are_answered_as_they_end(
    server: BookieServer, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    """One that is refused does not wait for those that wait for the journal, which wait together;
    all of them count until then."""
    server.bookie.fence(7)
    connection, transport = await connect_with(server, "add_many")
    before = server.in_flight_bytes
    faulty_disk.waits.add("sync .journal")
    runs = [requests.run(1, 0), requests.run(7, 0), requests.run(2, 0), requests.run(1, 1)]
    connection.data_received(encode_request(Op.ADD_MANY, 9, b"".join(runs)))
    assert server.in_flight_bytes - before == sum(map(len, runs))
    await requests.until(lambda: bool(transport.written))
    (refused,) = FrameReader(1 << 20).feed(bytes(transport.written))
    assert (refused.request_id, refused.status, refused.flags) == (9, 0, Flag.MORE)
    assert decode_answers(refused.body[4:], 4, "b", request="ADD_MANY").keys() == {1}
    assert server.in_flight_bytes - before == sum(map(len, runs)) - len(runs[1])
    transport.written.clear()
    faulty_disk.waits.clear()
    await requests.until(lambda: server.in_flight_bytes == before)
    await asyncio.sleep(0)
    (stored,) = FrameReader(1 << 20).feed(bytes(transport.written))
    assert (stored.request_id, stored.status, stored.flags) == (9, 0, Flag.NONE)
    answers = decode_answers(stored.body[4:], 4, "b", request="ADD_MANY")
    assert answers == dict.fromkeys((0, 2, 3))
    transport.written.clear()
    read = encode_request(Op.READ, 10, READ_BODY.pack(1, 0, 10, 1 << 20))
    connection.data_received(read)
    await requests.until(lambda: bool(transport.written))
    (entries,) = FrameReader(1 << 20).feed(bytes(transport.written))
    assert entries.body[8:] == merge_runs([runs[0], runs[3]])


async def test_all_adds_of_a_request_that_is_stored_are_one_number(
    server: BookieServer, requests: Requests
) -> None:
    connection, transport = await connect_with(server, "add_many")
    runs = [requests.run(ledger_id, 0) for ledger_id in range(1, 6)]
    connection.data_received(encode_request(Op.ADD_MANY, 9, b"".join(runs)))
    await requests.until(lambda: bool(transport.written))
    (stored,) = FrameReader(1 << 20).feed(bytes(transport.written))
    assert (stored.status, stored.flags, stored.body) == (0, 0, (5).to_bytes(4, "little"))


@pytest.mark.parametrize("features", [("add_many",), ("contexts",), ()])
async def test_many_adds_are_taken_as_far_as_both_ends_know_them(
    server: BookieServer, requests: Requests, features: tuple[str, ...]
) -> None:
    connection, transport = await connect_with(server, *features)
    body = with_contexts((), requests.run(1, 0)) * 2
    connection.data_received(encode_request(Op.ADD_MANY, 9, body, Flag.CONTEXTS))
    assert transport.is_over
    assert server.in_flight_bytes == 0


async def test_a_peer_that_vanished_is_found_out(server: BookieServer, requests: Requests) -> None:
    """A server sends nothing to a peer that asks nothing; its connection would count for ever."""
    host, port = server.address.rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port))
    await requests.until(lambda: bool(server._connections))
    (connection,) = server._connections
    assert connection._transport is not None
    link = connection._transport.get_extra_info("socket")
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
    writer.close()


async def test_connections_and_listeners_are_told_in_the_order_in_which_they_came(
    server: BookieServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that depends on addresses of objects cannot be played again."""
    order: list[object] = []
    monkeypatch.setattr(FakeTransport, "pause_reading", lambda self: order.append(self))
    transports = [connect(server)[1] for _ in range(50)]
    server.add_in_flight(1 << 40)
    assert order == transports
    listeners = [lambda i=i: order.append(i) for i in range(50)]
    order.clear()
    for listener in listeners:
        server.bookie.on_read_only[listener] = None
    server.bookie.is_read_only = True
    assert order == list(range(50))
