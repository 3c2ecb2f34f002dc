"""The metadata store in memory, for tests and the simulator: one tree, any number of sessions.

A ``MemoryMetadataStore`` is one process's session on a shared ``MemoryCluster``. Sessions can be
cut off, expired by hand and made to lose replies, each independently of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metastore.paths import (
    ancestors_of,
    below_ephemeral,
    check_commit,
    check_node,
    check_path,
    exists,
    has_children,
    not_found,
    parent_of,
    unavailable,
    unknown,
    version_conflict,
)
from fencelog.ledgers.metastore.port import (
    Change,
    Create,
    SessionState,
    Set,
    Version,
    Versioned,
    Watch,
)
from fencelog.ledgers.metastore.watch import (
    SessionListeners,
    WatchTable,
    names_or_empty,
    value_or_none,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Node:
    version: Version
    value: bytes = b""
    owner: int = 0
    children: set[str] = field(default_factory=set)


class MemoryCluster:
    """The tree. Everything is synchronous: a change and its notifications are one step.

    ``transactions`` counts the steps: changes that are committed together are one.
    """

    def __init__(self) -> None:
        self.transactions = 0
        self._nodes: dict[str, _Node] = {"": _Node(Version(0, 0))}
        self._before: dict[str, _Node | None] | None = None
        """The nodes that a commit in progress has changed, and their parents, as they were before
        it; None: none is in progress."""
        self._committed: dict[str, None] = {}
        """The nodes that it has changed, to be told of at its end."""
        self._on_change: list[Callable[[str], None]] = []
        self._last_session = 0
        self._last_incarnation = 0

    def new_session(self) -> int:
        self._last_session += 1
        return self._last_session

    def end_session(self, session_id: int) -> None:
        """End a session; its ephemeral nodes are deleted."""
        for path in [p for p, node in self._nodes.items() if node.owner == session_id]:
            self._remove(path)

    def subscribe(self, on_change: Callable[[str], None]) -> Callable[[], None]:
        """Call ``on_change`` with the path of every node that changes; returns a function that ends
        this."""
        self._on_change.append(on_change)
        return lambda: self._on_change.remove(on_change)

    def commit(self, changes: Sequence[Change], *, owner: int) -> list[Version]:
        """Make all changes or none; the nodes that are ``ephemeral`` are this session's."""
        before = self._before = {}
        self._committed = {}
        try:
            versions = [self._make(change, owner) for change in changes]
        except FencelogError:
            self._restore(before)
            raise
        finally:
            self._before = None
        self.transactions += 1
        for path in self._committed:
            self._tell(path)
        return versions

    def _make(self, change: Change, owner: int) -> Version:
        if isinstance(change, Create):
            return self.create(change.path, change.value, owner=owner if change.ephemeral else 0)
        if isinstance(change, Set):
            return self.set(change.path, change.value, change.version)
        self.delete(change.path, change.version)
        return change.version

    def _restore(self, before: dict[str, _Node | None]) -> None:
        for path, node in before.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node

    def _keep(self, *paths: str) -> None:
        """Remember nodes that are about to change, in case their commit is refused."""
        if self._before is not None:
            for path in paths:
                node = self._nodes.get(path)
                copied = node and replace(node, children=set(node.children))
                self._before.setdefault(path, copied)

    def create(self, path: str, value: bytes, *, owner: int = 0) -> Version:
        if path in self._nodes:
            raise exists(path)
        ancestors = ancestors_of(path)
        if any(a in self._nodes and self._nodes[a].owner for a in ancestors):
            raise below_ephemeral(path)
        for ancestor in ancestors:
            if ancestor not in self._nodes:
                self._add(ancestor, b"", 0)
        return self._add(path, value, owner)

    def get(self, path: str) -> Versioned:
        node = self._node(path)
        return Versioned(node.value, node.version, node.owner)

    def set(self, path: str, value: bytes, version: Version) -> Version:
        node = self._node(path)
        if version != node.version:
            raise version_conflict(path, version)
        self._keep(path)
        node.value = value
        node.version = Version(version.incarnation, version.number + 1)
        self._notify(path)
        return node.version

    def delete(self, path: str, version: Version) -> None:
        node = self._node(path)
        if version != node.version:
            raise version_conflict(path, version)
        if node.children:
            raise has_children(path)
        self._remove(path)

    def children(self, path: str) -> list[str]:
        return sorted(self._node(path).children)

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise not_found(path)
        return node

    def _add(self, path: str, value: bytes, owner: int) -> Version:
        self._last_incarnation += 1
        version = Version(self._last_incarnation, 0)
        self._keep(path, parent_of(path))
        self._nodes[path] = _Node(version, value, owner)
        self._nodes[parent_of(path)].children.add(path.rpartition("/")[2])
        self._notify(path)
        return version

    def _remove(self, path: str) -> None:
        self._keep(path, parent_of(path))
        del self._nodes[path]
        self._nodes[parent_of(path)].children.discard(path.rpartition("/")[2])
        self._notify(path)

    def _notify(self, path: str) -> None:
        if self._before is not None:
            self._committed[path] = None
        else:
            self.transactions += 1
            self._tell(path)

    def _tell(self, path: str) -> None:
        for on_change in list(self._on_change):
            on_change(path)


