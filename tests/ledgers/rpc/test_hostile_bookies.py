"""Tens of thousands of hostile replies to the TCP client, without a network."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, so that a failure can be repeated
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.limits import MAX_ADMIN_BYTES
from fencelog.ledgers.rpc import bookie_connection
from fencelog.ledgers.rpc.authentication import Credentials, SharedSecret
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_connection import BookieConnection
from fencelog.ledgers.rpc.wire import (
    LAC_BODY,
    Flag,
    Frame,
    FrameReader,
    Op,
    encode_error,
    encode_hello,
    encode_reply,
    encode_request,
)
from tests.support.frames import FakeTransport, cut, mutated

RUN = build_run(1, 0, [b"x"], lac=-1, length_before=0)
AGREED = {
    "version": 1,
    "bookie_id": "b1",
    "incarnation": "1",
    "features": ["admin", "list_entries"],
}
HELLO = encode_reply(Op.HELLO, 0, encode_hello(AGREED))
LAC = LAC_BODY.pack(7)
LIST = EntryList(Availability.of([(0, 4), (6, 6)]), 9).encode()
ANSWERS = {
    Op.ADD: b"",
    Op.WRITE_LAC: b"",
    Op.READ: LAC + RUN,
    Op.READ_LAC: LAC,
    Op.LIST_ENTRIES: LIST,
    Op.ADMIN: b'{"read_only": true}',
}


class FakeNetwork:
    """Connections of the running loop end here; each is kept, the newest last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.transports: list[FakeTransport] = []
        # A machine may pause for as long as a handshake has, and none of these is late.
        monkeypatch.setattr(bookie_connection, "CONNECT_TIMEOUT_MS", 60_000)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", self._connect)

    async def _connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[FakeTransport, asyncio.Protocol]:
        protocol = factory()
        transport = FakeTransport(protocol)
        self.transports.append(transport)
        protocol.connection_made(transport)
        return transport, protocol

    def feed(self, data: bytes) -> None:
        """Feed bytes of the bookie, on the newest connection."""
        transport = self.transports[-1]
        if not transport.is_over:
            assert isinstance(transport._protocol, BookieConnection)
            transport._protocol.data_received(data)

    def taken(self) -> list[Frame]:
        """Return what the client has sent on the newest connection since the last time."""
        transport = self.transports[-1]
        data, transport.written = bytes(transport.written), bytearray()
        reader = FrameReader()
        reader.accept_large_frames()
        return reader.feed(data)


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    return FakeNetwork(monkeypatch)


async def turn() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


@dataclass
class Outcomes:
    """The outcomes of requests, by their kind; each ends exactly once."""

    client: TcpBookieClient
    adds: list[FencelogError | None] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    asked: int = 0

    def ask(self, op: Op) -> None:
        self.asked += 1
        if op is Op.ADD:
            self.client.add(RUN, recovery=False, incarnation="1", on_reply=self.adds.append)
        elif op is Op.WRITE_LAC:
            self.client.write_lacs(
                [(1, 0)], [0], incarnation="1", on_replies=lambda _, error: self.adds.append(error)
            )
        elif op is Op.READ:
            read = self.client.read(1, 0, max_entries=1, max_bytes=1)
            self.tasks.append(asyncio.create_task(read))
        elif op is Op.LIST_ENTRIES:
            self.tasks.append(asyncio.create_task(self.client.list_entries(1)))
        elif op is Op.ADMIN:
            self.tasks.append(asyncio.create_task(self.client.admin({"do": "status"})))
        else:
            wait_ms = 1000 * (self.asked % 2)
            read_lac = self.client.read_lac(1, wait_ms=wait_ms)
            self.tasks.append(asyncio.create_task(read_lac))

    def ended(self) -> list[FencelogError | None]:
        found = list(self.adds)
        for task in self.tasks:
            if task.done():
                error = task.exception()
                assert error is None or isinstance(error, FencelogError)
                found.append(error)
        return found


def verdict(data: bytes, outstanding: dict[int, int]) -> str:
    """A second definition of what a client makes of a frame."""
    try:
        frames = FrameReader(1 << 20).feed(data)
    except FencelogError:
        return "broken"
    if not frames:
        return "cut short"
    return "answer" if len(frames) == 1 and is_answer(frames[0], outstanding) else "broken"


def is_answer(frame: Frame, outstanding: dict[int, int]) -> bool:
    op = outstanding.get(frame.request_id)
    if op is None or frame.op != op + 0x80 or frame.flags & Flag.MORE:
        return False
    size = len(frame.body)
    if frame.flags & Flag.PLACES:
        return op == Op.READ and frame.status == 0 and 93 <= size <= 1616 + 4096
    if frame.status:
        return True
    sizes = {Op.ADD: size == 0, Op.WRITE_LAC: size == 0, Op.READ_LAC: size == 8}
    sizes |= {Op.LIST_ENTRIES: size >= 80, Op.ADMIN: size >= 2}
    return sizes.get(Op(op), size > 8)


