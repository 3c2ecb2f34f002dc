"""The frames of a link between two brokers.

Their layout, and the handshake before them, are those of the bookie protocol
(``ledgers/rpc/wire.py``); operations and bodies are these:

    REQUEST  request: u32 size of the head, head, body of an HTTP request
             reply:   flagged HEAD: status and headers, once, first
                      then the body in parts, the last one flagged END;
                      flagged END with an error's status: the answer broke off
    CREDIT   u32: so many more bytes of the answer to that request may be sent
    CANCEL   nobody waits for that request's answer any more; it still ends with END
    PING     request and reply: -
    LEAVE    reply alone, of no request: the broker is ending, send nothing more on this link

Heads are msgpack arrays: (method, path, query, headers), (status, headers). The asking end may send
LINK_WINDOW_BYTES of an answer's body, and no more than it gets CREDIT for.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import TypeVar

import msgspec

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.limits import MAX_FRAME_BYTES
from fencelog.ledgers.rpc.wire import Frame, encode_request, request_header

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


class LinkOp(IntEnum):
    REQUEST = 16
    CREDIT = 17
    CANCEL = 18
    PING = 19
    LEAVE = 20


class LinkFlag(IntFlag):
    """The flags of a reply to REQUEST."""

    NONE = 0
    HEAD = 1
    END = 2


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

T = TypeVar("T")


def encode_http_request(head: RequestHead, body: bytes) -> tuple[bytes, bytes]:
    """Return the body of a REQUEST, in two parts."""
    packed = _encode(head)
    return _SIZE.pack(len(packed)) + packed, body


def decode_http_request(body: bytes) -> tuple[RequestHead, bytes]:
    """Return head and body of a REQUEST. Raises ProtocolError."""
    if len(body) < _SIZE.size:
        raise ProtocolError(f"a request of {len(body)} bytes")
    (size,) = _SIZE.unpack_from(body)
    end = _SIZE.size + size
    if end > len(body):
        raise ProtocolError(f"a request's head of {size} bytes in {len(body)}")
    return _decoded(_request_head, body[_SIZE.size : end]), body[end:]


def encode_answer_head(status: int, headers: Headers) -> bytes:
    return _encode(AnswerHead(status, headers))


def decode_answer_head(body: bytes) -> AnswerHead:
    """Return status and headers of an answer. Raises ProtocolError."""
    return _decoded(_answer_head, body)


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
