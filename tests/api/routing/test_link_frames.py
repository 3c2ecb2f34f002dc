"""The frames of a link: what was encoded is decoded, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.routing.link_frames import (
    AnswerHead,
    LinkOp,
    RequestHead,
    decode_answer_head,
    decode_appended,
    decode_credit,
    decode_http_request,
    encode_answer_head,
    encode_append_error,
    encode_appended,
    encode_credit,
    encode_http_request,
    frame_of,
)
from fencelog.broker.append.conditions import FORGOTTEN, AppendResult, Repeated
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.rpc.wire import REPLY_BIT, Frame, FrameReader

HEADERS = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=3)


@given(st.text(max_size=5), st.binary(max_size=9), st.binary(max_size=9), HEADERS, st.binary())
def test_a_request_comes_back(
    method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    head = RequestHead(method, path, query, headers)
    parts = encode_http_request(head, body)
    (frame,) = FrameReader().feed(b"".join(frame_of(LinkOp.REQUEST, 7, parts)))
    assert (frame.op, frame.request_id) == (LinkOp.REQUEST, 7)
    assert decode_http_request(frame.body) == (head, body)


@given(st.integers(0, 999), HEADERS)
def test_the_head_of_an_answer_comes_back(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    assert decode_answer_head(encode_answer_head(status, headers)) == AnswerHead(status, headers)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_request_or_no_frame(body: bytes) -> None:
    """Any other error than ProtocolError fails the test, and a request that can be read comes back
    from its own form."""
    try:
        asked = decode_http_request(body)
    except ProtocolError:
        pass
    else:
        assert decode_http_request(b"".join(encode_http_request(*asked))) == asked
    try:
        head = decode_answer_head(body)
    except ProtocolError:
        pass
    else:
        assert decode_answer_head(encode_answer_head(head.status, head.headers)) == head


def test_bytes_that_are_no_request() -> None:
    whole = b"".join(encode_http_request(RequestHead("GET", b"/", b"", []), b""))
    for body in (b"", whole[:3], whole[:-1], b"\1\0\0\0\xc0", b"\1\0\0\0\x90"):
        with pytest.raises(ProtocolError):
            decode_http_request(body)


@pytest.mark.parametrize("made", [AppendResult, Repeated])
def test_what_was_appended_comes_back(made: type[AppendResult]) -> None:
    (frame,) = FrameReader().feed(encode_appended(7, made(3, FORGOTTEN, 1, 5)))
    assert (frame.op, frame.request_id) == (LinkOp.APPEND | REPLY_BIT, 7)
    found = decode_appended(frame, "http://b")
    assert isinstance(found, made)
    assert found == made(3, FORGOTTEN, 1, 5, "http://b")
    assert found.duplicate is made.duplicate


def test_the_error_of_an_append_comes_back() -> None:
    error = FencelogError(ErrorCode.SEQUENCE_MISMATCH, "a gap", expected=3, of=["a"])
    (frame,) = FrameReader().feed(encode_append_error(7, error))
    found = decode_appended(frame, "http://b")
    assert isinstance(found, FencelogError)
    assert (found.code, found.detail, found.extra) == (error.code, error.detail, error.extra)


def test_bytes_that_answer_no_append() -> None:
    op = LinkOp.APPEND | REPLY_BIT
    for frame in (Frame(op, 0, 0, 1, b"123"), Frame(op, 0, 9, 1, b"\xc1")):
        with pytest.raises(ProtocolError):
            decode_appended(frame, "http://b")


def test_a_credit_is_four_bytes() -> None:
    (frame,) = FrameReader().feed(encode_credit(3, 1000))
    assert (frame.request_id, decode_credit(frame)) == (3, 1000)
    with pytest.raises(ProtocolError):
        decode_credit(Frame(LinkOp.CREDIT, 0, 0, 3, b"12345"))
