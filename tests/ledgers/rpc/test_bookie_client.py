"""The TCP client against a server that does what a test tells it to."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.rpc import bookie_connection, bookie_link
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.wire import (
    LAC_BODY,
    Frame,
    Op,
    encode_error,
    encode_reply,
    encode_request,
)
from tests.support.network.scripted_server import ScriptedServer
from tests.support.until import until

RUN = build_run(1, 0, [b"x"], lac=-1, length_before=0)

TIMEOUT_MS = 2_000
"""A time-out in which a loaded machine answers, and which a test can wait for."""


async def add(client: TcpBookieClient) -> FencelogError | None:
    done: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    client.add(RUN, recovery=False, incarnation=None, on_reply=done.set_result)
    assert not done.done()  # never from within the call
    return await done


async def test_requests_are_pipelined_in_order(server: ScriptedServer) -> None:
    client = TcpBookieClient("b1", await server.start())
    results = await asyncio.gather(*(add(client) for _ in range(50)))
    assert results == [None] * 50
    numbers = [frame.request_id for frame in server.frames]
    assert numbers == sorted(numbers)
    assert server.connections == 1
    await client.close()


async def test_errors_come_back_with_their_code(server: ScriptedServer) -> None:
    server.answer = lambda frame: encode_error(
        frame.op, frame.request_id, ErrorCode.LEDGER_FENCED, "fenced"
    )
    client = TcpBookieClient("b1", await server.start())
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.LEDGER_FENCED
    with pytest.raises(FencelogError) as caught:
        await client.read_lac(1)
    assert caught.value.code is ErrorCode.LEDGER_FENCED
    await client.close()


async def test_reads_return_lac_and_run(server: ScriptedServer) -> None:
    server.answer = lambda frame: encode_reply(
        frame.op,
        frame.request_id,
        LAC_BODY.pack(41) + (RUN if frame.op == Op.READ else b""),
    )
    client = TcpBookieClient("b1", await server.start())
    assert await client.read_lac(1, fence=True) == 41
    assert server.frames[-1].flags == 2
    reply = await client.read(1, 0, max_entries=1, max_bytes=100)
    assert (reply.lac, reply.run) == (41, RUN)
    await client.close()


async def test_nobody_there_is_definite(server: ScriptedServer) -> None:
    address = await server.start()
    await server.close()
    server.server = None
    client = TcpBookieClient("b1", address)
    for _ in range(3):
        error = await add(client)
        assert error is not None
        assert error.code is ErrorCode.BOOKIE_UNAVAILABLE
    await client.close()


async def test_a_machine_that_never_greets_is_named_with_its_reason(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookie_connection, "CONNECT_TIMEOUT_MS", 50)
    monkeypatch.setattr(server, "serve", silence)
    client = TcpBookieClient("b1", await server.start())
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.BOOKIE_UNAVAILABLE
    assert error.detail.endswith(": no answer within 50 ms")
    await client.close()


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_connection_lost_after_sending_is_unknown(server: ScriptedServer) -> None:
    client = TcpBookieClient("b1", await server.start())

    def drop(frame: Frame) -> bytes:
        server.writers[-1].transport.abort()
        return b""

    server.answer = drop
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMEOUT
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id)
    assert await add(client) is None  # it connects again
    assert server.connections == 2
    await client.close()


async def test_what_waits_for_a_connection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie whose machine is gone: for as long as connecting takes nothing leaves."""
    monkeypatch.setattr(bookie_link, "RECONNECT_DELAY_S", 0.0)
    client = TcpBookieClient("b1", "127.0.0.1:1")
    large = bytes(8 * MIB)

    async def refused() -> list[ErrorCode]:
        errors: list[FencelogError | None] = []
        for _ in range(12):
            client.add(large, recovery=False, incarnation=None, on_reply=errors.append)
        await until(lambda: len(errors) == 12)
        return [error.code for error in errors if error is not None]

    for _ in range(2):  # what was refused waits no more
        codes = await refused()
        assert codes.count(ErrorCode.OVERLOADED) == 3  # above 64 MiB
        assert codes.count(ErrorCode.BOOKIE_UNAVAILABLE) == 9
    await client.close()


async def test_silence_costs_one_timeout_for_all(server: ScriptedServer) -> None:
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start(), timeout_ms=200)
    loop = asyncio.get_running_loop()
    start = loop.time()
    errors = await asyncio.gather(*(add(client) for _ in range(100)))
    assert {error.code for error in errors if error} == {ErrorCode.REQUEST_TIMEOUT}
    assert 0.15 < loop.time() - start < 100 * 0.2 / 2
    await client.close()


