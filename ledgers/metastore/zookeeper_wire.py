"""ZooKeeper's wire format: the requests that the store sends, and their answers.

The format is *jute*: big-endian numbers, and byte strings after their length. Every packet is
preceded by its length. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

EVENT_XID = -1
PING_XID = -2
AUTHENTICATION_XID = -4

NO_PASSWORD = bytes(16)

_INT, _LONG = Struct(">i"), Struct(">q")
_HEADER = Struct(">ii")
_REPLY = Struct(">iqi")
_OPERATION = Struct(">iBi")
_CONNECT = Struct(">iqiq")
_CONNECTED = Struct(">iiq")
_STAT = Struct(">qqqqiiiqiiq")
_ENTRY_OF_ALL_RIGHTS = _HEADER.pack(1, 31)  # the length of the list, and the rights of its entry
OPEN_TO_ALL = _ENTRY_OF_ALL_RIGHTS + b"\0\0\0\x05world\0\0\0\x06anyone"
"""The access list with all rights for everybody who reaches the ensemble."""
CREATORS_ALONE = _ENTRY_OF_ALL_RIGHTS + b"\0\0\0\x04auth\0\0\0\0"
"""The access list with all rights for the users as whom the connection is authenticated. The server
puts them in; from a connection without any it refuses the list."""

_CREATE, _DELETE, _EXISTS, _GET, _SET, _GET_ACCESS, _SET_ACCESS = 1, 2, 3, 4, 5, 6, 7
_CHILDREN, _SYNC, _PING, _CHECK, _MULTI, _AUTHENTICATE, _CLOSE = 8, 9, 11, 13, 14, 100, -11
_ANY_VERSION = -1
_EPHEMERAL = 1
_ERROR = -1
_ROLLED_BACK = 0
_STAT_NAMES = (4, 7)  # version, ephemeralOwner

NODE_EVENTS = range(1, 5)
"""The types of events: a node was created, deleted or changed, or its children were."""


class ServerError(Exception):
    """An answer that refuses a request. ``code`` is ZooKeeper's."""

    code = 0

    def __init__(self, code: int | None = None) -> None:
        self.code = type(self).code if code is None else code
        super().__init__(f"{type(self).__name__} ({self.code})")


class Refusal(ServerError):
    """An answer which says that nothing happened, because of the state of a node."""


class NoNodeError(Refusal):
    code = -101


class NoAuthError(Refusal):
    code = -102


class BadVersionError(Refusal):
    code = -103


class NoChildrenForEphemeralsError(Refusal):
    code = -108


class NodeExistsError(Refusal):
    code = -110


class NotEmptyError(Refusal):
    code = -111


class RolledBackError(ServerError):
    """The result of an operation that was not the reason why its transaction was refused."""


_REFUSALS = {
    refusal.code: refusal
    for refusal in (
        NoNodeError,
        NoAuthError,
        BadVersionError,
        NoChildrenForEphemeralsError,
        NodeExistsError,
        NotEmptyError,
    )
}


def error_of(code: int) -> ServerError:
    """Return the error that the server's code means."""
    refusal = _REFUSALS.get(code)
    return ServerError(code) if refusal is None else refusal()


class Stat(NamedTuple):
    """The facts about a node that the store uses."""

    version: int
    ephemeral_owner: int


class NodeOperation(NamedTuple):
    """One operation of a transaction."""

    kind: int
    body: bytes


class Request(NamedTuple):
    """A request without its xid, and the function that decodes the body of its answer."""

    kind: int
    body: bytes
    decode: Callable[[memoryview], Any]


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """The proof of a client's session. ``session_id`` 0: it has none yet."""

    session_id: int = 0
    password: bytes = NO_PASSWORD


# -- requests ------------------------------------------------------------------------------------


def get(path: str, *, watch: bool = False) -> Request:
    """Read a node; the answer is (data, ``Stat``)."""
    return Request(_GET, _path_and_watch(path, watch=watch), _decode_data)


def exists(path: str, *, watch: bool = False) -> Request:
    """Read a node's ``Stat``."""
    return Request(_EXISTS, _path_and_watch(path, watch=watch), _decode_stat)


def get_children(path: str, *, watch: bool = False) -> Request:
    """Read the names of a node's children, which have no order."""
    return Request(_CHILDREN, _path_and_watch(path, watch=watch), _decode_names)


def get_access(path: str) -> Request:
    """Read a node's access list; the answer is a frozenset of (rights, scheme, id)."""
    return Request(_GET_ACCESS, _bytes(path.encode()), _decode_access)


def set_access(path: str, access: bytes) -> Request:
    """Replace a node's access list; its version stays."""
    body = _bytes(path.encode()) + access + _INT.pack(_ANY_VERSION)
    return Request(_SET_ACCESS, body, _decode_stat)


def create(
    path: str, data: bytes, *, ephemeral: bool = False, access: bytes = OPEN_TO_ALL
) -> NodeOperation:
    flags = _INT.pack(_EPHEMERAL if ephemeral else 0)
    return NodeOperation(_CREATE, _bytes(path.encode()) + _bytes(data) + access + flags)


def set_data(path: str, data: bytes, version: int) -> NodeOperation:
    return NodeOperation(_SET, _bytes(path.encode()) + _bytes(data) + _INT.pack(version))


def delete(path: str, version: int) -> NodeOperation:
    return NodeOperation(_DELETE, _bytes(path.encode()) + _INT.pack(version))


