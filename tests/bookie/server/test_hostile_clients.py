"""Tens of thousands of hostile frames against a real bookie's connections, without a network."""

from __future__ import annotations

import asyncio
import json
import random  # noqa: TID251 - seeded, so that a failure can be repeated
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencelog.bookie.server.connection import Connection
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, ProtocolError, code_from_wire
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.request_context import RequestContext, decode_contexts
from fencelog.ledgers.format.run import RUN_HEADER, build_run, slice_run, verify_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.limits import MAX_ADMIN_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.handshake import ClientHandshake
from fencelog.ledgers.rpc.lacs import encode_lacs
from fencelog.ledgers.rpc.ranges import encode_ranges
from fencelog.ledgers.rpc.wire import (
    FRAME_HEADER,
    LIST_ENTRIES_BODY,
    READ_BODY,
    READ_LAC_BODY,
    WRITE_LAC_BODY,
    Flag,
    Frame,
    FrameReader,
    Op,
    encode_hello,
    encode_object,
    encode_reply,
    encode_request,
    with_contexts,
)
from tests.support.bookie_stage import OpenBookie
from tests.support.frames import FakeTransport, cut, hostile_stream, mutated
from tests.support.until import until

BODY_SIZES = {
    Op.READ: READ_BODY.size,
    Op.READ_LAC: READ_LAC_BODY.size,
    Op.WRITE_LAC: WRITE_LAC_BODY.size,
    Op.LIST_ENTRIES: LIST_ENTRIES_BODY.size,
}
FEATURES = ["add_many", "admin", "contexts", "list_entries", "places", "read_ranges", "write_lacs"]
HELLO = encode_request(Op.HELLO, 0, encode_hello({"versions": [1], "features": FEATURES}))
SECRET = b"correct horse battery staple"


def run_of(ledger_id: int, first: int, count: int = 1) -> bytes:
    return build_run(ledger_id, first, [b"x" * 20] * count, lac=first - 1, length_before=20 * first)


def valid_frames() -> list[bytes]:
    """Every operation a client may ask for, in a few forms."""
    return [
        encode_request(Op.ADD, 1, run_of(1, 0)),
        encode_request(Op.ADD, 2, run_of(1, 1, 5)),
        encode_request(Op.ADD, 3, run_of(2, 7), Flag.RECOVERY),
        encode_request(Op.READ, 4, READ_BODY.pack(1, 0, 10, 1000)),
        encode_request(Op.READ, 5, READ_BODY.pack(1, 3, 2**32 - 1, 2**32 - 1)),
        encode_request(Op.READ, 6, READ_BODY.pack(3, 0, 1, 0), Flag.FENCE),
        encode_request(Op.READ_LAC, 7, READ_LAC_BODY.pack(1, -1, 0, 0)),
        encode_request(Op.READ_LAC, 8, READ_LAC_BODY.pack(4, -1, 0, 0), Flag.FENCE),
        encode_request(Op.READ_LAC, 9, READ_LAC_BODY.pack(1, 2**62, 2**32 - 1, 0)),
        encode_request(Op.WRITE_LAC, 10, WRITE_LAC_BODY.pack(1, 0)),
        encode_request(Op.LIST_ENTRIES, 11, LIST_ENTRIES_BODY.pack(1, 0)),
        encode_request(Op.LIST_ENTRIES, 12, LIST_ENTRIES_BODY.pack(2**64 - 1, 2**64 - 1)),
        encode_request(Op.ADMIN, 13, b'{"do": "status"}'),
        encode_request(Op.ADMIN, 14, b'{"do": ["gc"], "\\u00e4": [1, {}, null]}'),
        encode_request(Op.READ_RANGES, 15, encode_ranges(1, [(0, 0), (2, 5)], max_bytes=2**32 - 1)),
        encode_request(Op.READ_RANGES, 16, encode_ranges(9, [(2**63 - 1, 2**63 - 1)], max_bytes=0)),
        encode_request(Op.WRITE_LACS, 17, encode_lacs([(1, 0)])),
        encode_request(Op.WRITE_LACS, 18, encode_lacs([(2**64 - 1, -1), (1, 2**63 - 1)])),
        encode_request(Op.ADD_MANY, 19, run_of(5, 0) + run_of(1, 6) + run_of(5, 1, 2)),
        encode_request(
            Op.ADD_MANY,
            20,
            with_contexts((RequestContext("r"),), run_of(6, 0)) + with_contexts((), run_of(7, 0)),
            Flag.CONTEXTS,
        ),
        encode_request(Op.READ, 22, READ_BODY.pack(1, 0, 10, 2**32 - 1), Flag.PLACES),
        encode_request(Op.READ, 23, READ_BODY.pack(2, 0, 0, 0), Flag.PLACES | Flag.FENCE),
        encode_request(Op.ADD, 21, with_contexts((RequestContext("r"),), run_of(8, 0)), 8),
    ]


