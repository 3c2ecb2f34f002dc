"""The simulated ZooKeeper: sessions, their ephemeral nodes and watches, on the machine "zk".

One process that never dies stands for the whole ensemble. What differs between its servers shows as
reads that lag behind; writes are linearizable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster
from fencelog.ledgers.metastore.paths import not_found, parent_of
from fencelog.ledgers.metastore.port import Versioned
from tests.sim.engine.engine import Engine
from tests.sim.metadata.tree_history import TreeHistory
from tests.sim.metadata.wire import Changed, Connection, Message, Reply, Request, Wire

T = TypeVar("T")

MACHINE = "zk"
PORT = 2181

_LATE_S = (0.02, 0.02, 0.02, 0.5)
"""Bounds, one drawn at random, of how late a watch is set off."""

_MAX_LAG_US = 1_000_000
_FRESH = 0.6
"""The share of moments at which a session's server is up to date."""

_LAG_CHANGES = 0.1
"""The probability that a server falls behind or catches up between two reads of a session."""

_servers: WeakValueDictionary[int, MetadataServer] = WeakValueDictionary()
"""Servers by the id of the tree, which keeps its server alive and ends with it."""


class Session:
    """One session on the cluster's side. It outlives its connections."""

    def __init__(self, session_id: int, zxid: int, timeout_us: int, now_us: int) -> None:
        self.session_id = session_id
        self.zxid = zxid
        self.timeout_us = timeout_us
        self.heard_us = now_us
        self.has_ended = False
        self.lag_us = 0
        """How far its server is behind, but for what the session has seen."""
        self.connection: ServerConnection | None = None


class ServerConnection(Connection):
    """The server's end. Belongs to no session before ``attach`` and after ``detach``."""

    def __init__(self, server: MetadataServer) -> None:
        super().__init__(server.wire)
        self._server = server
        self.session: Session | None = None
        self.value_watches: dict[str, None] = {}
        self.child_watches: dict[str, None] = {}

    def received(self, message: Message) -> None:
        if not isinstance(message, Request) or (self.session and self.session.has_ended):
            return
        result, error = None, None
        try:
            result = message.operation(self)
        except FencelogError as refused:
            error = refused
        if message.loses_reply:
            self.abort()
        else:
            zxid = self.session.zxid if self.session is not None else 0
            self.send(Reply(message.number, result, error, zxid))

    def lost(self) -> None:
        if self.session is not None:
            self.session.connection = None
            self.session = None

    # -- requests --------------------------------------------------------------------------------

    def attach(self, session_id: int, zxid: int, timeout_us: int) -> int:
        """Take up a session, or (0) begin one; its id, or 0 if it has expired."""
        session = self._server.session(session_id, zxid, timeout_us)
        if session is None:
            return 0
        if session.connection is not None:
            session.connection.abort()
        session.connection, self.session = self, session
        session.heard_us = self._server.now_us
        return session.session_id

    def ping(self) -> None:
        if self.session is not None:
            self.session.heard_us = self._server.now_us

    def end(self) -> None:
        """Close the session."""
        self._server.end(self._attached())

    def write(self, change: Callable[[MemoryCluster, int], T]) -> T:
        """Carry out a change, which gets the session's id."""
        session = self._attached()
        try:
            return change(self._server.cluster, session.session_id)
        finally:
            session.zxid = self._server.history.newest

    def get(self, path: str, *, sync: bool) -> Versioned:
        value = self._server.history.value(path, self._state(sync=sync))
        if value is None:
            raise not_found(path)
        return value

    def children(self, path: str, *, sync: bool) -> list[str]:
        names = self._server.history.children(path, self._state(sync=sync))
        if names is None:
            raise not_found(path)
        return names

    def watched_value(self, path: str) -> Versioned | None:
        """The value, and a notice when it is another one."""
        look = self._server.history.value
        value = look(path, self._state(sync=False))
        self._arm(self.value_watches, path, value == look(path, self._server.history.newest))
        return value

    def watched_children(self, path: str) -> list[str]:
        """The names, [] while the node is not there, and a notice when they are others."""
        look = self._server.history.children
        names = look(path, self._state(sync=False))
        self._arm(self.child_watches, path, names == look(path, self._server.history.newest))
        return names or []

    def _arm(self, watches: dict[str, None], path: str, is_newest: bool) -> None:
        watches[path] = None
        if not is_newest:
            self._server.set_off(self, watches, path)

    def _state(self, *, sync: bool) -> int:
        """Return which state of the tree a read sees."""
        session, server = self._attached(), self._server
        if server.chance.random() < _LAG_CHANGES:
            session.lag_us = server.some_lag_us()
        applied = server.history.applied(0 if sync else session.lag_us)
        session.zxid = max(session.zxid, applied)
        return session.zxid

    def _attached(self) -> Session:
        if self.session is None:
            raise AssertionError("the connection belongs to no session")
        self.session.heard_us = self._server.now_us
        return self.session


