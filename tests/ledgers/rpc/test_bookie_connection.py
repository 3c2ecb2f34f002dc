"""A client's connection, mostly without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES, MIB
from fencelog.ledgers.rpc.bookie_connection import BookieConnection, dial
from fencelog.ledgers.rpc.handshake import ClientHandshake
from fencelog.ledgers.rpc.wire import (
    FRAME_HEADER,
    REPLY_BIT,
    Frame,
    Op,
    PlacedFrame,
    encode_hello,
    encode_reply,
    encode_request,
)
from tests.support.frames import FakeTransport
from tests.support.network.scripted_server import ScriptedServer
from tests.support.until import until

HANDSHAKE = encode_reply(
    Op.HELLO, 0, encode_hello({"version": 1, "bookie_id": "b1", "incarnation": "i1"})
)


def connected() -> BookieConnection:
    connection = BookieConnection(
        ClientHandshake("b1", None), lambda frame: None, lambda connection, reason: None
    )
    connection.connection_made(FakeTransport(connection))
    return connection


async def test_the_greeting_says_which_incarnation_is_at_the_other_end() -> None:
    connection = connected()
    connection.data_received(HANDSHAKE)
    await connection.handshake_done
    assert connection.incarnation == "i1"


async def test_a_greeting_that_comes_as_its_time_runs_out_is_no_error() -> None:
    """The time-out has cancelled the wait in the same turn of the loop (the simulator found it)."""
    connection = connected()
    connection.handshake_done.cancel()
    connection.data_received(HANDSHAKE)
    assert connection.handshake_done.cancelled()
    await asyncio.sleep(0)


async def test_a_frame_that_is_too_large_for_a_handshake_is_refused_before_it_is_received() -> None:
    """Whoever is at the address has proved nothing yet."""
    connection = connected()
    connection.data_received(FRAME_HEADER.pack(MAX_HELLO_BYTES + 9, Op.HELLO | REPLY_BIT, 0, 0, 0))
    assert connection.is_over
    with pytest.raises(ProtocolError, match="is not within"):
        await connection.handshake_done
    later = connected()
    later.data_received(HANDSHAKE)
    later.data_received(FRAME_HEADER.pack(MAX_FRAME_BYTES, Op.READ | REPLY_BIT, 0, 0, 1))
    assert not later.is_over


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_large_reply_is_received_in_place(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    frames: list[Frame | PlacedFrame] = []

    async def read() -> None:
        server = ScriptedServer()
        server.answer = lambda frame: encode_reply(Op.READ, frame.request_id, bytes(MIB))
        address = await server.start()
        connection = await dial(
            "b1", address, None, on_frame=frames.append, on_lost=lambda connection, reason: None
        )
        assert connection.transport is not None
        connection.transport.write(encode_request(Op.READ, 7, b"request"))
        await until(lambda: bool(frames))
        connection.abort()
        await server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(read())
    (frame,) = frames
    assert isinstance(frame, PlacedFrame)
    assert (frame.request_id, bytes(frame.body)) == (7, bytes(MIB))
