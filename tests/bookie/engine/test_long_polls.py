"""Explicit LACs and long polls over TCP: they hold nothing up and end with their connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_LAC_WAIT_MS
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.until import PATIENCE_S

LONG_MS = MAX_LAC_WAIT_MS


@pytest.fixture
async def server(open_bookie: OpenBookie) -> AsyncIterator[BookieServer]:
    server = await BookieServer.start(await open_bookie(), "127.0.0.1", 0)
    yield server
    await server.close()


def patient_client(server: BookieServer) -> TcpBookieClient:
    """Return a client whose time for an answer no pause of this process uses up."""
    timeout_ms = round(PATIENCE_S * 1000)
    return TcpBookieClient(server.bookie.bookie_id, server.address, timeout_ms=timeout_ms)


@pytest.fixture
async def client(server: BookieServer) -> AsyncIterator[TcpBookieClient]:
    client = patient_client(server)
    yield client
    await client.close()


async def write_lac(client: TcpBookieClient, ledger_id: int, lac: int) -> FencelogError | None:
    answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    client.write_lacs(
        [(ledger_id, lac)],
        [0],
        incarnation=None,
        on_replies=lambda _, error: answer.set_result(error),
    )
    async with asyncio.timeout(PATIENCE_S):
        return await answer


def polls(client: TcpBookieClient, ledger_id: int, count: int) -> list[asyncio.Task[int]]:
    loop = asyncio.get_running_loop()
    poll = client.read_lac
    return [loop.create_task(poll(ledger_id, above=5, wait_ms=LONG_MS)) for _ in range(count)]


async def test_an_explicit_lac_is_written_and_refused(
    server: BookieServer, client: TcpBookieClient, requests: Requests
) -> None:
    await requests.add(server.bookie, requests.run(1, 0, 5))
    assert await write_lac(client, 1, 3) is None
    assert await client.read_lac(1) == 3
    for ledger_id, lac, code in ((1, -1, ErrorCode.BAD_REQUEST), (2, 1, ErrorCode.NO_SUCH_LEDGER)):
        error = await write_lac(client, ledger_id, lac)
        assert error is not None
        assert error.code is code


async def test_many_long_polls_hold_no_read_up(
    server: BookieServer, client: TcpBookieClient, requests: Requests
) -> None:
    await requests.add(server.bookie, requests.run(1, 0, 5))
    waiting = polls(client, 1, 200)
    await requests.until(lambda: server.bookie.shards[0].lacs._waits == 200)
    async with asyncio.timeout(PATIENCE_S):
        reply = await client.read(1, 0, max_entries=5, max_bytes=10_000)
        assert reply.run == requests.run(1, 0, 5)
        assert await client.read_lac(1) == -1
    assert not any(task.done() for task in waiting)
    await requests.add(server.bookie, requests.run(1, 5, 5, lac=4))
    await write_lac(client, 1, 9)
    assert await asyncio.gather(*waiting) == [9] * 200


async def test_a_fencing_long_poll_does_not_wait(
    server: BookieServer, client: TcpBookieClient, requests: Requests
) -> None:
    await requests.add(server.bookie, requests.run(1, 0))
    (waiting,) = polls(client, 1, 1)
    await requests.until(lambda: server.bookie.shards[0].lacs._waits == 1)
    assert await client.read_lac(1, fence=True, above=5, wait_ms=LONG_MS) == -1
    assert await waiting == -1


async def test_long_polls_end_with_their_connection(
    server: BookieServer, client: TcpBookieClient, requests: Requests
) -> None:
    waiting = polls(client, 1, 3)
    other = patient_client(server)
    (others,) = polls(other, 1, 1)
    await requests.until(lambda: server.bookie.shards[0].lacs._waits == 4)
    await client.close()
    await asyncio.gather(*waiting, return_exceptions=True)
    await requests.until(lambda: server.bookie.shards[0].lacs._waits == 1)
    await server.close()
    assert server.bookie.shards[0].lacs._waits == 0
    with pytest.raises(FencelogError):
        await others
    await other.close()


async def test_a_wait_over_the_limit_is_refused(client: TcpBookieClient) -> None:
    with pytest.raises(FencelogError) as caught:
        await client.read_lac(1, wait_ms=LONG_MS + 1)
    assert caught.value.code is ErrorCode.BAD_REQUEST