@pytest.mark.parametrize("seed", range(4))
async def test_only_answers_end_requests_and_anything_else_the_connection(
    seed: int, network: FakeNetwork
) -> None:
    """Either all valid replies are taken, or at the first wrong one every request that is still
    outstanding is of unknown outcome."""
    chance = random.Random(seed)
    broken_connections = 0
    for _ in range(400):
        client = TcpBookieClient("b1", "bookie:1")
        outcomes = Outcomes(client)
        for op in chance.choices(list(ANSWERS), k=chance.randrange(1, 9)):
            outcomes.ask(op)
        await turn()
        network.feed(HELLO)
        await turn()
        sent = [frame for frame in network.taken() if frame.op != Op.HELLO]
        assert len(sent) == outcomes.asked
        outstanding = {frame.request_id: frame.op for frame in sent}
        chance.shuffle(sent)
        answered, is_broken = 0, False
        for frame in sent:
            reply = encode_reply(frame.op, frame.request_id, ANSWERS[Op(frame.op)])
            if chance.random() < 0.2:
                reply = encode_error(frame.op, frame.request_id, ErrorCode.NO_SUCH_ENTRY, "no")
            if chance.random() < 0.15:
                broken = mutated(reply, chance)
                length = int.from_bytes(broken[:4], "little")
                if not 8 <= length < len(broken) - 4:  # else the rest would begin the next one
                    reply = broken
            found = verdict(reply, outstanding)
            is_broken = found != "answer"
            for piece in cut(reply, chance):
                network.feed(piece)
            if found == "cut short":
                assert not network.transports[-1].is_over
                network.transports[-1].abort()  # the bookie goes away
            if is_broken:
                break
            del outstanding[FrameReader().feed(reply)[0].request_id]
            answered += 1
        await turn()
        assert network.transports[-1].is_over == is_broken, reply.hex()
        ended = outcomes.ended()
        unknown = [e for e in ended if e is not None and e.code is ErrorCode.REQUEST_TIMEOUT]
        assert len(ended) == (outcomes.asked if is_broken else answered)
        assert len(unknown) == (outcomes.asked - answered if is_broken else 0)
        broken_connections += is_broken
        await client.close()
        await asyncio.gather(*outcomes.tasks, return_exceptions=True)
    assert 50 < broken_connections < 350


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("credentials", [None, SharedSecret(b"s" * 16, host=SystemHost())])
async def test_no_greeting_brings_a_client_to_send_a_request(
    seed: int, credentials: Credentials | None, network: FakeNetwork
) -> None:
    chance = random.Random(seed)
    others = [
        HELLO,
        encode_reply(Op.AUTH, 1, b"n" * 32),
        encode_reply(Op.AUTH, 1, b"", 4),
        encode_request(Op.HELLO, 0, encode_hello({"versions": [1]})),
        encode_error(Op.HELLO, 0, ErrorCode.UNAUTHORIZED, "no"),
        encode_reply(Op.ADD, 1),
        encode_reply(Op.READ_LAC, 1, LAC),
    ]
    for _ in range(500):
        client = TcpBookieClient("b1", "bookie:1", credentials=credentials)
        outcomes = Outcomes(client)
        outcomes.ask(Op.ADD)
        await turn()
        first = mutated(HELLO, chance)
        while first == HELLO or accepts(first):
            first = mutated(HELLO, chance)
        for piece in cut(first + b"".join(chance.choices(others, k=3)), chance):
            network.feed(piece)
        await turn()
        network.feed(b"\xff" * 5000)  # a frame that was cut short is one by now
        await turn()
        assert network.transports[-1].is_over
        assert all(frame.op in (Op.HELLO, Op.AUTH) for frame in network.taken())
        (error,) = outcomes.ended()
        assert error is not None
        assert error.code in (
            ErrorCode.BOOKIE_UNAVAILABLE,  # never sent, so it is certain that nothing happened
            ErrorCode.UNAUTHORIZED,
            ErrorCode.UNSUPPORTED_VERSION,
        )
        await client.close()


def accepts(hello: bytes) -> bool:
    """Tell whether a mutated handshake still says what counts (a flag that means nothing, say)."""
    try:
        frames = FrameReader().feed(hello)
    except FencelogError:
        return False
    return bool(frames) and (frames[0].op, frames[0].status, frames[0].request_id) == (0x80, 0, 0)


