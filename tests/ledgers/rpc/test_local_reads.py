"""Reads that may be answered with places: what the client asks for, and what it does with them."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.server.handshake import ServerHandshake
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Buffer, build_run
from fencelog.ledgers.limits import MAX_PLACED_BYTES, MAX_READ_BYTES
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import ReadReply
from fencelog.ledgers.rpc.handshake import FEATURES, PLACES
from fencelog.ledgers.rpc.local_reads import LocalReadsClient
from fencelog.ledgers.rpc.places import PlacedRuns, encode_places
from fencelog.ledgers.rpc.wire import (
    LAC_BODY,
    READ_BODY,
    Flag,
    Frame,
    encode_error,
    encode_reply,
)
from tests.support.network.scripted_server import ScriptedServer

RUN = build_run(1, 0, [b"x"] * 3, lac=-1, length_before=0)
WANTED = PlacedRuns(b"/file", bytes(64), [(96, len(RUN))])


class Files:
    """The files of a machine, of which a test says what they hold."""

    def __init__(self, data: Buffer | None) -> None:
        self.data = data
        self.is_here = True
        self.wanted: list[PlacedRuns] = []

    def may_have(self, bookie_id: str) -> bool:
        assert bookie_id == "b1"
        return self.is_here

    async def read(self, bookie_id: str, wanted: PlacedRuns) -> Buffer | None:
        self.wanted.append(wanted)
        return self.data

    def give_up(self, bookie_id: str) -> None:
        self.is_here = False


def answer(frame: Frame) -> bytes:
    if frame.flags & Flag.PLACES:
        return encode_reply(frame.op, frame.request_id, encode_places(5, WANTED), Flag.PLACES)
    return encode_reply(frame.op, frame.request_id, LAC_BODY.pack(6) + RUN)


async def client_of(server: ScriptedServer, files: Files) -> LocalReadsClient:
    server.handshake = ServerHandshake("b1", "1")
    server.answer = answer
    return LocalReadsClient("b1", await server.start(), files)


async def read(client: TcpBookieClient, first: int = 0, *, fence: bool = False) -> ReadReply:
    return await client.read(1, first, max_entries=9, max_bytes=1000, fence=fence)


BY_SOCKET = ReadReply(6, RUN)


async def test_the_bytes_come_from_the_file_from_the_first_read_on(server: ScriptedServer) -> None:
    files = Files(RUN)
    client = await client_of(server, files)
    for first in (0, 2):
        assert await read(client, first) == ReadReply(5, RUN, ((0, len(RUN)),))
    assert [frame.flags for frame in server.frames] == [Flag.PLACES, Flag.PLACES]
    assert files.wanted == [WANTED, WANTED]
    await client.close()


async def test_a_bookie_names_more_than_is_read_at_a_time(server: ScriptedServer) -> None:
    runs = [build_run(1, first, [b"x"] * 3, lac=-1, length_before=0) for first in (0, 3, 6)]
    places = [(100_000 * n, len(RUN)) for n in range(1, 4)]
    files = Files(runs[0])
    client = await client_of(server, files)
    body = encode_places(5, WANTED._replace(places=places))
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, body, Flag.PLACES)
    for number, run in enumerate(runs):
        files.data = run
        reply = await client.read(1, 3 * number, max_entries=9, max_bytes=MAX_READ_BYTES)
        assert reply == ReadReply(5, run, ((0, len(run)),))
    (asked,) = server.frames
    assert READ_BODY.unpack(asked.body) == (1, 0, 9, MAX_PLACED_BYTES)
    # Another entry than the next one, and a file that is gone, make it ask again.
    files.data = runs[0]
    for first in (1, 2):
        await client.read(1, first, max_entries=9, max_bytes=MAX_READ_BYTES)
    files.data = None
    server.answer = answer
    assert await client.read(1, 3, max_entries=9, max_bytes=MAX_READ_BYTES) == BY_SOCKET
    firsts = [(frame.flags, READ_BODY.unpack(frame.body)[1]) for frame in server.frames[1:]]
    assert firsts == [(Flag.PLACES, 1), (Flag.PLACES, 2), (Flag.PLACES, 3), (0, 3)]
    assert READ_BODY.unpack(server.frames[-1].body)[3] == MAX_READ_BYTES
    await client.close()


async def test_an_older_bookie_is_asked_for_the_bytes(server: ScriptedServer) -> None:
    client = await client_of(server, Files(RUN))
    server.handshake = ServerHandshake("b1", "1", features=FEATURES - {PLACES})
    assert await read(client) == BY_SOCKET
    assert [frame.flags for frame in server.frames] == [0]
    await client.close()


async def test_a_fence_is_answered_with_bytes(server: ScriptedServer) -> None:
    client = await client_of(server, Files(RUN))
    assert await read(client, fence=True) == BY_SOCKET
    assert [frame.flags for frame in server.frames] == [Flag.FENCE]
    await client.close()


async def test_a_bookie_may_answer_with_bytes_or_an_error(server: ScriptedServer) -> None:
    files = Files(RUN)
    client = await client_of(server, files)
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, LAC_BODY.pack(6) + RUN)
    assert await read(client) == BY_SOCKET
    server.answer = lambda frame: encode_error(
        frame.op, frame.request_id, ErrorCode.NO_SUCH_ENTRY, "none"
    )
    with pytest.raises(FencelogError) as caught:
        await read(client)
    assert caught.value.code is ErrorCode.NO_SUCH_ENTRY
    assert (len(server.frames), files.wanted) == (2, [])
    await client.close()


async def test_what_a_file_does_not_give_is_asked_for(server: ScriptedServer) -> None:
    files = Files(None)
    client = await client_of(server, files)
    assert await read(client) == BY_SOCKET
    assert [frame.flags for frame in server.frames] == [Flag.PLACES, 0]
    # Another run is there: the bookie is asked for no more places.
    files.data = build_run(2, 0, [b"x"] * 3, lac=-1, length_before=0)
    assert await read(client) == BY_SOCKET
    assert not files.is_here
    assert await read(client) == BY_SOCKET
    assert [frame.flags for frame in server.frames[2:]] == [Flag.PLACES, 0, 0]
    await client.close()


async def test_a_file_that_does_not_answer_is_given_up(server: ScriptedServer) -> None:
    class Stuck(Files):
        async def read(self, bookie_id: str, wanted: PlacedRuns) -> Buffer | None:
            await asyncio.Event().wait()
            return None

    files = Stuck(None)
    server.handshake = ServerHandshake("b1", "1")
    server.answer = answer
    client = LocalReadsClient("b1", await server.start(), files, timeout_ms=300)
    assert await read(client) == BY_SOCKET
    assert not files.is_here
    await client.close()


async def test_a_damaged_reply_is_damage(server: ScriptedServer) -> None:
    client = await client_of(server, Files(RUN))
    body = encode_places(5, WANTED)[:-1]
    server.answer = lambda frame: encode_reply(frame.op, frame.request_id, body, Flag.PLACES)
    with pytest.raises(FencelogError, match="bookie b1, ledger 1") as caught:
        await read(client)
    assert caught.value.code is ErrorCode.CORRUPT
    await client.close()


async def test_places_that_were_not_asked_for_are_damage(server: ScriptedServer) -> None:
    server.handshake = ServerHandshake("b1", "1")
    server.answer = lambda frame: encode_reply(
        frame.op, frame.request_id, encode_places(5, WANTED), Flag.PLACES
    )
    client = TcpBookieClient("b1", await server.start())
    with pytest.raises(FencelogError, match="asked for none") as caught:
        await read(client)
    assert caught.value.code is ErrorCode.CORRUPT
    await client.close()


async def test_a_bookie_that_cannot_be_reached_fails_the_read(server: ScriptedServer) -> None:
    client = await client_of(server, Files(RUN))
    await server.close()
    for _ in range(2):  # it is dialled, and refused for a while
        with pytest.raises(FencelogError) as caught:
            await read(client)
        assert caught.value.code is ErrorCode.BOOKIE_UNAVAILABLE
    await client.close()
    assert server.frames == []
