"""The metadata store in ZooKeeper, for a cluster: nodes, watches and errors in its terms.

``zookeeper_session`` decides what a lost request means, over ``zookeeper_connection``;
``zookeeper_incarnations`` makes versions unique; ``zookeeper_credentials`` says as whom a process
authenticates and whom its nodes are for, ``zookeeper_protection`` sets the access lists of those
that are there already.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore import zookeeper_wire as wire
from fencelog.ledgers.metastore.paths import (
    below_ephemeral,
    check_commit,
    check_path,
    exists,
    has_children,
    not_found,
    parent_of,
    too_large,
    unavailable,
    unknown,
    version_conflict,
)
from fencelog.ledgers.metastore.port import (
    NO_VERSION,
    Change,
    Create,
    Delete,
    SessionState,
    Set,
    Version,
    Versioned,
    Watch,
)
from fencelog.ledgers.metastore.watch import SessionListeners, WatchTable
from fencelog.ledgers.metastore.zookeeper_credentials import NOBODY, ZooKeeperCredentials
from fencelog.ledgers.metastore.zookeeper_incarnations import (
    GUARDS_PATH,
    INCARNATION_BYTES,
    UNGUARDED,
    GuardedNode,
    check_committed,
    decode_node,
)
from fencelog.ledgers.metastore.zookeeper_protection import SetAccess, set_access_of_all
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS, ZooKeeperSession
from fencelog.ledgers.metastore.zookeeper_tls import Certificate
from fencelog.ledgers.metastore.zookeeper_wire import (
    OPEN_TO_ALL,
    BadVersionError,
    NoAuthError,
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
        credentials: ZooKeeperCredentials = NOBODY,
        tls: ssl.SSLContext | None = None,
        certificates: Sequence[Certificate] = (),
    ) -> None:
        """Create a store. ``hosts``: ``host:port``; every path lies below ``root`` ("" or
        "/a/b"); nodes are created with the access list of ``credentials``. ``tls``: without it
        connections are not encrypted; ``certificates``: of which it was made."""
        self._session = ZooKeeperSession(
            hosts,
            host=host,
            timeout_ms=session_timeout_ms,
            on_state=self._on_state,
            on_event=self._on_event,
            credentials=credentials,
            tls=tls,
        )
        self._credentials = credentials
        self._certificates = certificates
        self._host = host
        self._root = root
        self._watches = WatchTable(self._read_value, self._read_children)
        self._listeners = SessionListeners()

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def certificates(self) -> list[Certificate]:
        """Return those on which connections depend, with that of the server connected last."""
        shown = self._session.server_certificate
        return [*self._certificates, *([] if shown is None else [shown])]

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
        (version,) = await self.commit([Create(path, value, ephemeral, once)])
        return version

    async def get(self, path: str) -> Versioned:
        check_path(path)
        try:
            value, stat = await self._session.read(f"get {path}", wire.get(self._root + path))
        except NoNodeError:
            raise not_found(path) from None
        return decode_node(path, value, stat)

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        (changed,) = await self.commit([Set(path, value, version)])
        return changed

    async def delete(self, path: str, version: Version) -> None:
        await self.commit([Delete(path, version)])

    async def commit(self, changes: Sequence[Change]) -> list[Version]:
        check_commit(changes)
        what = ", ".join(f"{type(each).__name__.lower()} {each.path}" for each in changes)
        parts = [self._part_of(change) for change in changes]
        operations = [operation for part in parts for operation in part.operations]
        request = wire.transaction(operations)
        if len(request.body) > _MAX_REQUEST_BYTES:
            raise too_large(changes, len(request.body), _MAX_REQUEST_BYTES)
        while True:
            results = await self._write(what, request, count=len(operations))
            missing = _parent_that_is_missing(what, parts, results)
            if missing is None:
                return [part.version for part in parts]
            await self._ensure(parent_of(self._root + missing))
            await self._ensure(self._root + GUARDS_PATH)

    def _part_of(self, change: Change) -> _Part:
        node = GuardedNode(self._root, change.path, access=self._credentials.access)
        if isinstance(change, Delete):
            return _Part(change, node.delete(change.version), change.version, change.version)
        if isinstance(change, Set):
            version = Version(change.version.incarnation, change.version.number + 1)
            operations = node.set(change.value, change.version)
            return _Part(change, operations, version, change.version)
        incarnation = UNGUARDED
        if not change.once:
            incarnation = int.from_bytes(self._host.random_bytes(INCARNATION_BYTES), "big")
        operations = node.create(change.value, incarnation=incarnation, ephemeral=change.ephemeral)
        return _Part(change, operations, Version(incarnation, 0))

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
        return self._watches.watch_value(path, callback)

    async def _read_value(self, path: str) -> Versioned | None:
        """Read a node, and leave a watch."""
        node = self._root + path
        while True:
            try:
                value, stat = await self._session.arm(wire.get(node, watch=True))
                return decode_node(path, value, stat)
            except NoNodeError:
                if not await self._is_there(node):
                    return None

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        check_path(path)
        return self._watches.watch_children(path, callback)

    async def _read_children(self, path: str) -> list[str]:
        """List a node's children, and leave a watch."""
        node = self._root + path
        while True:
            try:
                request = wire.get_children(node, watch=True)
                names: list[str] = await self._session.arm(request)
                return sorted(names)
            except NoNodeError:
                if not await self._is_there(node):
                    return []

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

    async def protect(self, *, is_open: bool = False) -> SetAccess:
        """Give every node the access list that new ones get, or open all of them to everybody.
        Raises FencelogError: BAD_REQUEST without credentials, or without a root, since the nodes of
        others would be taken; or as ``set_access_of_all``."""
        if not self._root:
            why = "the metadata URL has no root: nodes of others might be taken"
            raise FencelogError(ErrorCode.BAD_REQUEST, why)
        if not is_open and not self._credentials.users:
            why = "the metadata URL has no credentials=FILE: whom should the nodes be for?"
            raise FencelogError(ErrorCode.BAD_REQUEST, why)
        access = OPEN_TO_ALL if is_open else self._credentials.access
        return await set_access_of_all(self._session, self._root, access)

    async def _write(
        self, what: str, request: wire.Request, *, count: int
    ) -> list[ServerError | None]:
        """Send a transaction of so many operations. Raises FencelogError, METADATA_UNAUTHORIZED
        too; METADATA_UNKNOWN if the answer says nothing of some of them."""
        results: list[ServerError | None] = await self._session.write(what, request)
        if len(results) != count:
            raise unknown(what, f"{len(results)} results of {count} operations")
        if any(isinstance(result, NoAuthError) for result in results):
            raise self._session.no_access(what)
        return results

    async def _ensure(self, node: str) -> None:
        """Create an empty node, and its missing parents, if it is not there.

        Other processes may do the same, and sending it twice is harmless, so a create of unknown
        outcome is sent again.
        """
        while node:  # the root of all is always there
            what = f"create {node}"
            try:
                # Above the root there may be nodes of others.
                access = OPEN_TO_ALL if len(node) < len(self._root) else self._credentials.access
                created = wire.transaction([wire.create(node, b"", access=access)])
                results = await self._write(what, created, count=1)
                _check(what, results, guard_gone=NoNodeError)
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
                await asyncio.sleep(_ENSURE_RETRY_S)