def is_request(frame: Frame) -> bool:
    """A second definition of what a bookie takes after the handshake."""
    if frame.op == Op.ADD and frame.flags != 8:
        with suppress(ProtocolError):
            verify_run(frame.body)
            return frame.flags in (0, 1)
        return False
    if frame.op in (Op.ADD, Op.ADD_MANY):
        return frame.flags in (0, 8) and are_runs(frame.body, frame.op, frame.flags)
    if frame.op == Op.ADMIN:
        with suppress(ValueError):
            return frame.flags == 0 and type(json.loads(frame.body.decode("utf-8"))) is dict
        return False
    if frame.op == Op.WRITE_LACS:
        return frame.flags == 0 and len(frame.body) in range(16, 16 * 512 + 1, 16)
    if frame.op == Op.READ_RANGES:
        return frame.flags == 0 and are_ranges(frame.body)
    if frame.op not in BODY_SIZES or len(frame.body) != BODY_SIZES[Op(frame.op)]:
        return False
    if frame.op == Op.READ_LAC and frame.body[-4:] != bytes(4):
        return False
    if frame.op == Op.READ:
        return frame.flags in (0, 2, 32, 34)
    return frame.flags == 0 or (frame.flags == 2 and frame.op == Op.READ_LAC)


def are_runs(body: bytes, op: int, flags: int) -> bool:
    """Tell whether a body is one or many runs, perhaps with contexts before each."""
    found = 0
    with suppress(ProtocolError, struct.error):
        while body:
            if flags:
                (size,) = struct.unpack_from("<I", body)
                decode_contexts(body[4 : 4 + size])
                if len(body) < 4 + size:
                    return False
                body = body[4 + size :]
            (size,) = (len(body),) if op == Op.ADD else struct.unpack_from("<I", body, 20)
            verify_run(body[:size])
            body = body[size:]
            found += 1
        return 1 <= found <= 512
    return False


def are_ranges(body: bytes) -> bool:
    """Tell whether a body names a ledger, a size, and ranges one behind the other."""
    if len(body) % 12 or not 24 <= len(body) <= 12 * 1025:
        return False
    following = 0
    for at in range(12, len(body), 12):
        first, entries = int.from_bytes(body[at : at + 8], "little"), body[at + 8 : at + 12]
        count = int.from_bytes(entries, "little")
        if first < following or not count or first + count > 2**63:
            return False
        following = first + count
    return True


def is_valid(stream: bytes) -> bool:
    """Tell whether a stream consists of requests, the last one perhaps not complete."""
    while len(stream) >= FRAME_HEADER.size:
        length, op, flags, status, request_id = FRAME_HEADER.unpack_from(stream)
        if not 8 <= length <= MAX_FRAME_BYTES:
            return False
        if len(stream) < 4 + length:
            return True
        body = stream[FRAME_HEADER.size : 4 + length]
        if not is_request(Frame(op, flags, status, request_id, body)):
            return False
        stream = stream[4 + length :]
    return True


class Peer:
    """One connection of the server, fed directly."""

    def __init__(self, server: BookieServer, *, handshake: bool = True) -> None:
        self.connection = Connection(server)
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)
        self.frames = FrameReader(MAX_FRAME_BYTES)
        if handshake:
            self.feed(HELLO)

    def feed(self, data: bytes) -> None:
        if not self.transport.is_over:
            self.connection.data_received(data)

    def replies(self) -> list[Frame]:
        data, self.transport.written = bytes(self.transport.written), bytearray()
        return self.frames.feed(data)

    async def ask(self, request: bytes) -> Frame:
        """Send a request and wait for its answer, whatever else is answered before."""
        self.feed(request)
        request_id = FRAME_HEADER.unpack_from(request)[4]
        answers: list[Frame] = []

        def is_answered() -> bool:
            answers.extend(each for each in self.replies() if each.request_id == request_id)
            return bool(answers)

        await until(is_answered)
        return answers[0]


