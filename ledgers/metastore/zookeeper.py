"""The metadata store in ZooKeeper, for a cluster: nodes, watches and errors in its terms.

``zookeeper_session`` sends the requests and decides what a lost request means;
``zookeeper_incarnations`` makes versions unique.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kazoo import exceptions as zk

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.paths import (
    below_ephemeral,
    check_node,
    check_path,
    exists,
    has_children,
    not_found,
    parent_of,
    unavailable,
    version_conflict,
)
from fencelog.ledgers.metastore.port import SessionState, Version, Versioned, Watch
from fencelog.ledgers.metastore.watch import SessionListeners, WatchTable
from fencelog.ledgers.metastore.zookeeper_incarnations import (
    GUARDS_PATH,
    INCARNATION_BYTES,
    UNGUARDED,
    GuardedNode,
    check_committed,
    decode_node,
)
from fencelog.ledgers.metastore.zookeeper_session import (
    REFUSALS,
    SESSION_TIMEOUT_MS,
    Request,
    ZooKeeperSession,
)


class ZooKeeperMetadataStore:
    """One session at a ZooKeeper ensemble. Implements ``MetadataStore``."""

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        host: Host,
        root: str = "",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        """Create a store. ``hosts``: ``host:port``; every path lies below ``root`` ("" or
        "/a/b")."""
        self._session = ZooKeeperSession(
            hosts, timeout_ms=session_timeout_ms, on_state=self._on_state
        )
        self._host = host
        self._root = root
        self._watches = WatchTable()
        self._listeners = SessionListeners()

    @property
    def session_id(self) -> int:
        return self._session.session_id

    async def start(self) -> None:
        await self._session.start()
        try:
            await self._ensure(self._root + GUARDS_PATH)
        except BaseException:
            await self._session.close()
            raise

    async def close(self) -> None:
        await self._watches.close()
        await self._session.close()

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, once: bool = False
    ) -> Version:
        check_node(path, value)
        node = GuardedNode(self._root, path)
        incarnation = UNGUARDED
        if not once:
            incarnation = int.from_bytes(self._host.random_bytes(INCARNATION_BYTES), "big")
        while True:
            try:
                await self._commit(
                    f"create {path}",
                    lambda client: node.create(
                        client, value, incarnation=incarnation, ephemeral=ephemeral
                    ),
                    guard_gone=zk.NoNodeError,
                )
                return Version(incarnation, 0)
            except zk.NodeExistsError:
                raise exists(path) from None
            except zk.NoChildrenForEphemeralsError:
                raise below_ephemeral(path) from None
            except zk.NoNodeError:  # the parent of either node
                await self._ensure(parent_of(self._root + path))
                await self._ensure(self._root + GUARDS_PATH)

    async def get(self, path: str) -> Versioned:
        check_path(path)
        node = self._root + path
        try:
            value, stat = await self._session.read(
                f"get {path}", lambda client: client.get_async(node)
            )
        except zk.NoNodeError:
            raise not_found(path) from None
        return decode_node(path, value, stat)

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        check_node(path, value)
        node = GuardedNode(self._root, path)
        try:
            await self._commit(
                f"set {path}",
                lambda client: node.set(client, value, version),
                guard_gone=zk.BadVersionError,
            )
        except zk.NoNodeError:
            raise not_found(path) from None
        except zk.BadVersionError:
            raise version_conflict(path, version) from None
        return Version(version.incarnation, version.number + 1)

    async def delete(self, path: str, version: Version) -> None:
        check_path(path)
        node = GuardedNode(self._root, path)
        try:
            await self._commit(
                f"delete {path}",
                lambda client: node.delete(client, version),
                guard_gone=zk.BadVersionError,
            )
        except zk.NoNodeError:
            raise not_found(path) from None
        except zk.BadVersionError:
            raise version_conflict(path, version) from None
        except zk.NotEmptyError:
            raise has_children(path) from None

    async def children(self, path: str) -> list[str]:
        check_path(path)
        node = self._root + path
        try:
            names = await self._session.read(
                f"list {path}", lambda client: client.get_children_async(node)
            )
        except zk.NoNodeError:
            raise not_found(path) from None
        return sorted(names)

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        check_path(path)
        node = self._root + path
        arm = self._session.arm

        async def read() -> Versioned | None:
            while True:
                try:
                    value, stat = await arm(lambda client: client.get_async(node, changed))
                    return decode_node(path, value, stat)
                except zk.NoNodeError:
                    if await arm(lambda client: client.exists_async(node, changed)) is None:
                        return None

        watch = self._watches.watch_value(path, read, callback)
        changed = self._session.notice(watch.refresh)
        return watch

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        check_path(path)
        node = self._root + path
        arm = self._session.arm

        async def read() -> list[str]:
            while True:
                try:
                    names = await arm(lambda client: client.get_children_async(node, changed))
                    return sorted(names)
                except zk.NoNodeError:
                    if await arm(lambda client: client.exists_async(node, changed)) is None:
                        return []

        watch = self._watches.watch_children(path, read, callback)
        changed = self._session.notice(watch.refresh)
        return watch

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._listeners.add(callback)

    def _on_state(self, state: SessionState) -> None:
        self._listeners.notify(state)
        if state is SessionState.CONNECTED:
            self._watches.refresh_all()

    async def _commit(
        self, what: str, request: Request, *, guard_gone: type[zk.KazooException]
    ) -> None:
        results = await self._session.write(what, request)
        try:
            check_committed(results, guard_gone=guard_gone)
        except REFUSALS:
            raise
        except zk.KazooException as error:  # of the session, say, and not of a node
            raise unavailable(what, f"refused with {type(error).__name__}") from error

    async def _ensure(self, node: str) -> None:
        """Create an empty node, and its missing parents, if it is not there.

        Other processes may do the same, and sending it twice is harmless, so a create of unknown
        outcome is sent again.
        """
        while True:
            try:
                await self._session.write(
                    f"create {node}", lambda client: client.create_async(node, b"")
                )
                return
            except zk.NodeExistsError:
                return
            except zk.NoChildrenForEphemeralsError:
                raise below_ephemeral(node) from None
            except zk.NoNodeError:
                await self._ensure(parent_of(node))
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_UNKNOWN:
                    raise
