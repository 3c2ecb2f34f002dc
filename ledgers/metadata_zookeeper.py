"""The metadata store in ZooKeeper, for a cluster. The client library is kazoo.

kazoo runs its own threads; every result and notice crosses to the event loop through
``call_soon_threadsafe`` and nothing here ever blocks the loop.

What a lost connection means is decided in one place, ``_send``: a request that was not handed to
kazoo has not happened (METADATA_UNAVAILABLE); a write that was handed over and got no answer may
have (METADATA_UNKNOWN), and is never sent again by us. kazoo sends the requests of a session in
order and drops the unanswered ones with the connection, so reading back afterwards tells the
truth; the read is preceded by a ``sync``, since the server we meet next may lag behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import METADATA_TIMEOUT_MS
from fencelog.ledgers.metadata_paths import (
    ancestors_of,
    below_ephemeral,
    check_node,
    check_path,
    exists,
    has_children,
    not_found,
    unavailable,
    unknown,
    version_conflict,
)
from fencelog.ledgers.metadata_store import ANY_VERSION, SessionState, Versioned, Watch
from fencelog.ledgers.metadata_watch import RefreshingWatch, SessionListeners, WatchTable

SESSION_TIMEOUT_MS = 6_000
"""A session, and its ephemeral nodes, outlive their process by this. Shorter finds dead owners
sooner; too short and a pause of a busy machine looks like death."""

_RECONNECT_DELAY_S = 0.1
_RECONNECT_DELAY_MAX_S = 1.0

_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("fencelog.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # it narrates every attempt; states are logged here, once

_DEFINITE = (
    zk.BadVersionError,
    zk.NoChildrenForEphemeralsError,
    zk.NoNodeError,
    zk.NodeExistsError,
    zk.NotEmptyError,
)
"""Refusals: the server answered, and nothing happened."""

_LOST = (zk.ConnectionLoss, zk.SessionExpiredError)

Request = Callable[[Any], Any]
"""Hands a request to a kazoo client; returns kazoo's asynchronous result."""


