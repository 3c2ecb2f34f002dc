"""The metadata store in ZooKeeper, for a cluster: nodes, watches and errors in its terms.

``zookeeper_session`` decides what a lost request means, over ``zookeeper_connection``;
``zookeeper_incarnations`` makes versions unique.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore import zookeeper_wire as wire
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
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS, ZooKeeperSession
from fencelog.ledgers.metastore.zookeeper_wire import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NodeOperation,
    NoNodeError,
    NotEmptyError,
    Refusal,
    ServerError,
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
            hosts,
            host=host,
            timeout_ms=session_timeout_ms,
            on_state=self._on_state,
            on_event=self._on_event,
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
                operations = node.create(value, incarnation=incarnation, ephemeral=ephemeral)
                await self._commit(f"create {path}", operations, guard_gone=NoNodeError)
                return Version(incarnation, 0)
            except NodeExistsError:
                raise exists(path) from None
            except NoChildrenForEphemeralsError:
                raise below_ephemeral(path) from None
            except NoNodeError:  # the parent of either node
                await self._ensure(parent_of(self._root + path))
                await self._ensure(self._root + GUARDS_PATH)

    async def get(self, path: str) -> Versioned:
        check_path(path)
        try:
            value, stat = await self._session.read(f"get {path}", wire.get(self._root + path))
        except NoNodeError:
            raise not_found(path) from None
        return decode_node(path, value, stat)

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        check_node(path, value)
        node = GuardedNode(self._root, path)
        try:
            operations = node.set(value, version)
            await self._commit(f"set {path}", operations, guard_gone=BadVersionError)
        except NoNodeError:
            raise not_found(path) from None
        except BadVersionError:
            raise version_conflict(path, version) from None
        return Version(version.incarnation, version.number + 1)

    async def delete(self, path: str, version: Version) -> None:
        check_path(path)
        node = GuardedNode(self._root, path)
        try:
            operations = node.delete(version)
            await self._commit(f"delete {path}", operations, guard_gone=BadVersionError)
        except NoNodeError:
            raise not_found(path) from None
        except BadVersionError:
            raise version_conflict(path, version) from None
        except NotEmptyError:
            raise has_children(path) from None

    async def children(self, path: str) -> list[str]:
        check_path(path)
        request = wire.get_children(self._root + path)
        try:
            names: list[str] = await self._session.read(f"list {path}", request)
        except NoNodeError:
            raise not_found(path) from None
        return sorted(names)

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        check_path(path)
        node, arm = self._root + path, self._session.arm

        async def read() -> Versioned | None:
            while True:
                try:
                    value, stat = await arm(wire.get(node, watch=True))
                    return decode_node(path, value, stat)
                except NoNodeError:
                    if not await self._is_there(node):
                        return None

        return self._watches.watch_value(path, read, callback)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        check_path(path)
        node, arm = self._root + path, self._session.arm

        async def read() -> list[str]:
            while True:
                try:
                    names: list[str] = await arm(wire.get_children(node, watch=True))
                    return sorted(names)
                except NoNodeError:
                    if not await self._is_there(node):
                        return []

        return self._watches.watch_children(path, read, callback)

    async def _is_there(self, node: str) -> bool:
        """Tell whether there is such a node, and leave a watch for its creation."""
        try:
            await self._session.arm(wire.exists(node, watch=True))
        except NoNodeError:
            return False
        return True

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._listeners.add(callback)

    def _on_state(self, state: SessionState) -> None:
        self._listeners.notify(state)
        if state is SessionState.CONNECTED:
            self._watches.refresh_all()

    def _on_event(self, node: str) -> None:
        self._watches.refresh(node.removeprefix(self._root))

    async def _commit(
        self, what: str, operations: Sequence[NodeOperation], *, guard_gone: type[Refusal]
    ) -> None:
        results = await self._session.write(what, wire.transaction(operations))
        try:
            check_committed(results, guard_gone=guard_gone)
        except Refusal:
            raise
        except ServerError as error:  # of the session, say, and not of a node
            raise unavailable(what, f"refused with {error}") from error

    async def _ensure(self, node: str) -> None:
        """Create an empty node, and its missing parents, if it is not there.

        Other processes may do the same, and sending it twice is harmless, so a create of unknown
        outcome is sent again.
        """
        while node:  # the root of all is always there
            try:
                created = [wire.create(node, b"")]
                await self._commit(f"create {node}", created, guard_gone=NoNodeError)
                return
            except NodeExistsError:
                return
            except NoChildrenForEphemeralsError:
                raise below_ephemeral(node) from None
            except NoNodeError:
                await self._ensure(parent_of(node))
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_UNKNOWN:
                    raise
