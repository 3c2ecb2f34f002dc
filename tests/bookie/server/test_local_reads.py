"""Reads that ask for places: valid where they were agreed on, and never together with a fence."""

from __future__ import annotations

import asyncio

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.connection import Connection
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.format.run import verify_run
from fencelog.ledgers.limits import KIB, MAX_READ_BYTES
from fencelog.ledgers.rpc.handshake import PLACES
from fencelog.ledgers.rpc.places import decode_places
from fencelog.ledgers.rpc.wire import (
    LAC_BODY,
    READ_BODY,
    Flag,
    Frame,
    FrameReader,
    Op,
    encode_hello,
    encode_request,
)
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.frames import FakeTransport

BODY = READ_BODY.pack(1, 0, 4096, MAX_READ_BYTES)


async def stored(open_bookie: OpenBookie, requests: Requests, *, local_reads: bool) -> Bookie:
    bookie = await open_bookie()
    assert await requests.add(bookie, requests.run(1, 0, 8, size=100 * KIB)) is None
    await bookie.close()
    return await open_bookie(local_reads=local_reads)


async def asked(
    requests: Requests, bookie: Bookie, flags: Flag, *features: str
) -> tuple[Frame | None, FakeTransport]:
    """Ask over a connection that offers features; return the answer, if one came."""
    server = BookieServer(bookie)
    connection = Connection(server)
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    hello = encode_hello({"versions": [1], "features": list(features)})
    connection.data_received(encode_request(Op.HELLO, 0, hello))
    await asyncio.sleep(0)
    transport.written.clear()
    connection.data_received(encode_request(Op.READ, 1, BODY, flags))
    await requests.until(lambda: transport.is_over or bool(transport.written))
    frames = FrameReader()
    frames.accept_large_frames()
    found = frames.feed(bytes(transport.written))
    await server.close()
    return (found[0] if found else None), transport


async def test_places_come_where_they_were_agreed_on(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, local_reads=True)
    answer, _ = await asked(requests, bookie, Flag.PLACES, PLACES)
    assert answer is not None
    assert answer.flags == Flag.PLACES
    lac, found = decode_places(answer.body)
    assert lac == -1
    assert found.path.startswith(b"/")
    for flags in (Flag.NONE, Flag.PLACES | Flag.FENCE):
        answer, _ = await asked(requests, bookie, flags, PLACES)
        assert answer is not None
        assert answer.flags == 0
        assert verify_run(answer.body[LAC_BODY.size :]).entries == 8
    assert bookie.fence(1) is None  # it is fenced, durably


async def test_places_that_were_not_agreed_on_end_the_connection(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, local_reads=True)
    answer, transport = await asked(requests, bookie, Flag.PLACES)
    assert answer is None
    assert transport.is_over


async def test_a_bookie_whose_local_reads_are_off_agrees_to_none(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await stored(open_bookie, requests, local_reads=False)
    answer, transport = await asked(requests, bookie, Flag.PLACES, PLACES)
    assert answer is None
    assert transport.is_over