async def test_a_long_poll_may_take_its_wait_and_no_answer_else_may(
    server: ScriptedServer,
) -> None:
    """The poll is the older request; neither its deadline nor the adds' is taken for the other."""
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start(), timeout_ms=TIMEOUT_MS)
    poll = asyncio.create_task(client.read_lac(1, above=5, wait_ms=60_000))
    await until(lambda: bool(server.frames))
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id)
    for _ in range(3):
        await asyncio.sleep(TIMEOUT_MS / 2000)  # over the timeout in all, while the poll waits
        assert await add(client) is None
    assert not poll.done()
    answer = encode_reply(Op.READ_LAC, server.frames[0].request_id, LAC_BODY.pack(6))
    server.writers[0].write(answer)
    assert await poll == 6
    server.answer = lambda frame: b""
    poll = asyncio.create_task(client.read_lac(1, above=6, wait_ms=60_000))
    await asyncio.sleep(0)
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMEOUT  # not after the poll's minute
    with pytest.raises(FencelogError):
        await poll
    assert server.connections == 1
    await client.close()


async def test_a_long_poll_that_is_overdue_itself_ends_the_connection(
    server: ScriptedServer,
) -> None:
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start(), timeout_ms=100)
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(FencelogError) as caught:
        await client.read_lac(1, above=5, wait_ms=300)
    assert caught.value.code is ErrorCode.REQUEST_TIMEOUT
    assert loop.time() - start >= 0.4
    await client.close()


async def test_another_bookie_at_the_address_is_not_accepted(server: ScriptedServer) -> None:
    server.bookie_id = "somebody else"
    client = TcpBookieClient("b1", await server.start())
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.BOOKIE_UNAVAILABLE
    assert "somebody else" in error.detail
    assert server.frames == []
    await client.close()


async def test_garbage_from_a_bookie_closes_the_connection(server: ScriptedServer) -> None:
    server.answer = lambda frame: b"\xff" * 64
    client = TcpBookieClient("b1", await server.start())
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMEOUT  # it was sent: unknown
    await client.close()


async def test_close_answers_what_is_outstanding(server: ScriptedServer) -> None:
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start())
    waiting = asyncio.create_task(add(client))
    await until(lambda: bool(server.frames))
    await client.close()
    error = await waiting
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMEOUT
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.BOOKIE_UNAVAILABLE


async def test_a_request_from_a_bookie_never_takes_the_place_of_an_answer(
    server: ScriptedServer,
) -> None:
    server.answer = lambda frame: encode_request(Op.READ_LAC, frame.request_id, b"")
    client = TcpBookieClient("b1", await server.start())
    async with asyncio.timeout(4):
        error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMEOUT
    await client.close()


@pytest.mark.parametrize("address", ["nowhere", "nowhere:", "127.0.0.1:99999", "a" * 70 + ".b:1"])
async def test_an_address_that_is_none_is_a_bookie_that_is_not_there(address: str) -> None:
    client = TcpBookieClient("b1", address)
    async with asyncio.timeout(4):
        error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.BOOKIE_UNAVAILABLE
    await client.close()


async def test_a_secret_opens_the_connection_and_its_lack_is_named(server: ScriptedServer) -> None:
    address = await server.start()
    secret = SharedSecret(b"correct horse battery staple", host=SystemHost())
    wrong = SharedSecret(b"incorrect horse battery staple", host=SystemHost())
    for credentials in (None, wrong):
        server.handshake = ServerHandshake("b1", "1", secret)
        client = TcpBookieClient("b1", address, credentials=credentials)
        for _ in range(2):  # also while it is not dialled again
            error = await add(client)
            assert error is not None
            assert error.code is ErrorCode.UNAUTHORIZED
        await client.close()
    assert server.frames == []
    server.handshake = ServerHandshake("b1", "1", secret)
    client = TcpBookieClient("b1", address, credentials=secret)
    assert await add(client) is None
    await client.close()


async def test_what_a_bookie_requires_and_a_client_lacks_is_named(server: ScriptedServer) -> None:
    server.handshake = ServerHandshake("b1", "1", required={"checksums"})
    client = TcpBookieClient("b1", await server.start())
    error = await add(client)
    assert error is not None
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "requires checksums" in error.detail
    await client.close()


