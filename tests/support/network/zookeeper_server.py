"""A ZooKeeper server in memory: its nodes, its sessions, what it was sent, and how it fails.

It takes the requests of a store, and of a session. Access lists are kept, and not enforced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from struct import Struct, pack, unpack_from
from typing import NamedTuple

CREATE, DELETE, EXISTS, GET, SET, GET_ACCESS, CHILDREN = 1, 2, 3, 4, 5, 6, 8
SYNC, PING, CHECK, MULTI, CLOSE = 9, 11, 13, 14, -11

_CREATED, _DELETED, _CHANGED, _CHILD = 1, 2, 3, 4
_PING_XID, _AUTHENTICATION_XID = -2, -4
_OPERATION = Struct(">iBi")
_PASSWORD = bytes(16)

_NO_NODE, _BAD_VERSION, _EXISTS, _NOT_EMPTY = -101, -103, -110, -111
_AFTER_A_FAILURE = -2


class _Change(NamedTuple):
    """One operation of a transaction."""

    kind: int
    path: str
    version: int = -1
    data: bytes = b""
    access: bytes = b""
    is_ephemeral: bool = False


class _Refused(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    access: bytes
    """The access list, as it was sent."""
    owner: int = 0
    version: int = 0


@dataclass(slots=True, eq=False)
class _Client:
    writer: asyncio.StreamWriter
    session_id: int = 0
    watched: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)


class ZooKeeperServer:
    """A server of one test. ``kinds`` are those of the requests that it got, pings left out;
    ``greetings`` the newest change and the session that each connection began with."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.kinds: list[int] = []
        self.greetings: list[tuple[int, int]] = []
        self.refuses: dict[int, int] = {}
        """Errors by the kind of the request that they answer, unread, once each."""
        self.loses: set[int] = set()
        """Kinds of requests that are carried out, once each; then the connection ends, without an
        answer."""
        self.before: Callable[[int], None] = lambda kind: None
        """Called with the kind of each request before it is carried out."""
        self.zxid = 100
        self._sessions: set[int] = set()
        self._clients: list[_Client] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """End all connections; the sessions live on."""
        for client in self._clients:
            client.writer.transport.abort()

    def expire(self) -> None:
        """End all sessions, with their nodes, and all connections."""
        for session_id in self._sessions:
            self._end(session_id)
        self._sessions.clear()
        self.cut()

    # -- connections -----------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(writer)
        self._clients.append(client)
        try:
            while True:
                (length,) = unpack_from(">i", await reader.readexactly(4))
                packet = await reader.readexactly(length)
                if client.session_id:
                    self._take(client, packet)
                else:
                    self._open_session(client, packet)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._clients.remove(client)
            writer.close()

    def _open_session(self, client: _Client, packet: bytes) -> None:
        _, last_zxid, timeout_ms, session_id = unpack_from(">iqiq", packet)
        self.greetings.append((last_zxid, session_id))
        if session_id and session_id not in self._sessions:
            session_id = timeout_ms = 0
        elif not session_id:
            session_id = len(self.greetings)
            self._sessions.add(session_id)
        client.session_id = session_id
        _send(client, pack(">iiq", 0, timeout_ms, session_id) + _string(_PASSWORD) + b"\0")

    def _take(self, client: _Client, packet: bytes) -> None:
        xid, kind = unpack_from(">ii", packet)
        if xid in (_PING_XID, _AUTHENTICATION_XID):
            _send(client, pack(">iqi", xid, 0, 0))
            return
        self.kinds.append(kind)
        if kind in self.refuses:
            _send(client, pack(">iqi", xid, self.zxid, self.refuses.pop(kind)))
            return
        self.before(kind)
        try:
            code, body = 0, self._answer(client, kind, packet[8:])
        except _Refused as refused:
            code, body = refused.code, b""
        if kind in self.loses:
            self.loses.remove(kind)
            client.writer.transport.abort()
            return
        _send(client, pack(">iqi", xid, self.zxid, code) + body)

    def _answer(self, client: _Client, kind: int, body: bytes) -> bytes:
        if kind == MULTI:
            return self._transaction(client.session_id, body)
        if kind == CLOSE:
            self._end(client.session_id)
        if kind in (CLOSE, SYNC):
            return b""
        path, at = _read_path(body, 0)
        is_watched = kind != GET_ACCESS and body[at] == 1
        if is_watched and (kind == EXISTS or path in self.nodes):
            (client.listed if kind == CHILDREN else client.watched).add(path)
        node = self._node(path)
        if kind == CHILDREN:
            names = [_string(name.encode()) for name in self._children(path)]
            return pack(">i", len(names)) + b"".join(names)
        if kind == GET_ACCESS:
            return node.access + _stat(node)
        return (_string(node.data) if kind == GET else b"") + _stat(node)

    # -- nodes -----------------------------------------------------------------------------------

    def _transaction(self, session_id: int, body: bytes) -> bytes:
        """Carry out all operations or none."""
        before, events = dict(self.nodes), list[tuple[int, str]]()
        results: list[bytes] = []
        failure = 0
        changes = list(_changes(body))
        for number, change in enumerate(changes):
            try:
                results.append(_OPERATION.pack(change.kind, 0, 0) + self._apply(session_id, change))
            except _Refused as refused:
                self.nodes, failure = before, refused.code
                codes = [0] * number + [failure] + [_AFTER_A_FAILURE] * (len(changes) - number - 1)
                results = [pack(">iBii", -1, 0, -1, code) for code in codes]
                break
            if change.kind in _EVENTS:
                events.append((_EVENTS[change.kind], change.path))
        if not failure:
            self.zxid += 1
            self._tell(events)
        return b"".join(results) + _OPERATION.pack(-1, 1, -1)

    def _apply(self, session_id: int, change: _Change) -> bytes:
        path = change.path
        if change.kind == CREATE:
            parent = path.rpartition("/")[0]
            if parent:
                self._node(parent)
            if path in self.nodes:
                raise _Refused(_EXISTS)
            owner = session_id if change.is_ephemeral else 0
            self.nodes[path] = Node(change.data, change.access, owner)
            return _string(path.encode())
        node = self._node(path)
        if change.version not in (-1, node.version):
            raise _Refused(_BAD_VERSION)
        if change.kind == SET:
            self.nodes[path] = replace(node, data=change.data, version=node.version + 1)
            return _stat(self.nodes[path])
        if change.kind == DELETE:
            if self._children(path):
                raise _Refused(_NOT_EMPTY)
            del self.nodes[path]
        return b""

    def _end(self, session_id: int) -> None:
        ended = [path for path, node in self.nodes.items() if node.owner == session_id]
        for path in ended:
            del self.nodes[path]
        self._tell([(_DELETED, path) for path in ended])

    def _tell(self, events: list[tuple[int, str]]) -> None:
        """Send the events to those who watch, once."""
        for kind, path in events:
            parent = path.rpartition("/")[0]
            for client in self._clients:
                if path in client.watched:
                    client.watched.remove(path)
                    _send(client, _event(kind, path))
                if kind != _CHANGED and parent in client.listed:
                    client.listed.remove(parent)
                    _send(client, _event(_CHILD, parent))

    def _node(self, path: str) -> Node:
        if path not in self.nodes:
            raise _Refused(_NO_NODE)
        return self.nodes[path]

    def _children(self, path: str) -> list[str]:
        return [each[len(path) + 1 :] for each in self.nodes if each.rpartition("/")[0] == path]