def check(path: str, version: int) -> NodeOperation:
    return NodeOperation(_CHECK, _bytes(path.encode()) + _INT.pack(version))


def transaction(operations: Sequence[NodeOperation]) -> Request:
    """Carry out all operations or none; the answer is a list with None, or a ``ServerError``, for
    each of them."""
    parts = [
        part
        for kind, body in operations
        for part in (_OPERATION.pack(kind, 0, -1), body)  # the 0 says that there are more
    ]
    return Request(_MULTI, b"".join((*parts, _OPERATION.pack(-1, 1, -1))), _decode_results)


def sync(path: str) -> Request:
    """Have the server catch up with the leader."""
    return Request(_SYNC, _bytes(path.encode()), _decode_nothing)


PING = Request(_PING, b"", lambda body: None)
CLOSE = Request(_CLOSE, b"", lambda body: None)


def encode(request: Request, xid: int) -> bytes:
    """Return the packet of a request, with its length."""
    header = _HEADER.pack(xid, request.kind)
    return b"".join((_INT.pack(len(header) + len(request.body)), header, request.body))


def encode_connect(identity: SessionIdentity, *, timeout_ms: int, last_zxid: int) -> bytes:
    """Return the first packet of a connection. ``last_zxid``: a server that has not seen this
    change refuses the connection, so that reads never go back."""
    fixed = _CONNECT.pack(0, last_zxid, timeout_ms, identity.session_id)
    body = fixed + _bytes(identity.password) + b"\0"  # no read-only server
    return _INT.pack(len(body)) + body


def encode_authentication(user: bytes) -> bytes:
    """Return the packet that authenticates a connection as a user, ``name:password``, besides those
    as whom it is authenticated already."""
    body = _HEADER.pack(AUTHENTICATION_XID, _AUTHENTICATE) + _INT.pack(0)
    body += _bytes(b"digest") + _bytes(user)
    return _INT.pack(len(body)) + body


# -- answers -------------------------------------------------------------------------------------


def decode_connected(packet: memoryview) -> tuple[SessionIdentity, int]:
    """Return the identity of the session, and the timeout that the server has chosen for it, in
    milliseconds; 0: the session has expired."""
    _, timeout_ms, session_id = _CONNECTED.unpack_from(packet)
    password, _ = _read_bytes(packet, _CONNECTED.size)
    return SessionIdentity(session_id, password), max(0, timeout_ms)


def decode_header(packet: memoryview) -> tuple[int, int, int, memoryview]:
    """Return the xid, the zxid and the error of an answer, and its body."""
    xid, zxid, error = _REPLY.unpack_from(packet)
    return xid, zxid, error, packet[_REPLY.size :]


def decode_event(body: memoryview) -> tuple[int, str]:
    """Return the type and the path of an event."""
    kind, _ = _HEADER.unpack_from(body)
    path, _ = _read_bytes(body, _HEADER.size)
    return kind, path.decode()


def _decode_data(body: memoryview) -> tuple[bytes, Stat]:
    data, at = _read_bytes(body, 0)
    return data, _read_stat(body, at)


def _decode_stat(body: memoryview) -> Stat:
    return _read_stat(body, 0)


def _decode_names(body: memoryview) -> list[str]:
    (count,) = _INT.unpack_from(body)
    names, at = [], _INT.size
    for _ in range(count):
        name, at = _read_bytes(body, at)
        names.append(name.decode())
    return names


def _decode_access(body: memoryview) -> frozenset[tuple[int, str, str]]:
    (count,) = _INT.unpack_from(body)
    entries, at = [], _INT.size
    for _ in range(count):
        (rights,) = _INT.unpack_from(body, at)
        scheme, at = _read_bytes(body, at + _INT.size)
        name, at = _read_bytes(body, at)
        entries.append((rights, scheme.decode(), name.decode()))
    return frozenset(entries)


def _decode_nothing(body: memoryview) -> None:
    """Accept any body: the caller needs the answer, not its contents."""


def _decode_results(body: memoryview) -> list[ServerError | None]:
    results: list[ServerError | None] = []
    at = 0
    while True:
        kind, is_last, _ = _OPERATION.unpack_from(body, at)
        at += _OPERATION.size
        if is_last:
            return results
        if kind == _ERROR:
            (code,) = _INT.unpack_from(body, at)
            at += _INT.size
            results.append(RolledBackError() if code == _ROLLED_BACK else error_of(code))
            continue
        if kind == _CREATE:
            _, at = _read_bytes(body, at)
        elif kind == _SET:
            at += _STAT.size
        elif kind not in (_DELETE, _CHECK):
            raise ValueError(f"a result of an operation of kind {kind}")
        results.append(None)


def _read_bytes(body: memoryview, at: int) -> tuple[bytes, int]:
    """Return the byte string at a position, and the position after it. Raises ValueError."""
    (length,) = _INT.unpack_from(body, at)
    begin = at + _INT.size
    end = begin + max(0, length)  # -1 stands for an absent string
    if end > len(body):
        raise ValueError("a string ends beyond its packet")
    return bytes(body[begin:end]), end


def _read_stat(body: memoryview, at: int) -> Stat:
    fields = _STAT.unpack_from(body, at)
    version, ephemeral_owner = (fields[n] for n in _STAT_NAMES)
    return Stat(version, ephemeral_owner)


def _bytes(value: bytes) -> bytes:
    return _INT.pack(len(value)) + value


def _path_and_watch(path: str, *, watch: bool) -> bytes:
    return _bytes(path.encode()) + (b"\1" if watch else b"\0")
