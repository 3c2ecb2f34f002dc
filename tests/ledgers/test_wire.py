"""Frames: any cut of the stream gives the same frames; garbage gives ProtocolError alone."""

from __future__ import annotations

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, ProtocolError, code_from_wire
from fencelog.ledgers.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES
from fencelog.ledgers.wire import (
    FRAME_HEADER,
    MAGIC,
    Flag,
    Frame,
    FrameReader,
    Op,
    decode_hello,
    encode_error,
    encode_hello,
    encode_reply,
    encode_request,
    request_header,
)

REQUESTS = st.lists(
    st.tuples(st.sampled_from(list(Op)), st.integers(0, 2**32 - 1), st.binary(max_size=100)),
    max_size=8,
)


@given(REQUESTS, st.data())
def test_frames_do_not_depend_on_how_the_stream_is_cut(
    requests: list[tuple[Op, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_request(op, number, body) for op, number, body in requests)
    reader = FrameReader()
    frames: list[Frame] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        frames += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert [(frame.op, frame.request_id, frame.body) for frame in frames] == requests
    assert not any(frame.is_reply for frame in frames)


@given(st.binary(max_size=400))
def test_garbage_is_frames_or_a_protocol_error(garbage: bytes) -> None:
    frames: list[Frame] = []
    with suppress(ProtocolError):
        frames = FrameReader().feed(garbage)
    assert sum(len(frame.body) + FRAME_HEADER.size for frame in frames) <= len(garbage)


def test_length_is_bounded_before_the_body_is_read() -> None:
    reader = FrameReader()
    with pytest.raises(ProtocolError, match=str(MAX_HELLO_BYTES)):
        reader.feed(request_header(Op.HELLO, 1, MAX_HELLO_BYTES))
    reader = FrameReader()
    reader.accept_large_frames()
    assert reader.feed(request_header(Op.ADD, 1, MAX_FRAME_BYTES - 8)) == []
    with pytest.raises(ProtocolError):
        FrameReader(MAX_FRAME_BYTES).feed(request_header(Op.ADD, 1, MAX_FRAME_BYTES))


def test_golden_frames() -> None:
    assert encode_request(Op.READ_LAC, 7, b"\x01", Flag.FENCE).hex() == (
        "09000000" "03" "02" "0000" "07000000" "01"
    )  # fmt: skip
    assert encode_reply(Op.ADD, 258).hex() == "080000008100000002010000"
    assert encode_error(Op.ADD, 1, ErrorCode.LEDGER_FENCED, "x").hex() == (
        "09000000" "81" "00" "0c00" "01000000" "78"
    )  # fmt: skip


def test_hello_round_trip() -> None:
    fields = decode_hello(encode_hello({"versions": [1], "name": "writer"}))
    assert fields == {"magic": MAGIC, "versions": [1], "name": "writer"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91" * 2000,
        msgpack.packb([1, 2]),
        msgpack.packb({"magic": "something else"}),
        msgpack.packb({"magic": MAGIC, "x": "y" * 2000}),
        msgpack.packb({1: MAGIC}),
        msgpack.packb({"magic": msgpack.ExtType(1, b"x")}),
    ],
)
def test_hostile_hello_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_hello(body)


def test_wire_codes_are_unique_and_unknown_ones_are_internal() -> None:
    codes = [code.wire for code in ErrorCode]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes
    assert all(code_from_wire(code.wire) is code for code in ErrorCode)
    assert code_from_wire(65535) is ErrorCode.INTERNAL
    assert [code.name for code in ErrorCode] == sorted(code.name for code in ErrorCode)