_EVENTS = {CREATE: _CREATED, DELETE: _DELETED, SET: _CHANGED}


def _changes(body: bytes) -> Iterator[_Change]:
    at = 0
    while True:
        kind, is_last, _ = _OPERATION.unpack_from(body, at)
        if is_last:
            return
        path, at = _read_path(body, at + _OPERATION.size)
        data = access = b""
        if kind in (CREATE, SET):
            data, at = _read_string(body, at)
        if kind == CREATE:
            begin = at
            (count,) = unpack_from(">i", body, at)
            at += 4
            for _ in range(count):
                _, at = _read_string(body, at + 4)
                _, at = _read_string(body, at)
            access = body[begin:at]
        (number,) = unpack_from(">i", body, at)  # the flags, or the version
        at += 4
        version = -1 if kind == CREATE else number
        yield _Change(kind, path, version, data, access, kind == CREATE and number == 1)


def _read_string(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = unpack_from(">i", body, at)
    return body[at + 4 : at + 4 + length], at + 4 + length


def _read_path(body: bytes, at: int) -> tuple[str, int]:
    path, at = _read_string(body, at)
    return path.decode(), at


def _string(value: bytes) -> bytes:
    return pack(">i", len(value)) + value


def _stat(node: Node) -> bytes:
    numbers = (0, 0, 0, 0, node.version, 0, 0, node.owner, len(node.data), 0, 0)
    return pack(">qqqqiiiqiiq", *numbers)


def _event(kind: int, path: str) -> bytes:
    return pack(">iqiii", -1, -1, 0, kind, 3) + _string(path.encode())


def _send(client: _Client, packet: bytes) -> None:
    client.writer.write(_string(packet))