class MetadataServer:
    """The ensemble over one tree; ``of`` makes it when the tree is first used."""

    def __init__(self, engine: Engine, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.wire = Wire()
        self.chance = engine.random("metadata")
        self.history = TreeHistory(cluster, lambda: engine.now_us)
        self._engine = engine
        self._sessions: dict[int, Session] = {}
        self._context = engine.start_process(MACHINE).context
        self._context.copy().run(engine.network.listen, lambda: ServerConnection(self), None, PORT)
        cluster.subscribe(self._changed)

    @staticmethod
    def of(engine: Engine, cluster: MemoryCluster) -> MetadataServer:
        server = _servers.get(id(cluster))
        if server is None:
            server = _servers[id(cluster)] = MetadataServer(engine, cluster)
        return server

    @property
    def now_us(self) -> int:
        return self._engine.now_us

    def some_lag_us(self) -> int:
        return 0 if self.chance.random() < _FRESH else self.chance.randrange(_MAX_LAG_US)

    # -- sessions --------------------------------------------------------------------------------

    def session(self, session_id: int, zxid: int, timeout_us: int) -> Session | None:
        """A session that has not ended, or, for the id 0, a new one."""
        if session_id:
            return self._sessions.get(session_id)
        session_id = self.cluster.new_session()
        session = Session(session_id, zxid, timeout_us, self.now_us)
        session.lag_us = self.some_lag_us()
        self._sessions[session_id] = session
        self._engine.trace.note(f"metadata session {session_id} begins")
        self._expire_later(session)
        return session

    def delay(self, session_id: int) -> None:
        """The session's server is late from now on."""
        if session_id in self._sessions:
            self._sessions[session_id].lag_us = _MAX_LAG_US - 1

    def expire(self, session_id: int) -> None:
        """End a session from this side. Its client learns it when it connects again."""
        if session_id in self._sessions:
            session = self._sessions[session_id]
            self.end(session)
            if session.connection is not None:
                self._call_later(0, session.connection.abort)

    def end(self, session: Session) -> None:
        """Its ephemeral nodes go, and their watchers will know."""
        if self._sessions.pop(session.session_id, None) is not None:
            self._engine.trace.note(f"metadata session {session.session_id} ends")
            session.has_ended = True
            self.cluster.end_session(session.session_id)
            session.zxid = self.history.newest

    def _expire_later(self, session: Session) -> None:
        due_us = session.heard_us + session.timeout_us
        self._call_later(max(0, due_us - self.now_us) / 1e6, self._check_expiry, session)

    def _check_expiry(self, session: Session) -> None:
        if session.session_id not in self._sessions:
            return
        if self.now_us >= session.heard_us + session.timeout_us:
            self.expire(session.session_id)
        else:
            self._expire_later(session)

    # -- watches ---------------------------------------------------------------------------------

    def set_off(self, connection: ServerConnection, watches: dict[str, None], path: str) -> None:
        """Tell a client, once and a little late, that what it watches has changed."""
        if watches.pop(path, self) is None:
            late_s = self.chance.random() * self.chance.choice(_LATE_S)
            self._call_later(late_s, self._notify, connection, path, self.history.newest)

    def _notify(self, connection: ServerConnection, path: str, zxid: int) -> None:
        """Notify the client, whose later reads are no older than the change."""
        if connection.session is not None:
            connection.session.zxid = max(connection.session.zxid, zxid)
            connection.send(Changed(path))

    def _changed(self, path: str) -> None:
        newest = self.history.newest
        was_there = self.history.value(path, newest - 1) is not None
        is_change_of_names = was_there != (self.history.value(path, newest) is not None)
        for session in self._sessions.values():
            if (connection := session.connection) is not None:
                if path in connection.value_watches:
                    self.set_off(connection, connection.value_watches, path)
                if is_change_of_names:
                    self.set_off(connection, connection.child_watches, path)
                    self.set_off(connection, connection.child_watches, parent_of(path))

    def _call_later(self, delay_s: float, callback: Callable[..., None], *args: object) -> None:
        self._engine.loop.call_later(delay_s, callback, *args, context=self._context.copy())