async def test_what_comes_right_behind_a_greeting_ends_the_connection(
    network: FakeNetwork,
) -> None:
    """No request could leave before that, so there is nothing that might be answered."""
    client = TcpBookieClient("b1", "bookie:1")
    outcomes = Outcomes(client)
    outcomes.ask(Op.ADD)
    await turn()
    network.feed(HELLO + encode_reply(Op.READ_LAC, 77, LAC))
    await turn()
    assert network.transports[-1].is_over
    (error,) = outcomes.ended()
    assert error is not None
    assert error.code is ErrorCode.BOOKIE_UNAVAILABLE
    await client.close()


async def test_an_answer_before_its_request_was_sent_acknowledges_nothing(
    network: FakeNetwork,
) -> None:
    """Request ids can be guessed; the add is not on the wire yet."""
    client = TcpBookieClient("b1", "bookie:1")
    outcomes = Outcomes(client)
    outcomes.ask(Op.ADD)
    await turn()
    network.feed(HELLO + encode_reply(Op.ADD, 1))
    await turn()
    (error,) = outcomes.ended()
    assert error is not None
    assert error.code is ErrorCode.BOOKIE_UNAVAILABLE
    await client.close()


async def test_the_end_of_an_old_connection_does_not_touch_the_new_one(
    network: FakeNetwork,
) -> None:
    client = TcpBookieClient("b1", "bookie:1")
    outcomes = Outcomes(client)
    outcomes.ask(Op.ADD)
    await turn()
    network.feed(HELLO)
    await turn()
    old = network.transports[-1]
    network.feed(b"\xff" * 12)
    await turn()
    outcomes.ask(Op.ADD)
    await turn()
    network.feed(HELLO)
    await turn()
    assert network.transports[-1] is not old
    old._protocol.connection_lost(ConnectionResetError("late"))
    (add,) = [frame for frame in network.taken() if frame.op == Op.ADD]
    network.feed(encode_reply(Op.ADD, add.request_id))
    first, second = outcomes.ended()
    assert first is not None
    assert first.code is ErrorCode.REQUEST_TIMEOUT
    assert second is None
    await client.close()


async def answered(network: FakeNetwork, client: TcpBookieClient, op: Op, body: bytes) -> Any:
    """Return what the client makes of one answer, right in its frame, to one question."""
    request = client.admin({"do": "gc"}) if op is Op.ADMIN else client.list_entries(1, 5)
    task = asyncio.create_task(request)
    await turn()
    asked = network.taken()
    if asked[0].op == Op.HELLO:
        network.feed(HELLO)
        await turn()
        asked = network.taken()
    (sent,) = asked
    assert sent.op == op
    network.feed(encode_reply(op, sent.request_id, body))
    return await task


async def outcome(request: Awaitable[Any]) -> Any:
    try:
        return await request
    except FencelogError as error:
        return error


@pytest.mark.parametrize("seed", range(2))
async def test_a_list_of_entries_is_not_believed(seed: int, network: FakeNetwork) -> None:
    """Any bytes are a list that makes sense, or corrupt; the connection goes on."""
    chance = random.Random(seed)
    client = TcpBookieClient("b1", "bookie:1")
    lists = [EntryList(Availability.of([(5, 9), (11, 15)]), n, in_limbo=True) for n in (None, 16)]
    refused = 0
    for _ in range(600):
        body = bytearray(chance.choice(lists).encode())
        for _ in range(chance.randrange(3)):
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        found = await outcome(answered(network, client, Op.LIST_ENTRIES, bytes(body)))
        if isinstance(found, FencelogError):
            refused += 1
            assert found.code is ErrorCode.CORRUPT
            assert "b1, ledger 1" in found.detail
        else:
            assert found.encode() == bytes(body)
            assert found.availability.span[0] >= 5
            assert found.next_entry is None or found.next_entry > found.availability.span[1]
    assert 200 < refused < 500
    assert len(network.transports) == 1
    await client.close()


@pytest.mark.parametrize("body", [b"[]", b"{]", b"\xff{}", b"nothing", b"[" * 10_000])
async def test_an_answer_to_an_operator_that_is_no_object_is_unknown(
    body: bytes, network: FakeNetwork
) -> None:
    client = TcpBookieClient("b1", "bookie:1")
    with pytest.raises(FencelogError, match="b1") as caught:
        await answered(network, client, Op.ADMIN, body)
    assert caught.value.code.effects is Effects.MAYBE
    assert await answered(network, client, Op.ADMIN, b'{"a": 1}') == {"a": 1}
    await client.close()


async def test_an_endless_answer_to_an_operator_ends_the_connection(network: FakeNetwork) -> None:
    client = TcpBookieClient("b1", "bookie:1")
    with pytest.raises(FencelogError) as caught:
        await answered(network, client, Op.ADMIN, b" " * (MAX_ADMIN_BYTES + 1))
    assert caught.value.code is ErrorCode.REQUEST_TIMEOUT
    assert network.transports[-1].is_over
    await client.close()
