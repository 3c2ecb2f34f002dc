"""The MetadataStore port of a simulated process: a session at the simulated ZooKeeper.

It behaves as ``ledgers.metadata_zookeeper`` does: requests wait for the connection, a read is sent
again after a loss, a write never is. What was not sent has not happened (METADATA_UNAVAILABLE),
what was sent and not answered may have (METADATA_UNKNOWN). While the cluster does not hear of the
session for its timeout, it expires there, which is learnt here at the next connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import METADATA_TIMEOUT_MS
from fencelog.ledgers.metastore.memory import MemoryCluster
from fencelog.ledgers.metastore.paths import (
    check_commit,
    check_node,
    check_path,
    unavailable,
    unknown,
)
from fencelog.ledgers.metastore.port import Change, SessionState, Version, Versioned, Watch
from fencelog.ledgers.metastore.watch import SessionListeners, WatchTable
from tests.sim.engine.engine import Engine
from tests.sim.engine.process import current_process
from tests.sim.metadata.emptied import Emptied
from tests.sim.metadata.server import MACHINE, PORT, MetadataServer, ServerConnection
from tests.sim.metadata.wire import ClientConnection

T = TypeVar("T")

_START_S = 6.0
_CONNECT_S = 2.0
_RECONNECT_S = (0.1, 1.0)
_CLOSE_S = 2.0
_TIMEOUT_S = METADATA_TIMEOUT_MS / 1000


class SimStore:
    """One session of the process that makes it, and the next one when it expires."""

    def __init__(
        self, engine: Engine, cluster: MemoryCluster, *, session_timeout_s: float = 6.0
    ) -> None:
        self.machine = current_process().machine
        self.session_id = 0
        self._process = current_process()
        self._loop = engine.loop
        self._server = MetadataServer.of(engine, cluster)
        self._chance = engine.random(f"metadata {self.machine}")
        self._timeout_s = session_timeout_s
        self._watches = WatchTable(
            lambda path: self._arm(lambda peer: peer.watched_value(path)),
            lambda path: self._arm(lambda peer: peer.watched_children(path)),
        )
        self._listeners = SessionListeners()
        self._connection: ClientConnection | None = None
        self._may_send = asyncio.Event()
        """Connected, or closed: in both cases there is nothing to wait for."""
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._zxid = 0
        self._losses = 0
        self._synced_losses = 0
        self._loses_reply_to: str | None = None
        self._loses_write_to: str | None = None
        self._held_listing: tuple[str, float] | None = None
        self._refuses_until_s = 0.0
        self._refused_changes: list[str] = []
        self._reads_left: int | None = None
        self._breaks_off_s = 0.0
        self.view: Emptied | None = None
        """Of this session: what it sees instead of the tree."""
        self.next_view: Emptied | None = None
        """Of the next one: who empties a store, or brings it back, restarts its servers."""

    async def start(self) -> None:
        self._task = self._loop.create_task(self._stay_connected(), name="metadata")
        try:
            async with asyncio.timeout(_START_S):
                await self._may_send.wait()
        except TimeoutError:
            await self.close()
            raise unavailable("connect", f"no answer from {MACHINE}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._may_send.set()
        await self._watches.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if (connection := self._connection) is not None:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await connection.call(ServerConnection.end)
            except (TimeoutError, ConnectionError):
                pass  # the session ends when its time is over
            connection.abort()

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, once: bool = False
    ) -> Version:
        check_node(path, value)
        return await self._write(
            f"create {path}",
            lambda tree, session: tree.create(path, value, owner=session if ephemeral else 0),
        )

    async def get(self, path: str) -> Versioned:
        check_path(path)
        found = await self._read(f"get {path}", lambda peer, sync: peer.get(path, sync=sync))
        return found if self.view is None else self.view.value(path, found)

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        check_node(path, value)
        return await self._write(f"set {path}", lambda tree, _: tree.set(path, value, version))

    async def delete(self, path: str, version: Version) -> None:
        check_path(path)
        await self._write(f"delete {path}", lambda tree, _: tree.delete(path, version))

    async def commit(self, changes: Sequence[Change]) -> list[Version]:
        check_commit(changes)
        return await self._write(
            ", ".join(f"{type(each).__name__.lower()} {each.path}" for each in changes),
            lambda tree, session: tree.commit(changes, owner=session),
        )

    async def children(self, path: str) -> list[str]:
        check_path(path)
        if self._held_listing is not None and self._held_listing[0] == path:
            (_, held_s), self._held_listing = self._held_listing, None
            await asyncio.sleep(held_s)
        names = await self._read(f"list {path}", lambda peer, sync: peer.children(path, sync=sync))
        return names if self.view is None else self.view.children(path, names)

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        check_path(path)
        return self._watches.watch_value(path, callback)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        check_path(path)
        return self._watches.watch_children(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._listeners.add(callback)

    # -- faults ----------------------------------------------------------------------------------

    def lose_next_reply(self, below: str = "") -> None:
        """The next write (to a path below that one) takes effect, or fails; the connection breaks
        instead of the reply."""
        self._loses_reply_to = f" {below}"

    def lose_next_write(self, below: str) -> None:
        """The connection breaks before the next write to a path below that one gets there; for who
        asks, it is as if the reply had been lost."""
        self._loses_write_to = f" {below}"

    def hold_next_listing(self, path: str, seconds: float) -> None:
        """The next look at the children of this path is sent so much later."""
        self._held_listing = (path, seconds)

    def refuse_changes(self, below: str, count: int) -> None:
        """The next so many changes of nodes below this path are refused, for a reason that whoever
        asks does not know."""
        self._refused_changes = [f"set {below}"] * count

    def refuse_for(self, seconds: float) -> None:
        """Every request is METADATA_UNAVAILABLE for so long."""
        self._refuses_until_s = max(self._refuses_until_s, self._loop.time() + seconds)
        self._loop.call_later(
            seconds, self._watches.refresh_all, context=self._process.context.copy()
        )

    def break_off(self, reads: int, seconds: float) -> None:
        """Fail everything with METADATA_UNAVAILABLE for a time, after so many more reads."""
        self._reads_left, self._breaks_off_s = reads, seconds

    def fall_behind(self) -> None:
        """Its server is as late as any may be, until it catches up by itself: it shows nothing
        newer than what this session has seen already."""
        self._server.delay(self.session_id)

    def heal(self) -> None:
        """End these faults."""
        self._reads_left, self._refuses_until_s = None, 0.0
        self._refused_changes.clear()
        self._loses_write_to = self._held_listing = None

    def expire(self) -> None:
        """End the session on the cluster's side."""
        self._server.expire(self.session_id)

    # -- the connection --------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        while True:
            connection = await self._connect()
            if connection is not None:
                await self._keep_alive(connection)
                connection.abort()
                self._connection = None
                self._may_send.clear()
                self._losses += 1
                self._listeners.notify(SessionState.SUSPENDED)
            await asyncio.sleep(self._chance.uniform(*_RECONNECT_S))

    async def _connect(self) -> ClientConnection | None:
        """A connection that belongs to the session, or to a new one if that has expired."""
        connection = ClientConnection(self._server.wire, self._saw, self._watches.node_changed)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._loop.create_connection(lambda: connection, MACHINE, PORT)
                session_id = await connection.call(self._attach)
                if session_id == 0:
                    self.session_id = 0
                    self._listeners.notify(SessionState.EXPIRED)
                    session_id = await connection.call(self._attach)
        except (OSError, TimeoutError):
            connection.abort()
            return None
        except BaseException:
            connection.abort()
            raise
        if self.session_id != session_id:
            self.view = self.next_view
        self.session_id = session_id
        self._connection = connection
        self._may_send.set()
        self._listeners.notify(SessionState.CONNECTED)
        self._watches.refresh_all()
        return connection

    def _attach(self, peer: ServerConnection) -> int:
        return peer.attach(self.session_id, self._zxid, int(self._timeout_s * 1e6))

    async def _keep_alive(self, connection: ClientConnection) -> None:
        """Ping until the connection is lost or the answer takes too long."""
        while True:
            try:
                async with asyncio.timeout(self._timeout_s * 2 / 3):
                    await connection.call(ServerConnection.ping)
            except (TimeoutError, ConnectionError):
                return
            try:
                async with asyncio.timeout(self._timeout_s / 3):
                    await connection.was_lost.wait()
                return
            except TimeoutError:
                pass

    def _saw(self, zxid: int) -> None:
        self._zxid = max(self._zxid, zxid)

    # -- requests --------------------------------------------------------------------------------

    async def _write(self, what: str, change: Callable[[MemoryCluster, int], T]) -> T:
        sent = False
        if self._refused_changes and self._refused_changes[-1] in what:
            self._refused_changes.pop()
            raise FencelogError(ErrorCode.BAD_REQUEST, f"{MACHINE} takes no {what}")
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = await self._connected(what)
                sent = True
                loses_reply = self._loses_reply_to is not None and self._loses_reply_to in what
                if loses_reply:
                    self._loses_reply_to = None
                if self._loses_write_to is not None and self._loses_write_to in what:
                    self._loses_write_to = None
                    connection.abort()
                result = await connection.call(
                    lambda peer: peer.write(change), loses_reply=loses_reply
                )
        except (ConnectionError, TimeoutError) as error:
            if not sent:
                raise unavailable(what, f"no connection to {MACHINE}") from error
            self._losses += 1
            raise unknown(what, type(error).__name__) from error
        return cast(T, result)

    async def _read(self, what: str, look: Callable[[ServerConnection, bool], T]) -> T:
        if self._reads_left is not None:
            self._reads_left -= 1
            if self._reads_left < 0:
                self._reads_left = None
                self.refuse_for(self._breaks_off_s)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while True:
                    connection = await self._connected(what)
                    try:
                        return await self._look(connection, look)
                    except ConnectionError:
                        await asyncio.sleep(_RECONNECT_S[0])
        except TimeoutError as error:
            raise unavailable(what, f"no connection to {MACHINE}") from error

    async def _look(
        self, connection: ClientConnection, look: Callable[[ServerConnection, bool], T]
    ) -> T:
        """One read, synced if it is the first one since something was lost."""
        losses = self._losses
        sync = losses > self._synced_losses
        try:
            result = await connection.call(lambda peer: look(peer, sync))
        except FencelogError:
            self._synced_losses = max(self._synced_losses, losses)
            raise
        self._synced_losses = max(self._synced_losses, losses)
        return cast(T, result)

    async def _arm(self, look: Callable[[ServerConnection], T]) -> T:
        """A read that leaves a watch; not sent again, since a connection refreshes all watches."""
        connection = self._connection
        if connection is None or self._is_refusing:
            raise unavailable("watch", f"no connection to {MACHINE}")
        try:
            return cast(T, await connection.call(look))
        except ConnectionError as error:
            raise unavailable("watch", type(error).__name__) from error

    async def _connected(self, what: str) -> ClientConnection:
        """Wait for the connection."""
        if self._is_refusing:
            raise unavailable(what, f"{MACHINE} does not answer")
        while self._connection is None and not self._closed:
            await self._may_send.wait()
        if self._connection is None or self._closed:
            raise unavailable(what, "the store is closed")
        return self._connection

    @property
    def _is_refusing(self) -> bool:
        return self._loop.time() < self._refuses_until_s
