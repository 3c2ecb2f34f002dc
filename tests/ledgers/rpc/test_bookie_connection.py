"""A client's connection, without a network."""

from __future__ import annotations

import asyncio

from fencelog.ledgers.rpc.bookie_connection import BookieConnection
from fencelog.ledgers.rpc.handshake import ClientHandshake
from fencelog.ledgers.rpc.wire import Op, encode_hello, encode_reply
from tests.support.frames import FakeTransport

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
