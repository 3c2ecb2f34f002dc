"""Frames: any cut of the stream gives the same frames; garbage gives ProtocolError alone."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from itertools import cycle

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, ProtocolError, code_from_wire
from fencelog.ledgers.limits import MAX_ADMIN_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES
from fencelog.ledgers.rpc.wire import (
    FRAME_HEADER,
    MAGIC,
    SMALL_PART_BYTES,
    Flag,
    Frame,
    FrameReader,
    Op,
    decode_hello,
    decode_object,
    encode_error,
    encode_hello,
    encode_object,
    encode_reply,
    encode_request,
    is_reply_to,
    reply_header,
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


@given(
    st.lists(st.integers(0, 3 * SMALL_PART_BYTES), min_size=1, max_size=4),
    st.lists(st.integers(1, 2 * SMALL_PART_BYTES), min_size=1, max_size=6),
)
def test_large_frames_do_not_depend_on_it_either(sizes: list[int], cuts: list[int]) -> None:
    """The parts of a frame are kept as they came, or put together if they are small."""
    bodies = [bytes(range(256)) * (size // 256) + bytes(size % 256) for size in sizes]
    stream = b"".join(encode_request(Op.ADD, n, body) for n, body in enumerate(bodies))
    reader = FrameReader(MAX_FRAME_BYTES)
    frames: list[Frame] = []
    for size in cycle(cuts):
        if not stream:
            break
        frames += reader.feed(stream[:size])
        stream = stream[size:]
    assert [(frame.request_id, frame.body) for frame in frames] == list(enumerate(bodies))


def test_a_frame_in_tiny_parts_takes_no_more_memory_than_its_bytes() -> None:
    request = encode_request(Op.ADD, 1, bytes(200_000))
    reader = FrameReader(MAX_FRAME_BYTES)
    tracemalloc.start()
    try:
        for position in range(len(request) - 1):
            assert reader.feed(request[position : position + 1]) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * len(request)
    (frame,) = reader.feed(request[-1:])
    assert frame.body == bytes(200_000)


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
    with pytest.raises(ProtocolError, match=str(MAX_HELLO_BYTES)):  # or is there already
        FrameReader().feed(encode_request(Op.HELLO, 1, bytes(MAX_HELLO_BYTES)))
    reader = FrameReader()
    reader.accept_large_frames()
    assert reader.feed(request_header(Op.ADD, 1, MAX_FRAME_BYTES - 8)) == []
    with pytest.raises(ProtocolError):
        FrameReader(MAX_FRAME_BYTES).feed(request_header(Op.ADD, 1, MAX_FRAME_BYTES))


OK_REPLIES = [
    (Op.ADD, b""),
    (Op.READ, bytes(9)),
    (Op.READ_LAC, bytes(8)),
    (Op.WRITE_LAC, b""),
    (Op.LIST_ENTRIES, bytes(80)),
    (Op.ADMIN, b"{}"),
]


@pytest.mark.parametrize(("op", "body"), OK_REPLIES)
def test_a_reply_has_the_op_and_the_size_of_its_request(op: Op, body: bytes) -> None:
    def reply(data: bytes) -> Frame:
        (frame,) = FrameReader(MAX_FRAME_BYTES).feed(data)
        return frame

    assert is_reply_to(op, reply(encode_reply(op, 1, body)))
    assert is_reply_to(op, reply(encode_error(op, 1, ErrorCode.OVERLOADED, "any length of text")))
    assert not is_reply_to(op, reply(encode_request(op, 1, body)))
    for other, _ in OK_REPLIES:
        assert other is op or not is_reply_to(other, reply(encode_reply(op, 1, body)))
    if body:
        assert not is_reply_to(op, reply(encode_reply(op, 1, body[:-1])))
    if op not in (Op.READ, Op.LIST_ENTRIES, Op.ADMIN):
        assert not is_reply_to(op, reply(encode_reply(op, 1, body + b"x")))


def test_a_hello_over_its_limit_is_refused_unread() -> None:
    with pytest.raises(ProtocolError, match=f"at most {MAX_HELLO_BYTES}"):
        decode_hello(bytes(MAX_HELLO_BYTES + 1))


def test_golden_frames() -> None:
    assert encode_request(Op.READ_LAC, 7, b"\x01", Flag.FENCE).hex() == (
        "09000000" "03" "02" "0000" "07000000" "01"
    )  # fmt: skip
    assert encode_reply(Op.ADD, 258).hex() == "080000008100000002010000"
    assert encode_reply(Op.AUTH, 2, b"\x07", Flag.ACCEPTED).hex() == (
        "09000000" "85" "04" "0000" "02000000" "07"
    )  # fmt: skip
    assert encode_error(Op.ADD, 1, ErrorCode.LEDGER_FENCED, "x").hex() == (
        "09000000" "81" "00" "0c00" "01000000" "78"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "sizes"),
    [(Op.ADD, {0}), (Op.WRITE_LAC, {0}), (Op.READ_LAC, {8}), (Op.READ, {9, 10, 1000})],
)
def test_a_reply_has_the_operation_and_size_of_its_kind(op: Op, sizes: set[int]) -> None:
    for size in (0, 1, 7, 8, 9, 10, 1000):
        (reply,) = FrameReader().feed(encode_reply(op, 1, b"x" * size))
        assert is_reply_to(op, reply) == (size in sizes)
        assert not any(is_reply_to(other, reply) for other in (Op.ADD, Op.READ) if other != op)
    (request,) = FrameReader().feed(encode_request(op, 1, b"x" * min(sizes)))
    assert not is_reply_to(op, request)
    (error,) = FrameReader().feed(encode_error(op, 1, ErrorCode.OVERLOADED, "of any size"))
    assert is_reply_to(op, error)


def test_replies_to_many_adds_alone_may_be_followed_by_others() -> None:
    (reply,) = FrameReader().feed(encode_reply(Op.ADD_MANY, 1, bytes(4), Flag.MORE))
    assert is_reply_to(Op.ADD_MANY, reply)
    assert not is_reply_to(Op.ADD_MANY, reply._replace(status=ErrorCode.OVERLOADED.wire))
    (reply,) = FrameReader().feed(encode_reply(Op.ADD, 1, b"", Flag.MORE))
    assert not is_reply_to(Op.ADD, reply)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=5000))
def test_a_reader_holds_no_more_than_one_frame(length: int, data: bytes) -> None:
    """The bytes that a header announces cost nothing until they are there, and no header is
    believed."""
    reader = FrameReader()
    with suppress(ProtocolError):
        reader.feed(length.to_bytes(4, "little") + data)
        assert reader.held_bytes <= 4 + MAX_HELLO_BYTES


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


def test_objects_of_an_operator_round_trip() -> None:
    fields = {"do": "gc", "threshold": 0.5, "now": True, "nothing": None, "name": "Köln"}
    assert decode_object(encode_object(fields)) == fields


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "JSONDecodeError"),
        (b"{", "JSONDecodeError"),
        (b"[1]", "list"),
        (b'"do"', "str"),
        (b'{"do": NaN}', "ValueError"),
        (b'{"do": -Infinity}', "ValueError"),
        (b'{"do": "\xff"}', "UnicodeDecodeError"),
        ('{"do": 1}'.encode("utf-16"), "UnicodeDecodeError"),
        (b'{"n": ' + b"9" * 5000 + b"}", "ValueError"),
        (b"[" * 60_000, "RecursionError"),
        (b" " * (MAX_ADMIN_BYTES + 1), f"at most {MAX_ADMIN_BYTES}"),
    ],
)
def test_what_is_no_object_is_a_protocol_error(body: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        decode_object(body)


def test_an_object_over_its_limit_is_not_sent() -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_ADMIN_BYTES}"):
        encode_object({"x": "y" * MAX_ADMIN_BYTES})
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_object({"threshold": float("nan")})


def test_a_header_alone_is_that_of_the_whole_reply() -> None:
    assert reply_header(Op.READ, 7, 3) + b"abc" == encode_reply(Op.READ, 7, b"abc")
