"""Wire codec v1 between ledger clients and bookies.

A frame, little-endian:

    0  u32 length of what follows           (<= MAX_FRAME_BYTES)
    4  u8  operation; replies set bit 7
    5  u8  flags
    6  u16 status: 0 or an error's wire code (0 in requests)
    8  u32 request id, chosen by the client, echoed in the reply
   12  body

The first frame each way is HELLO (msgpack, explicit limits): version and features are agreed on,
and a client of a bookie that asks for it proves itself, before anything else is read:

    client                                        bookie
    HELLO {magic "fencelog", versions [1],
           features [names that it can do],
           required [those that it requires],
           auth its method or ""}        ------>
                                         <------  HELLO {magic, version, bookie_id, incarnation,
                                                         features [those that both can do],
                                                         auth the bookie's method or ""}
    AUTH bytes of the method             ------>  only if the bookie has a method; some times
                                         <------  AUTH bytes; the last one is flagged ACCEPTED
    any other request                    ------>

Each end ignores names that it does not know, unless the other end requires them: that is
UNSUPPORTED_VERSION, which names them. A client without the bookie's method, or without the proof,
is UNAUTHORIZED. The bookie closes the connection after such an answer, and at once upon any other
request before the handshake is over. Frames of a handshake hold at most MAX_HELLO_BYTES, and the
handshake has to end within CONNECT_TIMEOUT_MS. Bodies of the other frames:

    ADD        request: a run                          reply: -
               flagged CONTEXTS: u32 size of the contexts, contexts
               (ledgers/format/request_context.py), then a run
    READ       request: u64 ledger, u64 first entry, u32 max entries, u32 max bytes
               reply:   i64 LAC, then a run that begins with the first entry
               flagged PLACES: places of runs in a file (rpc/places.py), to a request that is, too
    READ_LAC   request: u64 ledger, i64 above, u32 wait in ms, u32 0
               reply:   i64 LAC
    WRITE_LAC  request: u64 ledger, i64 LAC            reply: -
    WRITE_LACS request: LACs of ledgers                reply: those refused (rpc/lacs.py)
    ADD_MANY   request: runs                           replies: answers to them (rpc/adds.py)
    LIST_ENTRIES
               request: u64 ledger, u64 from entry     reply: a list (format/entry_list.py)
    ADMIN      request: JSON object in UTF-8           reply: JSON object in UTF-8
    FENCE      request: ledgers                        reply: an answer for each (rpc/fences.py)
    READ_RANGES
               request: ranges of a ledger             reply: runs (rpc/ranges.py)
    error      reply:   UTF-8 text for a person

LIST_ENTRIES, ADMIN, FENCE, READ_RANGES, WRITE_LACS, ADD_MANY and the flags CONTEXTS and PLACES are
features (rpc/handshake.py): valid only where HELLO agreed on them.

Requests of one connection are handled in the order in which they were sent (the protocol needs FIFO
per client, bookie and ledger); replies may overtake one another. Bytes that are no valid frame
cause ProtocolError, on which either side closes the connection and does nothing else.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import msgpack

from fencelog.ledgers.errors import ErrorCode, ProtocolError
from fencelog.ledgers.format.entry_list import MAX_LIST_BYTES, MIN_LIST_BYTES
from fencelog.ledgers.format.request_context import Contexts, decode_contexts, encode_contexts
from fencelog.ledgers.limits import (
    FENCE_READ_BYTES,
    MAX_ADDS_AT_ONCE,
    MAX_ADMIN_BYTES,
    MAX_FENCES_AT_ONCE,
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    MAX_LACS_AT_ONCE,
    MAX_PLACED_PATH_BYTES,
    MAX_PLACED_RUNS,
)

VERSION = 1
MAGIC = "fencelog"

FRAME_HEADER = struct.Struct("<IBBHI")
READ_BODY = struct.Struct("<QQII")
READ_LAC_BODY = struct.Struct("<QqII")
WRITE_LAC_BODY = struct.Struct("<Qq")
LIST_ENTRIES_BODY = struct.Struct("<QQ")
LAC_BODY = struct.Struct("<q")
CONTEXTS_SIZE = struct.Struct("<I")
FENCE_BODY = struct.Struct("<Qq")
"""One of the ledgers of a FENCE request."""
FENCE_ANSWER = struct.Struct("<qqIHH")
"""The head of the answer for one of them."""
PLACE_ANSWER = struct.Struct("<IHH")
"""The head of the answer to one of the parts of a request."""
PLACES_HEAD = struct.Struct("<qHHI")
"""The head of a reply that is flagged PLACES (rpc/places.py)."""
FILE_HEAD_BYTES = 64
"""The first bytes of the file in such a reply: the header of an entry log (bookie/STORAGE.md)."""
PLACE = struct.Struct("<QI")
"""One of its places."""
MAX_ANSWER_TEXT_BYTES = 1024
REPLY_BIT = 0x80


class Op(IntEnum):
    HELLO = 0
    ADD = 1
    READ = 2
    READ_LAC = 3
    WRITE_LAC = 4
    AUTH = 5
    LIST_ENTRIES = 6
    ADMIN = 7
    FENCE = 8
    READ_RANGES = 9
    WRITE_LACS = 10
    ADD_MANY = 11


class Flag(IntFlag):
    NONE = 0
    RECOVERY = 1
    """Flag of ADD: sent by a recoverer; accepted on a fenced ledger (rule 5)."""
    FENCE = 2
    """Flag of READ and READ_LAC: fence the ledger durably before any reply (rule 6)."""
    ACCEPTED = 4
    """Flag of the reply to AUTH: the client is accepted."""
    CONTEXTS = 8
    """Flag of ADD and ADD_MANY: before a run stand the requests that it was appended for."""
    MORE = 16
    """Flag of a reply to ADD_MANY: other replies to the request follow."""
    PLACES = 32
    """Flag of READ: the client may read files of this machine. Flag of the reply: it names places
    in one of them instead of entries."""


class Frame(NamedTuple):
    """A frame as received. ``status`` is 0 in requests and in successful replies."""

    op: int
    flags: int
    status: int
    request_id: int
    body: bytes

    @property
    def is_reply(self) -> bool:
        return bool(self.op & REPLY_BIT)


class PlacedFrame(NamedTuple):
    """A large successful reply to a read, received in place: its body is a view of memory that
    nothing else uses."""

    op: int
    request_id: int
    body: memoryview
    status: int = 0
    flags: int = 0


def encode_request(op: int, request_id: int, body: bytes, flags: int = 0) -> bytes:
    return FRAME_HEADER.pack(8 + len(body), op, flags, 0, request_id) + body


def request_header(op: int, request_id: int, body_size: int, flags: int = 0) -> bytes:
    """Return the header alone, for callers that send a large body as a buffer of its own."""
    return FRAME_HEADER.pack(8 + body_size, op, flags, 0, request_id)


def encode_reply(op: int, request_id: int, body: bytes = b"", flags: int = 0) -> bytes:
    return FRAME_HEADER.pack(8 + len(body), op | REPLY_BIT, flags, 0, request_id) + body


def reply_header(op: int, request_id: int, body_size: int, flags: int = 0) -> bytes:
    """Return the header of a successful reply alone, as ``request_header`` does."""
    return FRAME_HEADER.pack(8 + body_size, op | REPLY_BIT, flags, 0, request_id)


def encode_error(op: int, request_id: int, code: ErrorCode, detail: str) -> bytes:
    body = detail.encode("utf-8", "replace")[:1024]
    return FRAME_HEADER.pack(8 + len(body), op | REPLY_BIT, 0, code.wire, request_id) + body


_REPLY_BYTES = {
    Op.ADD: (0, 0),
    Op.READ: (LAC_BODY.size + 1, MAX_FRAME_BYTES),
    Op.READ_LAC: (LAC_BODY.size, LAC_BODY.size),
    Op.WRITE_LAC: (0, 0),
    Op.LIST_ENTRIES: (MIN_LIST_BYTES, MAX_LIST_BYTES),
    Op.ADMIN: (2, MAX_ADMIN_BYTES),
    Op.FENCE: (FENCE_ANSWER.size, MAX_FENCES_AT_ONCE * (FENCE_ANSWER.size + FENCE_READ_BYTES)),
    Op.READ_RANGES: (1, MAX_FRAME_BYTES),
    Op.WRITE_LACS: (0, MAX_LACS_AT_ONCE * (PLACE_ANSWER.size + MAX_ANSWER_TEXT_BYTES)),
    Op.ADD_MANY: (4, 4 + MAX_ADDS_AT_ONCE * (PLACE_ANSWER.size + MAX_ANSWER_TEXT_BYTES)),
}
"""The smallest and largest number of bytes in the body of a successful reply."""

_LEAST_PLACES = PLACES_HEAD.size + FILE_HEAD_BYTES + PLACE.size + 1
_MOST_PLACES = PLACES_HEAD.size + FILE_HEAD_BYTES + MAX_PLACED_RUNS * PLACE.size
_PLACES_BYTES = (_LEAST_PLACES, _MOST_PLACES + MAX_PLACED_PATH_BYTES)
"""The same for a reply to READ that is flagged PLACES."""


def is_reply_to(op: Op, frame: Frame | PlacedFrame) -> bool:
    """Tell whether a frame can be the reply to a request (after the handshake)."""
    if frame.op != op | REPLY_BIT:
        return False
    if frame.flags & _MORE and (op is not Op.ADD_MANY or frame.status):
        return False
    least, most = _REPLY_BYTES[op]
    if frame.flags & _PLACES:
        if op is not Op.READ or frame.status:
            return False
        least, most = _PLACES_BYTES
    return frame.status != 0 or least <= len(frame.body) <= most


_MORE = int(Flag.MORE)  # with a plain number, ``&`` makes no Flag of the result
_PLACES = int(Flag.PLACES)

_PLACED_REPLIES = frozenset({Op.READ | REPLY_BIT, Op.READ_RANGES | REPLY_BIT})

SMALL_PART_BYTES = 4096
"""The size below which received parts of a frame are put together at once."""


class FrameReader:
    """A reader that cuts a byte stream into frames. One per connection; holds at most one partial
    frame."""

    __slots__ = ("_begun", "_max_bytes", "_missing", "_parts", "_rest")

    def __init__(self, max_bytes: int = MAX_HELLO_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = b""
        self._begun: tuple[int, int, int, int] | None = None
        self._parts: list[bytes | bytearray | memoryview] = []
        self._missing = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of the frame that is not complete yet."""
        return len(self._rest) + sum(map(len, self._parts))

    def accept_large_frames(self) -> None:
        """Accept frames up to MAX_FRAME_BYTES, as after the handshake."""
        self._max_bytes = MAX_FRAME_BYTES

    def feed(self, data: bytes) -> list[Frame]:
        """Take received bytes, return the frames that are complete now.

        Raises ProtocolError; the stream is then unusable.
        """
        if self._begun is None and not self._rest and len(data) >= FRAME_HEADER.size:
            length, op, flags, status, request_id = FRAME_HEADER.unpack_from(data)
            if length + 4 == len(data) and 8 <= length <= self._max_bytes:  # one frame: mostly
                return [Frame(op, flags, status, request_id, data[FRAME_HEADER.size :])]
        frames: list[Frame] = []
        position = 0
        if self._begun is not None:
            position = min(self._missing, len(data))
            self._add_part(data, position)
            if self._missing:
                return frames
            frames.append(Frame(*self._begun, b"".join(self._parts)))
            self._begun, self._parts = None, []
        elif self._rest:
            data = self._rest + data
        available = len(data)
        unpack = FRAME_HEADER.unpack_from
        while available - position >= FRAME_HEADER.size:
            length, op, flags, status, request_id = unpack(data, position)
            if not 8 <= length <= self._max_bytes:
                raise ProtocolError(f"frame of {length} bytes is not within 8..{self._max_bytes}")
            start = position + FRAME_HEADER.size
            position += 4 + length
            if position > available:
                self._begun = (op, flags, status, request_id)
                self._parts, self._missing = [data[start:]], position - available
                break
            frames.append(Frame(op, flags, status, request_id, data[start:position]))
        self._rest = data[position:]
        return frames

    def take_begun(self, least: int) -> tuple[PlacedFrame, int] | None:
        """Give up the frame that is not complete, if it is a reply with entries, to READ or
        READ_RANGES, of which at least so many bytes are missing: the caller puts them behind those
        that are there, whose number is returned with it."""
        if self._begun is None or self._missing < least:
            return None
        op, flags, status, request_id = self._begun
        if op not in _PLACED_REPLIES or status or flags:
            return None
        filled = sum(map(len, self._parts))
        body = memoryview(bytearray(filled + self._missing))
        body[:filled] = b"".join(self._parts)
        self._begun, self._parts = None, []
        return PlacedFrame(op, request_id, body), filled

    def _add_part(self, data: bytes, size: int) -> None:
        """Keep the first bytes of ``data`` for the frame that has begun: as they came, to be joined
        once, but small ones together, since each object would take more than its bytes."""
        self._missing -= size
        last = self._parts[-1]
        if size >= SMALL_PART_BYTES:
            self._parts.append(data if size == len(data) else memoryview(data)[:size])
        elif isinstance(last, bytearray):
            last += data[:size]
        else:
            self._parts.append(bytearray(data[:size]))


