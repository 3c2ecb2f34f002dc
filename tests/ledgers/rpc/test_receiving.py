"""Large replies that are received in place, and whatever comes before and after them."""

from __future__ import annotations

import random  # noqa: TID251 - seeded, so that a failure can be repeated

import pytest

from fencelog.ledgers.errors import ErrorCode, ProtocolError
from fencelog.ledgers.limits import MAX_FRAME_BYTES
from fencelog.ledgers.rpc.receiving import SMALL_BYTES, ReceiveBuffer
from fencelog.ledgers.rpc.wire import (
    FRAME_HEADER,
    Frame,
    FrameReader,
    Op,
    PlacedFrame,
    encode_error,
    encode_reply,
)

Received = Frame | PlacedFrame


def receive(buffer: ReceiveBuffer, data: bytes, chance: random.Random) -> list[Received]:
    """Put data where the buffer wants them, any number of bytes at a time."""
    frames: list[Received] = []
    most = chance.choice([1000, SMALL_BYTES, 1 << 20])
    while data:
        space = buffer.space()
        size = min(len(space), len(data), chance.randrange(1, most))
        space[:size] = data[:size]
        data = data[size:]
        frames += buffer.received(size)
    return frames


def connected() -> ReceiveBuffer:
    frames = FrameReader()
    frames.accept_large_frames()
    return ReceiveBuffer(frames)


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_all_sizes_arrive_as_they_were_sent(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([1, 100, SMALL_BYTES, 3 * SMALL_BYTES, 1 << 20]) for _ in range(12)]
    bodies = [chance.randbytes(size) for size in sizes]
    kinds = [chance.choice([Op.READ, Op.LIST_ENTRIES]) for _ in bodies]
    stream = b"".join(
        encode_reply(op, number, body)
        for number, (op, body) in enumerate(zip(kinds, bodies, strict=True))
    )
    frames = receive(connected(), stream, chance)
    assert [bytes(frame.body) for frame in frames] == bodies
    assert [frame.request_id for frame in frames] == list(range(len(bodies)))
    assert [frame.op & 0x7F for frame in frames] == kinds
    assert not any(frame.status for frame in frames)


def test_only_replies_to_reads_are_received_in_place() -> None:
    chance, buffer = random.Random(1), connected()
    body = bytes(1 << 20)
    frames = receive(buffer, encode_reply(Op.READ, 1, body), chance)
    assert [type(frame) for frame in frames] == [PlacedFrame]
    frames = receive(buffer, encode_reply(Op.LIST_ENTRIES, 2, body), chance)
    assert [type(frame) for frame in frames] == [Frame]
    error = encode_error(Op.READ, 3, ErrorCode.CORRUPT, "x")
    frames = receive(buffer, error, chance)
    assert [type(frame) for frame in frames] == [Frame]


def test_a_reply_keeps_its_memory_when_the_next_one_arrives() -> None:
    chance, buffer = random.Random(1), connected()
    first, second = bytes([1]) * (1 << 18), bytes([2]) * (1 << 18)
    (kept,) = receive(buffer, encode_reply(Op.READ, 1, first), chance)
    receive(buffer, encode_reply(Op.READ, 2, second), chance)
    assert bytes(kept.body) == first


def test_a_reply_that_is_larger_than_a_frame_may_be_is_refused_before_it_gets_memory() -> None:
    header = FRAME_HEADER.pack(MAX_FRAME_BYTES + 1, Op.READ | 0x80, 0, 0, 1)
    with pytest.raises(ProtocolError, match="not within"):
        receive(connected(), header, random.Random(1))
    before = ReceiveBuffer(FrameReader())  # the handshake is not over
    with pytest.raises(ProtocolError, match="not within"):
        receive(before, FRAME_HEADER.pack(1 << 20, Op.READ | 0x80, 0, 0, 1), random.Random(1))
