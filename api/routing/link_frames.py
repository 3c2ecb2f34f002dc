"""The frames of a link between two brokers.

Their layout, and the handshake before them, are those of the bookie protocol
(``ledgers/rpc/wire.py``), but that the answer to HELLO names the ``cluster`` as well; operations
and bodies are these:

    REQUEST  request: u32 size of the head, head, body of an HTTP request
             reply:   flagged HEAD: status and headers, once, first
                      then the body in parts, the last one flagged END;
                      flagged END with an error's status: the answer broke off
    APPEND   request: u32 size of the head, head, body of a message
             reply:   flagged REPEATED if an earlier one had appended it:
                      u32 partition, i64 offset, u32 count, i64 publish time
                      with an error's status: msgpack array (detail, members of its problem)
    CREDIT   u32: so many more bytes of the answer to that request may be sent
    CANCEL   the caller of that request has gone; its answer still ends with END
    PING     request and reply: -
    LEAVE    reply alone, of no request: the broker is ending, send nothing more on this link

Heads are msgpack arrays: (method, path, query, headers), (status, headers), and that of an append
in ``produce/post.py``. Of an answer's body the serving end may send LINK_WINDOW_BYTES, and then no
more than it gets CREDIT for.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import Any, TypeVar

import msgspec

from fencelog.broker.append.conditions import AppendResult, Repeated
from fencelog.ledgers.errors import FencelogError, ProtocolError, code_from_wire
from fencelog.ledgers.limits import MAX_FRAME_BYTES
from fencelog.ledgers.rpc.wire import (
    FRAME_HEADER,
    REPLY_BIT,
    Frame,
    encode_reply,
    encode_request,
    request_header,
)

UPGRADE = b"fencelog-link/1"
"""The protocol's name and version in the ``Upgrade`` header."""

PATH = b"/v1/link"
"""The path of the request that becomes a link."""

KIND = "broker"
"""The word for the other end in the errors of a handshake."""

FORWARDED = b"fencelog-forwarded"
"""The mark of a forwarded request, which every request on a link is. A broker that gets one and is
not the owner answers 421."""

MAX_BODY_BYTES = MAX_FRAME_BYTES - 8
"""The body of one frame."""

_SIZE = struct.Struct("<I")
_APPENDED = struct.Struct("<IqIq")


class LinkOp(IntEnum):
    REQUEST = 16
    CREDIT = 17
    CANCEL = 18
    PING = 19
    LEAVE = 20
    APPEND = 21


class LinkFlag(IntFlag):
    """The flags of a reply."""

    NONE = 0
    HEAD = 1
    END = 2
    REPEATED = 4


Headers = list[tuple[bytes, bytes]]


class RequestHead(msgspec.Struct, array_like=True):
    """The head of a request, before its body. ``path`` is as it was sent, percent-encoded."""

    method: str
    path: bytes
    query: bytes
    headers: Headers


class AnswerHead(msgspec.Struct, array_like=True):
    """The head of an answer, before its body."""

    status: int
    headers: Headers


_encode = msgspec.msgpack.Encoder().encode
_request_head = msgspec.msgpack.Decoder(RequestHead)
_answer_head = msgspec.msgpack.Decoder(AnswerHead)
_error = msgspec.msgpack.Decoder(tuple[str, dict[str, Any]])

T = TypeVar("T")


def encode_http_request(head: RequestHead, body: bytes) -> tuple[bytes, bytes]:
    """Return the body of a REQUEST, in two parts."""
    return encode_with_head(head, body)


def decode_http_request(body: bytes) -> tuple[RequestHead, bytes]:
    """Return head and body of a REQUEST. Raises ProtocolError."""
    return decode_with_head(_request_head, body)


def encode_with_head(head: Any, body: bytes) -> tuple[bytes, bytes]:
    """Return the body of a frame that begins with a head, in two parts."""
    packed = _encode(head)
    return _SIZE.pack(len(packed)) + packed, body


def decode_with_head(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> tuple[T, bytes]:
    """Return the head of a frame, and the rest. Raises ProtocolError."""
    if len(body) < _SIZE.size:
        raise ProtocolError(f"a request of {len(body)} bytes")
    (size,) = _SIZE.unpack_from(body)
    end = _SIZE.size + size
    if end > len(body):
        raise ProtocolError(f"a request's head of {size} bytes in {len(body)}")
    return _decoded(decoder, body[_SIZE.size : end]), body[end:]


def encode_answer_head(status: int, headers: Headers) -> bytes:
    return _encode(AnswerHead(status, headers))


def decode_answer_head(body: bytes) -> AnswerHead:
    """Return status and headers of an answer. Raises ProtocolError."""
    return _decoded(_answer_head, body)


def encode_appended(request_id: int, appended: AppendResult) -> bytes:
    """Return the reply to an APPEND that was done."""
    body = _APPENDED.pack(
        appended.partition, appended.offset, appended.count, appended.publish_time_us
    )
    flags = LinkFlag.REPEATED if appended.duplicate else LinkFlag.NONE
    return encode_reply(LinkOp.APPEND, request_id, body, flags)


def encode_append_error(request_id: int, error: FencelogError) -> bytes:
    """Return the reply to an APPEND that failed."""
    body = msgspec.msgpack.encode((error.detail, error.extra), enc_hook=str)
    op = LinkOp.APPEND | REPLY_BIT
    return FRAME_HEADER.pack(8 + len(body), op, 0, error.code.wire, request_id) + body


def decode_appended(frame: Frame, url: str) -> AppendResult | FencelogError:
    """Return what the broker at ``url`` replies to an APPEND. Raises ProtocolError."""
    if frame.status:
        detail, extra = _decoded(_error, frame.body)
        error = FencelogError(code_from_wire(frame.status), detail)
        error.extra.update(extra)
        return error
    if len(frame.body) != _APPENDED.size:
        raise ProtocolError(f"the reply to an append has {len(frame.body)} bytes")
    partition, offset, count, publish_time_us = _APPENDED.unpack(frame.body)
    made = Repeated if frame.flags & LinkFlag.REPEATED else AppendResult
    return made(partition, offset, count, publish_time_us, url)


def encode_credit(request_id: int, size: int) -> bytes:
    return encode_request(LinkOp.CREDIT, request_id, _SIZE.pack(size))


def decode_credit(frame: Frame) -> int:
    """Return the size of a credit. Raises ProtocolError."""
    if len(frame.body) != _SIZE.size:
        raise ProtocolError(f"a credit of {len(frame.body)} bytes")
    return int(_SIZE.unpack(frame.body)[0])


def frame_of(op: LinkOp, request_id: int, parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the buffers of a request's frame."""
    return request_header(op, request_id, sum(len(part) for part in parts)), *parts


def _decoded(decoder: msgspec.msgpack.Decoder[T], packed: bytes) -> T:
    try:
        return decoder.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a head cannot be read: {error}") from error