def with_contexts(contexts: Contexts, run: bytes) -> bytes:
    """Return the body of an ADD that is flagged CONTEXTS."""
    packed = encode_contexts(contexts)
    return b"".join((CONTEXTS_SIZE.pack(len(packed)), packed, run))


def split_contexts(body: bytes) -> tuple[Contexts, bytes]:
    """Return contexts and run of such a body. Raises ProtocolError."""
    if len(body) < CONTEXTS_SIZE.size:
        raise ProtocolError(f"an add of {len(body)} bytes")
    (size,) = CONTEXTS_SIZE.unpack_from(body)
    end = CONTEXTS_SIZE.size + size
    if end > len(body):
        raise ProtocolError(f"contexts of {size} bytes in {len(body)}")
    return decode_contexts(body[CONTEXTS_SIZE.size : end]), body[end:]


def encode_hello(fields: Mapping[str, Any]) -> bytes:
    """Return the body of a HELLO."""
    packed: bytes = msgpack.packb({"magic": MAGIC, **fields}, use_bin_type=True)
    return packed


def decode_hello(body: bytes) -> dict[str, Any]:
    """Read a HELLO body within explicit limits. Raises ProtocolError."""
    if len(body) > MAX_HELLO_BYTES:
        raise ProtocolError(f"HELLO of {len(body)} bytes, at most {MAX_HELLO_BYTES}")
    try:
        fields = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_str_len=1024,
            max_bin_len=1024,
            max_array_len=64,
            max_map_len=64,
            max_ext_len=0,
        )
    except Exception as error:  # msgpack raises many types for hostile input; all mean the same
        raise ProtocolError(f"HELLO is no valid msgpack: {type(error).__name__}") from error
    if not isinstance(fields, dict) or fields.get("magic") != MAGIC:
        raise ProtocolError("HELLO does not name this protocol")
    return fields


def encode_object(fields: Mapping[str, Any]) -> bytes:
    """Return the body of an ADMIN request or its reply: JSON. Raises ValueError if the fields are
    not JSON, or more than MAX_ADMIN_BYTES of it."""
    body = json.dumps(fields, allow_nan=False).encode()
    if len(body) > MAX_ADMIN_BYTES:
        raise ValueError(f"object of {len(body)} bytes, at most {MAX_ADMIN_BYTES}")
    return body


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the fields of the body of an ADMIN request or its reply. Raises ProtocolError."""
    if len(body) > MAX_ADMIN_BYTES:
        raise ProtocolError(f"object of {len(body)} bytes, at most {MAX_ADMIN_BYTES}")
    try:
        fields = json.loads(body.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"object is no valid JSON: {type(error).__name__}") from error
    if not isinstance(fields, dict):
        raise ProtocolError(f"JSON {type(fields).__name__} where an object is due")
    return fields


def _no_number(name: str) -> None:
    raise ValueError(name)