_ENSURE_RETRY_S = 0.1
"""Pause before a create of unknown outcome is sent again: a server that throttles requests answers
at once."""

_MAX_REQUEST_BYTES = 0xFFFFF - 8
"""jute.maxbuffer, less the header: MAX_COMMIT_BYTES does not count guards, the root and access
lists, which take more where changes are many."""


class _Part(NamedTuple):
    """The operations of one change in a transaction, the node's version after it, and the one that
    it is based on."""

    change: Change
    operations: Sequence[NodeOperation]
    version: Version
    based_on: Version = NO_VERSION


def _parent_that_is_missing(
    what: str, parts: Sequence[_Part], results: Sequence[ServerError | None]
) -> str | None:
    """Return None if the transaction is committed, and the path of a node that could not be created
    because it, or its guard, has no parent. Raises FencelogError: why the transaction was
    refused."""
    at = 0
    for change, operations, _, based_on in parts:
        own, at = results[at : at + len(operations)], at + len(operations)
        path, is_new = change.path, isinstance(change, Create)
        try:
            _check(what, own, guard_gone=NoNodeError if is_new else BadVersionError)
        except NodeExistsError:
            raise exists(path) from None
        except NoChildrenForEphemeralsError:
            raise below_ephemeral(path) from None
        except NoNodeError:
            if is_new:
                return path
            raise not_found(path) from None
        except BadVersionError:
            raise version_conflict(path, based_on) from None
        except NotEmptyError:
            raise has_children(path) from None
    return None


def _check(what: str, results: Sequence[ServerError | None], *, guard_gone: type[Refusal]) -> None:
    try:
        check_committed(results, guard_gone=guard_gone)
    except Refusal:
        raise
    except ServerError as error:  # of the session, say, and not of a node
        raise unavailable(what, f"refused with {error}") from error
