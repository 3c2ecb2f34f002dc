"""The bookie on TCP, driven by bare sockets: order, batching, limits, and hostile bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError, code_from_wire
from fencelog.ledgers.rpc.wire import (
    FRAME_HEADER,
    LAC_BODY,
    READ_BODY,
    READ_LAC_BODY,
    REPLY_BIT,
    Flag,
    Frame,
    FrameReader,
    Op,
    decode_hello,
    encode_hello,
    encode_request,
)
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk
from tests.support.until import PATIENCE_S

HELLO = encode_request(Op.HELLO, 1, encode_hello({"versions": [1]}))


class Peer:
    """One connection; ``handshake`` first."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._arrived: list[Frame] = []

    @classmethod
    async def connect(cls, server: BookieServer, *, handshake: bool = True) -> Peer:
        host, port = server.address.rsplit(":", 1)
        peer = cls(*await asyncio.open_connection(host, int(port)))
        if handshake:
            peer.send(HELLO)
            (reply,) = await peer.replies(1)
            assert decode_hello(reply.body)["bookie_id"] == server.bookie.bookie_id
            peer._frames.accept_large_frames()
        return peer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def replies(self, count: int) -> list[Frame]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self._arrived) < count:
                data = await self._reader.read(1 << 20)
                if not data:
                    raise EOFError(f"closed after {len(self._arrived)} replies")
                self._arrived += self._frames.feed(data)
        replies, self._arrived = self._arrived[:count], self._arrived[count:]
        return replies

    async def is_closed_by_server(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read() == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


@pytest.fixture
async def server(open_bookie: OpenBookie) -> AsyncIterator[BookieServer]:
    server = await BookieServer.start(await open_bookie(), "127.0.0.1", 0)
    yield server
    await server.close()


@pytest.fixture
async def peer(server: BookieServer) -> AsyncIterator[Peer]:
    peer = await Peer.connect(server)
    yield peer
    await peer.close()


def read_frame(request_id: int, ledger_id: int, first: int, flags: int = 0) -> bytes:
    return encode_request(
        Op.READ, request_id, READ_BODY.pack(ledger_id, first, 4096, 1 << 20), flags
    )


async def test_adds_are_answered_and_read_back(peer: Peer, requests: Requests) -> None:
    runs = [requests.run(1, first, 10) for first in range(0, 100, 10)]
    peer.send(b"".join(encode_request(Op.ADD, i, run) for i, run in enumerate(runs)))
    replies = await peer.replies(10)
    assert [(r.op, r.status, r.request_id) for r in replies] == [
        (Op.ADD | REPLY_BIT, 0, i) for i in range(10)
    ]
    peer.send(
        read_frame(50, 1, 30) + encode_request(Op.READ_LAC, 51, READ_LAC_BODY.pack(1, -1, 0, 0))
    )
    by_id = {reply.request_id: reply for reply in await peer.replies(2)}
    assert by_id[50].body[: LAC_BODY.size] == by_id[51].body == LAC_BODY.pack(-1)
    assert by_id[50].body[LAC_BODY.size :].startswith(runs[3][:16])


async def test_errors_carry_their_code_and_a_text(peer: Peer) -> None:
    peer.send(read_frame(7, 999, 0))
    (reply,) = await peer.replies(1)
    assert code_from_wire(reply.status) is ErrorCode.NO_SUCH_LEDGER
    assert "999" in reply.body.decode()


async def test_requests_of_a_connection_are_handled_in_order(
    peer: Peer, requests: Requests
) -> None:
    """Adds before a fence are taken and those after it are not, all in one segment."""
    adds = [encode_request(Op.ADD, i, requests.run(1, i)) for i in range(6)]
    fence = encode_request(Op.READ_LAC, 100, READ_LAC_BODY.pack(1, -1, 0, 0), Flag.FENCE)
    recovery = encode_request(Op.ADD, 6, requests.run(1, 6), Flag.RECOVERY)
    peer.send(b"".join([*adds[:3], fence, *adds[3:], recovery, read_frame(101, 1, 0)]))
    status = {r.request_id: r.status for r in await peer.replies(9)}
    fenced = ErrorCode.LEDGER_FENCED.wire
    expected = {0: 0, 1: 0, 2: 0, 100: 0, 3: fenced, 4: fenced, 5: fenced, 6: 0, 101: 0}
    assert status == expected


async def test_a_fence_is_seen_although_its_read_waits_its_turn(
    server: BookieServer, peer: Peer, requests: Requests
) -> None:
    """More reads than are carried out at once, the fencing one last, then an add."""
    peer.send(encode_request(Op.ADD, 1, requests.run(1, 0)))
    await peer.replies(1)
    reads = b"".join(read_frame(10 + i, 1, 0) for i in range(200))
    fencing = read_frame(500, 1, 0, Flag.FENCE)
    peer.send(reads + fencing + encode_request(Op.ADD, 501, requests.run(1, 1)))
    replies = {r.request_id: r for r in await peer.replies(202)}
    assert code_from_wire(replies[501].status) is ErrorCode.LEDGER_FENCED
    assert all(replies[10 + i].status == 0 for i in range(200))
    assert replies[500].status == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 64,
        b"\xff" * 64,
        FRAME_HEADER.pack(8, Op.ADD, 0, 0, 1),
        FRAME_HEADER.pack(8 + 40, Op.ADD, 0, 0, 1) + b"r" * 40,
        FRAME_HEADER.pack(8 + 3, Op.READ, 0, 0, 1) + b"abc",
        FRAME_HEADER.pack(8 + 3, 77, 0, 0, 1) + b"abc",
        encode_request(Op.READ_LAC, 1, READ_LAC_BODY.pack(1, -1, 0, 0), 64),
        encode_request(Op.READ_LAC, 1, READ_LAC_BODY.pack(1, -1, 0, 0), Flag.RECOVERY),
        encode_request(Op.READ_LAC, 1, READ_LAC_BODY.pack(1, -1, 0, 7)),
        HELLO,  # a second time
    ],
)
async def test_what_is_no_request_closes_that_connection_only(
    garbage: bytes, server: BookieServer, peer: Peer, requests: Requests
) -> None:
    hostile = await Peer.connect(server)
    hostile.send(garbage)
    assert await hostile.is_closed_by_server()
    await hostile.close()
    peer.send(encode_request(Op.ADD, 5, requests.run(1, 0)))
    (reply,) = await peer.replies(1)
    assert reply.status == 0