class ZooKeeperMetadataStore:
    """One session at a ZooKeeper ensemble. Implements ``MetadataStore``.

    While the connection is lost, requests wait for it up to METADATA_TIMEOUT_MS before they are
    METADATA_UNAVAILABLE.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        root: str = "",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        """``hosts`` are ``host:port``; every path lies below ``root`` ("" or "/a/b")."""
        self._hosts = ",".join(hosts)
        self._root = root
        self._session_timeout_ms = session_timeout_ms
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session_id = 0
        self._may_send = asyncio.Event()
        """Connected, or closed: in both cases there is nothing to wait for."""
        self._needs_sync = False
        self._watches = WatchTable()
        self._listeners = SessionListeners()

    @property
    def session_id(self) -> int:
        return self._session_id

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        retry = KazooRetry(max_tries=-1, delay=_RECONNECT_DELAY_S, max_delay=_RECONNECT_DELAY_MAX_S)
        self._client = KazooClient(
            self._hosts,
            timeout=self._session_timeout_ms / 1000,
            connection_retry=retry,
            logger=_kazoo_log,
        )
        self._client.add_listener(partial(self._state_from_thread, self._client))
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                self._client.start_async()
                await self._may_send.wait()
                if self._root:
                    await self._create_each([*ancestors_of(self._root), self._root])
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise unavailable("connect", f"no ZooKeeper answers at {self._hosts}") from None
            raise

    async def close(self) -> None:
        client, self._client = self._client, None
        self._may_send.set()
        await self._watches.close()
        if client is None:
            return
        # kazoo joins its threads, which takes as long as an attempt to connect that is under way.
        with ThreadPoolExecutor(1, thread_name_prefix="zookeeper-close") as thread:
            await asyncio.get_running_loop().run_in_executor(thread, _stop, client)

    # -- requests ----------------------------------------------------------------------------------

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        check_node(path, value)
        node = self._root + path
        while True:
            try:
                await self._write(
                    f"create {path}",
                    lambda client: client.create_async(node, value, ephemeral=ephemeral),
                )
                return
            except zk.NodeExistsError:
                raise exists(path) from None
            except zk.NoChildrenForEphemeralsError:
                raise below_ephemeral(path) from None
            except zk.NoNodeError:
                await self._create_each(ancestors_of(node))

    async def get(self, path: str) -> Versioned:
        check_path(path)
        node = self._root + path
        try:
            value, stat = await self._read(f"get {path}", lambda client: client.get_async(node))
        except zk.NoNodeError:
            raise not_found(path) from None
        return Versioned(value, stat.version, stat.ephemeralOwner)

    async def set(self, path: str, value: bytes, version: int) -> int:
        check_node(path, value)
        node = self._root + path
        try:
            stat = await self._write(
                f"set {path}", lambda client: client.set_async(node, value, version)
            )
        except zk.NoNodeError:
            raise not_found(path) from None
        except zk.BadVersionError:
            raise version_conflict(path, version) from None
        return int(stat.version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        check_path(path)
        node = self._root + path
        try:
            await self._write(f"delete {path}", lambda client: client.delete_async(node, version))
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
            names = await self._read(f"list {path}", lambda client: client.get_children_async(node))
        except zk.NoNodeError:
            raise not_found(path) from None
        return sorted(names)

    # -- watches and session -----------------------------------------------------------------------

    def watch_value(self, path: str, callback: Callable[[Versioned | None], None]) -> Watch:
        check_path(path)
        node = self._root + path

        async def read() -> Versioned | None:
            while True:
                try:
                    value, stat = await self._arm(lambda client: client.get_async(node, fired))
                    return Versioned(value, stat.version, stat.ephemeralOwner)
                except zk.NoNodeError:
                    if await self._arm(lambda client: client.exists_async(node, fired)) is None:
                        return None

        watch = self._watches.watch_value(path, read, callback)
        fired = self._notice_of(watch)
        return watch

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Watch:
        check_path(path)
        node = self._root + path

        async def read() -> list[str]:
            while True:
                try:
                    names = await self._arm(lambda client: client.get_children_async(node, fired))
                    return sorted(names)
                except zk.NoNodeError:
                    if await self._arm(lambda client: client.exists_async(node, fired)) is None:
                        return []

        watch = self._watches.watch_children(path, read, callback)
        fired = self._notice_of(watch)
        return watch

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._listeners.add(callback)

    def _notice_of(self, watch: RefreshingWatch[Any]) -> Callable[[object], None]:
        """What kazoo calls, on its thread. The same object for every read of a watch: kazoo keeps
        a set, so reading again does not register twice.
        """
        return lambda _event: self._post(watch.refresh)

    def _state_from_thread(self, client: Any, state: str) -> None:
        identity = client.client_id
        self._post(self._on_state, client, state, 0 if identity is None else identity[0])

    def _on_state(self, client: Any, state: str, session_id: int) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED and session_id:
            _log.info("connected to ZooKeeper, session %#x", session_id & (1 << 64) - 1)
            self._session_id = session_id
            self._may_send.set()
            self._listeners.notify(SessionState.CONNECTED)
            self._watches.refresh_all()
            return
        self._may_send.clear()
        self._needs_sync = True
        expired = state == KazooState.LOST
        _log.warning("ZooKeeper %s", "session expired" if expired else "connection lost")
        self._listeners.notify(SessionState.EXPIRED if expired else SessionState.SUSPENDED)

    # -- the way to kazoo and back -----------------------------------------------------------------

    async def _write(self, what: str, request: Request) -> Any:
        """Send once. Raises kazoo's refusals (``_DEFINITE``) and FencelogError."""
        sent = False
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                await self._may_send.wait()
                client = self._open_client(what)
                sent = True
                return await self._send(client, request)
        except _DEFINITE:
            raise
        except (zk.KazooException, TimeoutError) as error:
            if not sent:
                raise unavailable(what, f"no connection to {self._hosts}") from error
            self._needs_sync = True
            raise unknown(what, f"{type(error).__name__} at {self._hosts}") from error

    async def _read(self, what: str, request: Request) -> Any:
        """Send, again after every loss. Raises kazoo's refusals and METADATA_UNAVAILABLE."""
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                while True:
                    await self._may_send.wait()
                    client = self._open_client(what)
                    try:
                        await self._sync(client)
                        return await self._send(client, request)
                    except _LOST:
                        await asyncio.sleep(_RECONNECT_DELAY_S)
        except _DEFINITE:
            raise
        except (zk.KazooException, TimeoutError) as error:
            why = f"{type(error).__name__}, no connection to {self._hosts}"
            raise unavailable(what, why) from error

    async def _sync(self, client: Any) -> None:
        """Have the server catch up before the first read after a lost connection.

        Other reads need not wait for it: the requests of a session are carried out in order.
        """
        if self._needs_sync:
            self._needs_sync = False
            try:
                await self._send(client, lambda client: client.sync_async("/"))
            except BaseException:
                self._needs_sync = True
                raise

    async def _arm(self, request: Request) -> Any:
        """A read that leaves a watch; not repeated, since a connection refreshes all watches."""
        try:
            return await self._send(self._open_client("watch"), request)
        except _DEFINITE:
            raise
        except zk.KazooException as error:
            raise unavailable("watch", type(error).__name__) from error

    async def _create_each(self, nodes: Sequence[str]) -> None:
        """Create empty nodes that are missing. Others may do the same; sending twice is harmless,
        so an unknown outcome is tried again."""
        for node in nodes:
            while True:
                try:
                    await self._write(f"create {node}", partial(_create_empty, node))
                except zk.NodeExistsError:
                    break
                except zk.NoChildrenForEphemeralsError:
                    raise below_ephemeral(node) from None
                except FencelogError as error:
                    if error.code is not ErrorCode.METADATA_UNKNOWN:
                        raise
                else:
                    break

    def _open_client(self, what: str) -> Any:
        if self._client is None:
            raise unavailable(what, "the store is closed")
        return self._client

    async def _send(self, client: Any, request: Request) -> Any:
        """One request to kazoo; its result, or its exception."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request(client).rawlink(lambda result: self._post(_settle, future, result))
        return await future

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        """Call on the event loop, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(function, *args)


def _create_empty(node: str, client: Any) -> Any:
    return client.create_async(node, b"")


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.exception is None:
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _stop(client: Any) -> None:
    try:
        client.stop()
    finally:
        client.close()