async def add_to(client: TcpBookieClient, incarnation: str) -> FencelogError | None:
    done: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    client.add(RUN, recovery=False, incarnation=incarnation, on_reply=done.set_result)
    return await done


async def test_an_add_is_for_one_incarnation(server: ScriptedServer) -> None:
    """The check holds before the connection is there and after; a new process at the address is met
    as itself."""
    client = TcpBookieClient("b1", await server.start())
    for incarnation in ("2", "1", "2"):
        error = await add_to(client, incarnation)
        assert (error and error.code) == (
            None if incarnation == "1" else ErrorCode.WRONG_INCARNATION
        )
    assert len(server.frames) == 1
    server.incarnation = "2"
    server.writers[-1].transport.abort()  # the previous process is gone, and its connection with it
    error = await add_to(client, "1")
    while error is not None and error.code is not ErrorCode.WRONG_INCARNATION:
        error = await add_to(client, "1")  # what was sent before the loss was seen is unknown
    assert error is not None
    assert error.detail.startswith("bookie b1 is incarnation 2")
    assert await add_to(client, "2") is None
    await client.close()


async def test_many_reads_leave_together_and_an_add_takes_them_along(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of ledgers are read from every bookie while a writer appends."""
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start())
    # Only what an add takes along leaves.
    gathering = bookie_link._OF_READS._replace(in_flight=4, wait_s=3600.0)
    monkeypatch.setattr(bookie_link, "_OF_READS", gathering)
    loop = asyncio.get_running_loop()
    reads = [loop.create_task(client.read_lac(1)) for _ in range(3)]
    await server.received(3)
    reads += [loop.create_task(client.read_lac(1)) for _ in range(5)]
    await asyncio.sleep(0.05)
    assert len(server.frames) == 3
    adding = loop.create_task(add(client))
    await server.received(9)
    assert [frame.op for frame in server.frames] == [Op.READ_LAC] * 8 + [Op.ADD]
    await client.close()
    await asyncio.wait([*reads, adding])
    assert all(isinstance(read.exception(), FencelogError) for read in reads)


async def test_requests_of_recoveries_leave_together(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A takeover of thousands of partitions fences every bookie, reads there and writes again."""
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start())
    gathering = bookie_link._OF_RECOVERIES._replace(in_flight=2, wait_s=3600.0)
    monkeypatch.setattr(bookie_link, "_OF_RECOVERIES", gathering)
    loop = asyncio.get_running_loop()
    fences = [loop.create_task(client.read_lac(1, fence=True))]
    await server.received(1)
    fences += [loop.create_task(client.read_lac(1, fence=True)) for _ in range(3)]
    await asyncio.sleep(0)
    rewritten: asyncio.Future[FencelogError | None] = loop.create_future()
    client.add(b"run", recovery=True, incarnation=None, on_reply=rewritten.set_result)
    await asyncio.sleep(0.05)
    assert len(server.frames) == 1
    adding = loop.create_task(add(client))
    await server.received(6)
    assert [frame.op for frame in server.frames] == [Op.READ_LAC] * 4 + [Op.ADD] * 2
    await client.close()
    await asyncio.wait([*fences, adding])
    assert isinstance(await rewritten, FencelogError)


async def test_a_read_that_waits_for_others_leaves_soon(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, LAC_BODY.pack(5))
    client = TcpBookieClient("b1", await server.start())
    gathering = bookie_link._OF_READS._replace(in_flight=1)
    monkeypatch.setattr(bookie_link, "_OF_READS", gathering)
    assert await asyncio.gather(*(client.read_lac(1) for _ in range(9))) == [5] * 9
    assert await client.read_lac(1) == 5
    await client.close()


async def test_what_was_gathered_when_the_connection_was_lost_is_not_sent_on_the_next(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked has been told that it is over, and may have asked again."""
    server.answer = lambda frame: b""
    client = TcpBookieClient("b1", await server.start())
    gathering = bookie_link._OF_READS._replace(in_flight=2, wait_s=3600.0)
    monkeypatch.setattr(bookie_link, "_OF_READS", gathering)
    loop = asyncio.get_running_loop()
    reads = [loop.create_task(client.read_lac(1))]
    await server.received(1)
    reads.append(loop.create_task(client.read_lac(2)))
    await asyncio.sleep(0)
    server.writers[-1].transport.abort()
    await asyncio.wait(reads)
    assert all(isinstance(read.exception(), FencelogError) for read in reads)
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id)
    assert await add(client) is None
    assert [frame.op for frame in server.frames] == [Op.READ_LAC, Op.ADD]
    await client.close()