@pytest.mark.parametrize(
    "first",
    [
        encode_request(Op.READ_LAC, 1, READ_LAC_BODY.pack(1, -1, 0, 0)),
        encode_request(Op.HELLO, 1, b"no msgpack"),
        FRAME_HEADER.pack(1 << 20, Op.HELLO, 0, 0, 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_nothing_is_taken_before_a_valid_hello(first: bytes, server: BookieServer) -> None:
    stranger = await Peer.connect(server, handshake=False)
    stranger.send(first)
    assert await stranger.is_closed_by_server()
    await stranger.close()


async def test_a_client_of_another_version_is_told_so(server: BookieServer) -> None:
    stranger = await Peer.connect(server, handshake=False)
    stranger.send(encode_request(Op.HELLO, 1, encode_hello({"versions": [2, 3]})))
    (reply,) = await stranger.replies(1)
    assert code_from_wire(reply.status) is ErrorCode.UNSUPPORTED_VERSION
    await stranger.close()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hostile=st.lists(st.binary(max_size=200), max_size=5), cut=st.integers(0, 200))
def test_no_bytes_bring_the_bookie_down(
    hostile: list[bytes],
    cut: int,
    tmp_path_factory: pytest.TempPathFactory,
    requests: Requests,
    serve_and_attack: Any,
) -> None:
    """Valid requests with arbitrary bytes in between, cut off anywhere."""
    good = encode_request(Op.ADD, 1, requests.run(1, 0, 3))
    serve_and_attack([HELLO, good[:cut], *hostile, good])


@pytest.fixture
def serve_and_attack(tmp_path_factory: pytest.TempPathFactory, requests: Requests) -> Any:
    from fencelog.bookie.disk.posix import PosixDisk
    from fencelog.bookie.engine.bookie import Bookie, BookieConfig
    from fencelog.ledgers.host import SystemHost

    config = BookieConfig(tmp_path_factory.mktemp("data"))

    async def attack(parts: list[bytes]) -> None:
        bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
        server = await BookieServer.start(bookie, "127.0.0.1", 0)
        peer, hostile = await Peer.connect(server), await Peer.connect(server, handshake=False)
        for part in parts:
            hostile.send(part)
            await asyncio.sleep(0)
        await hostile.close()
        peer.send(encode_request(Op.ADD, 9, requests.run(1, 0, 3), Flag.RECOVERY))
        (reply,) = await peer.replies(1)
        assert reply.status == 0
        await peer.close()
        await server.close()
        await bookie.close()

    return lambda parts: asyncio.run(attack(parts))


async def test_reading_stops_while_adds_wait_for_the_flush(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    mib = 1 << 20
    bookie = await open_bookie(disk=faulty_disk, write_cache_bytes=8 * mib)
    server = await BookieServer.start(bookie, "127.0.0.1", 0)
    peer = await Peer.connect(server)
    faulty_disk.waits.add("sync .entrylog")
    for i in range(64):
        peer.send(encode_request(Op.ADD, i, requests.run(1, i, size=mib // 2)))
    await requests.until(lambda: bookie.is_under_pressure)
    faulty_disk.waits.clear()
    replies = await peer.replies(64)
    assert [r.status for r in replies] == [0] * 64
    await peer.close()
    await server.close()


async def test_a_stopped_bookie_answers_unknown(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> None:
    bookie = await open_bookie(disk=faulty_disk)
    server = await BookieServer.start(bookie, "127.0.0.1", 0)
    peer = await Peer.connect(server)
    faulty_disk.fails.add("sync .journal")
    peer.send(encode_request(Op.ADD, 1, requests.run(1, 0)) + read_frame(2, 1, 0, Flag.FENCE))
    replies = await peer.replies(2)
    assert {code_from_wire(r.status) for r in replies} == {ErrorCode.STORAGE_FAILED}
    await peer.close()
    await server.close()


async def test_a_connection_beyond_the_limit_is_closed(open_bookie: OpenBookie) -> None:
    server = await BookieServer.start(await open_bookie(), "127.0.0.1", 0, max_connections=1)
    first = await Peer.connect(server)
    second = await Peer.connect(server, handshake=False)
    assert await second.is_closed_by_server()
    await second.close()
    await first.close()
    await server.close()


async def test_a_closed_server_has_no_address_and_drops_its_connections(
    open_bookie: OpenBookie,
) -> None:
    server = await BookieServer.start(await open_bookie(), "127.0.0.1", 0)
    peer = await Peer.connect(server)
    await server.close()
    assert await peer.is_closed_by_server()
    with pytest.raises(FencelogError):
        _ = server.address
    await peer.close()
