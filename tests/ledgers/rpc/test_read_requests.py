"""Lists of entries and operators' requests over TCP: who is asked, and what a lost answer means."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.ranges import decode_ranges
from fencelog.ledgers.rpc.wire import Op, encode_reply
from tests.support.network.scripted_server import ScriptedServer
from tests.support.until import until

RUN = build_run(1, 0, [b"x"], lac=-1, length_before=0)


async def add(client: TcpBookieClient) -> FencelogError | None:
    done: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    client.add(RUN, recovery=False, incarnation=None, on_reply=done.set_result)
    assert not done.done()  # never from within the call
    return await done


async def test_an_older_bookie_is_not_asked_what_it_does_not_know(server: ScriptedServer) -> None:
    """An unknown request would end the connection, and the adds that are on it."""
    client = TcpBookieClient("b1", await server.start())
    adding = asyncio.create_task(add(client))
    for _ in range(2):  # before it is known whom one talks to, and after
        ranges = client.read_ranges(1, [(0, 0)], max_bytes=1)
        for request in (client.list_entries(1), client.admin({"do": "status"}), ranges):
            with pytest.raises(
                FencelogError, match=r"b1 lacks (admin|\w+_(entries|ranges))"
            ) as caught:
                await request
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert await adding is None
    assert [frame.op for frame in server.frames] == [Op.ADD]
    assert server.connections == 1
    await client.close()


async def test_an_operators_request_whose_answer_is_lost_may_have_been_carried_out(
    server: ScriptedServer,
) -> None:
    server.handshake = ServerHandshake("b1", "1")
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start())
    waiting = asyncio.create_task(client.admin({"do": "gc"}))
    await until(lambda: bool(server.frames))
    server.writers[0].transport.abort()
    with pytest.raises(FencelogError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.REQUEST_TIMEOUT
    assert caught.value.code.effects is Effects.MAYBE
    await client.close()


async def test_an_operator_waits_longer_than_others_but_not_for_ever(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.handshake = ServerHandshake("b1", "1")
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start(), timeout_ms=50)
    waiting = asyncio.create_task(client.admin({"do": "gc"}))
    await until(lambda: bool(server.frames))
    await asyncio.sleep(0.15)  # any other request would be overdue by now
    (asked,) = server.frames
    server.writers[0].write(encode_reply(Op.ADMIN, asked.request_id, b'{"begun": true}'))
    assert await waiting == {"begun": True}
    monkeypatch.setattr("fencelog.ledgers.rpc.bookie_client.ADMIN_WAIT_MS", 50)
    with pytest.raises(FencelogError, match="no answer") as caught:
        await client.admin({"do": "gc"})
    assert caught.value.code is ErrorCode.REQUEST_TIMEOUT
    await client.close()


async def test_a_request_that_is_no_object_is_not_sent(server: ScriptedServer) -> None:
    client = TcpBookieClient("b1", await server.start())
    for request in ({"x": float("nan")}, {"x": "y" * 70_000}):
        with pytest.raises(FencelogError, match="no request") as caught:
            await client.admin(request)
        assert caught.value.code is ErrorCode.BAD_REQUEST
    assert server.connections == 0
    await client.close()


async def test_runs_of_several_ranges_come_in_one_answer(server: ScriptedServer) -> None:
    runs = [RUN, build_run(1, 2, [bytes(200_000)], lac=-1, length_before=0)]
    body = b"".join(runs)
    server.handshake = ServerHandshake("b1", "1")
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, body)
    client = TcpBookieClient("b1", await server.start())
    assert await client.read_ranges(1, [(0, 0), (2, 2)], max_bytes=1000) == runs
    assert decode_ranges(server.frames[-1].body) == (1, [(0, 0), (2, 2)], 1000)
    body = body[:-8]
    with pytest.raises(FencelogError) as caught:
        await client.read_ranges(1, [(0, 0), (2, 2)], max_bytes=1000)
    assert caught.value.code is ErrorCode.CORRUPT
    await client.close()
