"""The fences of the TCP client: gathered into few requests, each answered by itself."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_FENCES_AT_ONCE
from fencelog.ledgers.rpc import bookie_client
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import FenceAnswer
from fencelog.ledgers.rpc.fences import decode_fences, encode_answers
from fencelog.ledgers.rpc.wire import LAC_BODY, Flag, Frame, Op, encode_error, encode_reply
from tests.support.network.scripted_server import ScriptedServer


def knows_fences(server: ScriptedServer) -> None:
    server.handshake = ServerHandshake("b1", "1")


def told(frame: Frame) -> bytes:
    """Answer each ledger with its own id as the LAC, and what was asked for as missing."""
    answers = [FenceAnswer(ledger_id, b"", above) for ledger_id, above in decode_fences(frame.body)]
    return encode_reply(frame.op, frame.request_id, encode_answers(answers))


async def test_the_ledgers_of_one_turn_are_fenced_by_one_request(server: ScriptedServer) -> None:
    knows_fences(server)
    server.answer = told
    client = TcpBookieClient("b1", await server.start())
    answers = await asyncio.gather(*(client.fence_and_read(n, n + 1) for n in range(3)))
    assert answers == [FenceAnswer(n, b"", n + 1) for n in range(3)]
    assert [frame.op for frame in server.frames] == [Op.FENCE]
    assert await client.fence_and_read(9, 7) == FenceAnswer(9, b"", 7)
    await client.close()


async def test_a_request_has_a_limit_of_ledgers(server: ScriptedServer) -> None:
    knows_fences(server)
    server.answer = told
    client = TcpBookieClient("b1", await server.start())
    count = 2 * MAX_FENCES_AT_ONCE + 1
    answers = await asyncio.gather(*(client.fence_and_read(n, n) for n in range(count)))
    assert [answer.lac for answer in answers] == list(range(count))
    sizes = [len(decode_fences(frame.body)) for frame in server.frames]
    assert sizes == [MAX_FENCES_AT_ONCE, MAX_FENCES_AT_ONCE, 1]
    await client.close()


async def test_with_many_fences_in_flight_others_wait_for_each_other(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    knows_fences(server)
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start(), timeout_ms=60_000)
    monkeypatch.setattr(bookie_client, "_GATHER_S", 3.0)
    fences = [client.fence_and_read(n, -1) for n in range(4)]
    await server.received(1)
    for n in range(4, 7):
        fences.append(client.fence_and_read(n, -1))
        await asyncio.sleep(0)
    assert len(server.frames) == 1
    await server.received(2)
    assert len(decode_fences(server.frames[1].body)) == 3
    await client.close()
    outcomes = await asyncio.gather(*fences, return_exceptions=True)
    codes = {each.code for each in outcomes if isinstance(each, FencelogError)}
    assert codes == {ErrorCode.REQUEST_TIMEOUT}


async def test_one_ledgers_error_is_its_own(server: ScriptedServer) -> None:
    knows_fences(server)
    limbo = FencelogError(ErrorCode.LEDGER_IN_LIMBO, "may be lost")
    body = encode_answers([FenceAnswer(3), limbo])
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, body)
    client = TcpBookieClient("b1", await server.start())
    good, bad = await asyncio.gather(
        client.fence_and_read(1, -1), client.fence_and_read(2, -1), return_exceptions=True
    )
    assert good == FenceAnswer(3)
    assert isinstance(bad, FencelogError)
    assert bad.code is ErrorCode.LEDGER_IN_LIMBO
    await client.close()


async def test_an_answer_about_other_ledgers_is_corrupt(server: ScriptedServer) -> None:
    knows_fences(server)
    body = encode_answers([FenceAnswer(3)] * 3)
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, body)
    client = TcpBookieClient("b1", await server.start())
    fences = [client.fence_and_read(n, -1) for n in range(2)]
    for fence in fences:
        with pytest.raises(FencelogError) as caught:
            await fence
        assert caught.value.code is ErrorCode.CORRUPT
    await client.close()


async def test_a_bookie_that_does_not_know_the_request_is_asked_for_its_lac(
    server: ScriptedServer,
) -> None:
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, LAC_BODY.pack(5))
    client = TcpBookieClient("b1", await server.start())
    fences = [client.fence_and_read(n, 3) for n in range(2)]
    given_up = client.fence_and_read(7, 3)
    given_up.cancel()
    assert await asyncio.gather(*fences) == [FenceAnswer(5)] * 2
    assert [(frame.op, frame.flags) for frame in server.frames] == [(Op.READ_LAC, Flag.FENCE)] * 2
    server.answer = lambda frame: encode_error(
        frame.op, frame.request_id, ErrorCode.STORAGE_FAILED, "broken"
    )
    with pytest.raises(FencelogError) as caught:
        await client.fence_and_read(1, 3)
    assert caught.value.code is ErrorCode.STORAGE_FAILED
    await client.close()


async def test_a_fence_that_was_given_up_concerns_no_other(server: ScriptedServer) -> None:
    knows_fences(server)
    server.answer = told
    client = TcpBookieClient("b1", await server.start())
    given_up, other = client.fence_and_read(1, -1), client.fence_and_read(2, -1)
    given_up.cancel()
    assert await other == FenceAnswer(2, b"", None)
    await client.close()


async def test_fences_that_wait_at_the_close_are_refused(server: ScriptedServer) -> None:
    knows_fences(server)
    client = TcpBookieClient("b1", await server.start())
    waiting = client.fence_and_read(1, -1)
    await client.close()
    with pytest.raises(FencelogError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.BOOKIE_UNAVAILABLE
    late = client.fence_and_read(2, -1)
    with pytest.raises(FencelogError):
        await late