class MemoryMetadataStore:
    """One session on a cluster. Implements ``MetadataStore``."""

    def __init__(self, cluster: MemoryCluster | None = None) -> None:
        self._cluster = cluster or MemoryCluster()
        self._watches = WatchTable(self._value_or_none, self._names_or_empty)
        self._listeners = SessionListeners()
        self._session_id = self._cluster.new_session()
        self._connected = False
        self._expired = False
        self._lost_replies = 0
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def session_id(self) -> int:
        return self._session_id

    async def start(self) -> None:
        self._connected = True
        self._unsubscribe = self._cluster.subscribe(self._on_change)

    async def close(self) -> None:
        self._connected = False
        self._unsubscribe()
        self._unsubscribe = lambda: None
        await self._watches.close()
        self._cluster.end_session(self._session_id)

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, once: bool = False
    ) -> Version:
        check_node(path, value)
        owner = self._session_id if ephemeral else 0
        return await self._write(
            f"create {path}", lambda: self._cluster.create(path, value, owner=owner)
        )

    async def get(self, path: str) -> Versioned:
        check_path(path)
        return await self._read(f"get {path}", lambda: self._cluster.get(path))

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        check_node(path, value)
        return await self._write(f"set {path}", lambda: self._cluster.set(path, value, version))

    async def delete(self, path: str, version: Version) -> None:
        check_path(path)
        await self._write(f"delete {path}", lambda: self._cluster.delete(path, version))

    async def commit(self, changes: Sequence[Change]) -> list[Version]:
        check_commit(changes)
        return await self._write(
            "commit " + ", ".join(change.path for change in changes),
            lambda: self._cluster.commit(changes, owner=self._session_id),
        )

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return await self._read(f"list {path}", lambda: self._cluster.children(path))

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        check_path(path)
        return self._watches.watch_value(path, callback)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        check_path(path)
        return self._watches.watch_children(path, callback)

    async def _value_or_none(self, path: str) -> Versioned | None:
        return await value_or_none(self.get(path))

    async def _names_or_empty(self, path: str) -> list[str]:
        return await names_or_empty(self.children(path))

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._listeners.add(callback)

    # -- faults, for tests -----------------------------------------------------------------------

    def lose_replies(self, count: int) -> None:
        """Let the next ``count`` writes take effect (or fail) and answer METADATA_UNKNOWN."""
        self._lost_replies = count

    def disconnect(self) -> None:
        """Cut this session off: it is SUSPENDED, every request is METADATA_UNAVAILABLE."""
        if self._connected:
            self._connected = False
            self._listeners.notify(SessionState.SUSPENDED)

    def reconnect(self) -> None:
        """Connect again; a session that expired meanwhile learns it now and gets a new one."""
        if self._expired:
            self._expired = False
            self._session_id = self._cluster.new_session()
            self._listeners.notify(SessionState.EXPIRED)
        self._connected = True
        self._listeners.notify(SessionState.CONNECTED)
        self._watches.refresh_all()

    def expire(self) -> None:
        """End the session on the cluster's side. A session that is cut off does not know yet."""
        self._cluster.end_session(self._session_id)
        self._expired = True
        if self._connected:
            self.reconnect()

    # -- internals -------------------------------------------------------------------------------

    def _on_change(self, path: str) -> None:
        if self._connected:
            self._watches.node_changed(path)

    async def _read(self, what: str, operation: Callable[[], T]) -> T:
        await asyncio.sleep(0)  # others get their turn, as with a store across a network
        if not self._connected:
            raise unavailable(what, "not connected")
        return operation()

    async def _write(self, what: str, operation: Callable[[], T]) -> T:
        if self._lost_replies == 0:
            return await self._read(what, operation)
        self._lost_replies -= 1
        try:
            await self._read(what, operation)
        except FencelogError as error:
            raise unknown(what, "the reply was lost") from error
        raise unknown(what, "the reply was lost")