@pytest.fixture
async def server(open_bookie: OpenBookie) -> AsyncIterator[BookieServer]:
    server = BookieServer(await open_bookie())
    yield server
    await server.close()


async def is_well(server: BookieServer, peer: Peer, ledger_id: int) -> None:
    """An innocent connection goes on: what it adds it reads back."""
    run = run_of(ledger_id, 0, 3)
    reply = await peer.ask(encode_request(Op.ADD, 77, run))
    assert reply.status == 0
    reply = await peer.ask(encode_request(Op.READ, 78, READ_BODY.pack(ledger_id, 0, 3, 10_000)))
    assert reply.body[8:] == run
    assert not peer.transport.is_over


@pytest.mark.parametrize("seed", range(4))
async def test_a_connection_ends_at_the_first_wrong_frame_and_only_then(
    seed: int, server: BookieServer
) -> None:
    chance = random.Random(seed)
    valid = valid_frames()
    innocent = Peer(server)
    ended = 0
    for _ in range(1500):
        stream = hostile_stream(valid, chance)
        hostile = Peer(server)
        for piece in cut(stream, chance):
            hostile.feed(piece)
        assert hostile.transport.is_over == (not is_valid(stream)), stream.hex()
        ended += hostile.transport.is_over
        hostile.transport.abort()
        await asyncio.sleep(0)
    assert 200 < ended < 1300  # both kinds were tried
    await is_well(server, innocent, 1000 + seed)
    assert len(server._connections) == 1


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_but_a_handshake_is_taken_before_its_end(
    seed: int, server: BookieServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutated handshake and requests out of turn; with a secret, so that AUTH counts too."""
    server.authenticator = SharedSecret(SECRET, host=SystemHost())
    reached: list[str] = []
    for name in ("add", "read", "read_lac", "write_lacs", "fence", "list_entries"):
        monkeypatch.setattr(server.bookie, name, lambda *_, **__: reached.append("bookie"))
    for verb in server.bookie.admin:
        monkeypatch.setitem(server.bookie.admin, verb, lambda _: reached.append("operator"))
    chance = random.Random(seed)
    hello = ClientHandshake("b", SharedSecret(SECRET, host=SystemHost())).hello()
    auth = encode_request(Op.AUTH, 1, b"n" * 32)
    others = [HELLO, auth, encode_reply(Op.HELLO, 0, b"x"), *valid_frames()]
    for _ in range(2500):
        hostile = Peer(server, handshake=False)
        frames = [hello, auth, *chance.choices([hello, auth, *others], k=3)]
        broken = chance.randrange(len(frames))
        frames[broken] = mutated(frames[broken], chance)
        for piece in cut(b"".join(frames), chance):
            hostile.feed(piece)
            assert hostile.connection._frames.held_bytes <= 4 + MAX_HELLO_BYTES
        assert not hostile.connection._handshake_done
        await asyncio.sleep(0)
        assert not any(frame.flags & Flag.ACCEPTED for frame in hostile.replies())
        hostile.transport.abort()
    assert reached == []


async def handshake(peer: Peer, client: ClientHandshake) -> None:
    message = client.hello()
    while message:
        message = client.answer(await peer.ask(message))


async def test_a_bookie_that_asks_for_a_secret_serves_those_who_know_it(
    server: BookieServer,
) -> None:
    server.authenticator = secret = SharedSecret(SECRET, host=SystemHost())
    peer = Peer(server, handshake=False)
    await handshake(peer, ClientHandshake(server.bookie.bookie_id, secret))
    await is_well(server, peer, 1)


@pytest.mark.parametrize("offer", ["", "password", 7, None])
async def test_others_are_told_so_and_then_closed(offer: object, server: BookieServer) -> None:
    """The answer leaves before the connection ends, whatever was sent behind the HELLO."""
    server.authenticator = SharedSecret(SECRET, host=SystemHost())
    peer = Peer(server, handshake=False)
    hello = encode_hello({"versions": [1], "auth": offer})
    peer.feed(encode_request(Op.HELLO, 0, hello) + valid_frames()[0] + b"\xff" * 5)
    await asyncio.sleep(0)
    (reply,) = peer.replies()
    assert code_from_wire(reply.status) is ErrorCode.UNAUTHORIZED
    assert "hmac-sha256" in reply.body.decode()
    await asyncio.sleep(0)
    assert peer.transport.is_over


async def test_a_request_between_hello_and_acceptance_ends_the_connection(
    server: BookieServer,
) -> None:
    server.authenticator = secret = SharedSecret(SECRET, host=SystemHost())
    for request in [*valid_frames(), HELLO]:
        peer = Peer(server, handshake=False)
        client = ClientHandshake(server.bookie.bookie_id, secret)
        auth = client.answer(await peer.ask(client.hello()))
        await peer.ask(auth)
        peer.feed(request)
        assert peer.transport.is_over


RESEAL = st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))


def resealed(run: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    """A run that was tampered with, under a checksum that is right again."""
    data = bytearray(run)
    for position, replacement in changes:
        start = position % len(data)
        data[start : start + len(replacement)] = replacement
    struct.pack_into(
        "<I", data, 24, crc32c(bytes(data[RUN_HEADER.size :]), crc32c(bytes(data[:24])))
    )
    return bytes(data)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RESEAL, min_size=1, max_size=4), st.integers(1, 9))
def test_a_run_with_a_right_checksum_is_still_not_believed(
    changes: list[tuple[int, bytes]], count: int
) -> None:
    """A peer that writes the bytes writes the checksum too: a header or index that lies is
    found."""
    run = resealed(run_of(1, 0, count), changes)
    with suppress(ProtocolError):
        header = verify_run(run)
        parts = [
            slice_run(run, n, n) for n in range(header.first_entry_id, header.last_entry_id + 1)
        ]
        assert sum(len(part) for part in parts) >= len(run)


@pytest.mark.parametrize("seed", range(2))
async def test_resealed_runs_do_no_harm(seed: int, server: BookieServer) -> None:
    chance = random.Random(seed)
    innocent = Peer(server)
    for number in range(1500):
        changes = [
            (chance.randrange(10_000), chance.randbytes(chance.randrange(1, 9)))
            for _ in range(chance.randrange(1, 4))
        ]
        run = resealed(run_of(number, 0, chance.randrange(1, 6)), changes)
        frame = encode_request(Op.ADD, 1, run, chance.choice([Flag.NONE, Flag.RECOVERY]))
        hostile = Peer(server)
        hostile.feed(frame)
        assert hostile.transport.is_over == (not is_valid(frame)), run.hex()
        hostile.transport.abort()
        if number % 50 == 0:
            await asyncio.sleep(0)
    await is_well(server, innocent, 2**40)


@pytest.mark.parametrize("request_", [*valid_frames()[-8:]])
async def test_what_was_not_agreed_on_is_not_taken(request_: bytes, server: BookieServer) -> None:
    peer = Peer(server, handshake=False)
    peer.feed(encode_request(Op.HELLO, 0, encode_hello({"versions": [1]})))
    assert not peer.transport.is_over
    peer.feed(request_)
    assert peer.transport.is_over


async def test_an_operator_is_told_what_he_cannot_have(server: BookieServer) -> None:
    peer = Peer(server)
    requests: list[dict[str, Any]] = [{}, {"do": "format"}, {"do": ["status"]}, {"do": "read_only"}]
    for number, fields in enumerate(requests, start=1):
        reply = await peer.ask(encode_request(Op.ADMIN, number, encode_object(fields)))
        assert code_from_wire(reply.status) is ErrorCode.BAD_REQUEST
    server.bookie.admin["talk"] = lambda _: chatter()
    reply = await peer.ask(encode_request(Op.ADMIN, 9, encode_object({"do": "talk"})))
    assert code_from_wire(reply.status) is ErrorCode.INTERNAL  # he may have been understood
    await is_well(server, peer, 1)


async def chatter() -> dict[str, Any]:
    return {"words": "x" * MAX_ADMIN_BYTES}


async def test_answers_come_only_for_requests(server: BookieServer) -> None:
    """Each request that was taken is answered once under its id, and nothing else is said."""
    peer = Peer(server)
    await asyncio.sleep(0)
    assert [frame.op & 0x7F for frame in peer.replies()] == [Op.HELLO]
    asked = [encode_request(Op.READ_LAC, n, READ_LAC_BODY.pack(9, -1, 0, 0)) for n in range(500)]
    peer.feed(b"".join(asked))
    answered: list[int] = []
    for _ in range(2000):
        answered += [frame.request_id for frame in peer.replies()]
        if len(answered) >= 500:
            break
        await asyncio.sleep(0.001)
    assert sorted(answered) == list(range(500))
