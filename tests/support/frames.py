"""Hostile bytes for either end of the wire: valid frames, broken in many ways."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, so that a failure can be repeated
from collections.abc import Sequence

from fencelog.ledgers.rpc.wire import FRAME_HEADER


class FakeTransport(asyncio.Transport):
    """A transport that keeps what is written; the end of the connection is reported later, as by a
    real one."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self.written = bytearray()
        self.is_over = False
        self.is_reading_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        if not self.is_over:
            self.is_over = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self.is_over

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """Return a frame with something wrong, most of the time: a field of its header, its length,
    bits or bytes of its body."""
    length, op, flags, status, request_id = FRAME_HEADER.unpack_from(frame)
    body = frame[FRAME_HEADER.size :]
    kind = chance.randrange(9)
    if kind == 0:
        op = chance.randrange(256)
    elif kind == 1:
        op ^= 0x80  # a reply for a request and the other way round
    elif kind == 2:
        flags, status = chance.randrange(256), chance.randrange(65536)
    elif kind == 3:
        request_id = chance.randrange(1 << 32)
    elif kind == 4:
        body = body[: chance.randrange(len(body) + 1)]
        length = 8 + len(body)
    elif kind == 5:
        body += chance.randbytes(chance.randrange(1, 40))
        length = 8 + len(body)
    elif kind == 6:
        length = chance.choice([0, 1, 7, 8, length - 1, length + 1, 1 << 24, (1 << 32) - 1])
    elif kind == 7 and body:
        position = chance.randrange(len(body))
        flipped = body[position] ^ (1 << chance.randrange(8))
        body = body[:position] + bytes([flipped]) + body[position + 1 :]
    return FRAME_HEADER.pack(length, op, flags, status, request_id) + body


def cut(stream: bytes, chance: random.Random) -> list[bytes]:
    """Return a stream in segments: whole, in a few pieces, or byte by byte."""
    pieces: list[bytes] = []
    most = chance.choice([1, 7, 100, len(stream)]) if len(stream) < 2000 else len(stream)
    while stream:
        size = chance.randrange(1, max(2, most + 1))
        pieces.append(stream[:size])
        stream = stream[size:]
    return pieces


def hostile_stream(valid: Sequence[bytes], chance: random.Random) -> bytes:
    """Return some valid frames in any order, some mutated, perhaps cut off, perhaps with
    garbage."""
    frames = [chance.choice(valid) for _ in range(chance.randrange(1, 12))]
    for position in range(len(frames)):
        if chance.random() < 0.15:
            frames[position] = mutated(frames[position], chance)
    stream = b"".join(frames)
    if chance.random() < 0.1:
        stream = stream[: chance.randrange(len(stream) + 1)]
    if chance.random() < 0.1:
        stream += chance.randbytes(chance.randrange(60))
    return stream
