"""One ZooKeeper session on the event loop. The client library is kazoo.

kazoo runs its own threads; every result and notification crosses to the event loop through
``call_soon_threadsafe`` and nothing here ever blocks the loop.

This module decides what a lost connection means. A request that was not passed to kazoo has not
happened (METADATA_UNAVAILABLE); a write that was passed and got no answer may have
(METADATA_UNKNOWN), and is never sent again. kazoo sends the requests of a session in order and
drops the unanswered ones with the connection, so reading back afterwards shows the outcome; that
read is preceded by a ``sync``, since the next server may lag behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from fencelog.ledgers.limits import METADATA_TIMEOUT_MS
from fencelog.ledgers.metastore.paths import unavailable, unknown
from fencelog.ledgers.metastore.port import SessionState

SESSION_TIMEOUT_MS = 6_000
"""The time by which a session, and its ephemeral nodes, outlive their process. A shorter time
detects dead owners sooner; with too short a time a pause of a busy machine looks like death."""

START_TIMEOUT_MS = 6_000
"""The time for the first connection; an operator who starts a process should see a failure within
10 s."""

_RECONNECT_DELAY_S = 0.1
_RECONNECT_DELAY_MAX_S = 1.0

_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("fencelog.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # it logs every attempt; states are logged here, once

REFUSALS = (
    zk.BadVersionError,
    zk.NoChildrenForEphemeralsError,
    zk.NoNodeError,
    zk.NodeExistsError,
    zk.NotEmptyError,
)
"""Answers of the server that say that nothing happened."""

_LOST = (zk.ConnectionLoss, zk.SessionExpiredError)

Request = Callable[[Any], Any]
"""A function that passes a request to a kazoo client; returns kazoo's asynchronous result."""


class ZooKeeperSession:
    """A session, and the next one when it expires. ``on_state`` is called on the event loop.

    While the connection is lost, requests wait for it up to METADATA_TIMEOUT_MS.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        timeout_ms: int,
        on_state: Callable[[SessionState], None],
    ) -> None:
        self._hosts = ",".join(hosts)
        self._timeout_ms = timeout_ms
        self._on_state = on_state
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._may_send = asyncio.Event()
        """The event of being connected, or closed: in both cases there is nothing to wait for."""
        self._needs_sync = False
        self.session_id = 0

    async def start(self) -> None:
        """Connect. Raises FencelogError(METADATA_UNAVAILABLE) naming the hosts."""
        self._loop = asyncio.get_running_loop()
        client = KazooClient(
            self._hosts,
            timeout=self._timeout_ms / 1000,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RECONNECT_DELAY_S, max_delay=_RECONNECT_DELAY_MAX_S
            ),
            logger=_kazoo_log,
        )
        client.add_listener(lambda state: self._state_from_thread(client, state))
        self._client = client
        try:
            async with asyncio.timeout(START_TIMEOUT_MS / 1000):
                client.start_async()
                await self._may_send.wait()
        except TimeoutError:
            await self.close()
            raise unavailable("connect", f"no ZooKeeper answers at {self._hosts}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session; its ephemeral nodes are deleted at once if the server can be reached."""
        client, self._client = self._client, None
        self._may_send.set()
        if client is None:
            return
        # kazoo joins its threads, which takes as long as a connection attempt in progress.
        with ThreadPoolExecutor(1, thread_name_prefix="zookeeper-close") as thread:
            await asyncio.get_running_loop().run_in_executor(thread, _stop, client)

    async def write(self, what: str, request: Request) -> Any:
        """Send once. Raises kazoo's refusals (``REFUSALS``) and FencelogError."""
        sent = False
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                await self._may_send.wait()
                client = self._open_client(what)
                sent = True
                return await self._send(client, request)
        except REFUSALS:
            raise
        except (zk.KazooException, TimeoutError) as error:
            if not sent:
                raise unavailable(what, f"no connection to {self._hosts}") from error
            self._needs_sync = True
            raise unknown(what, f"{type(error).__name__} at {self._hosts}") from error

    async def read(self, what: str, request: Request) -> Any:
        """Send, and repeat after every loss. Raises kazoo's refusals and METADATA_UNAVAILABLE."""
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
        except REFUSALS:
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

    async def arm(self, request: Request) -> Any:
        """Send a read that leaves a watch; it is not repeated, since a connection refreshes all
        watches."""
        try:
            return await self._send(self._open_client("watch"), request)
        except REFUSALS:
            raise
        except zk.KazooException as error:
            raise unavailable("watch", type(error).__name__) from error

    def notice(self, function: Callable[[], None]) -> Callable[[object], None]:
        """Return a watcher for kazoo, which calls it on a thread of its own; ``function`` is called
        on the event loop. To be made once per watch: kazoo keeps watchers in a set."""
        return lambda _event: self._post(function)

    def _open_client(self, what: str) -> Any:
        if self._client is None:
            raise unavailable(what, "the store is closed")
        return self._client

    async def _send(self, client: Any, request: Request) -> Any:
        """Send one request to kazoo; return its result, or raise its exception."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request(client).rawlink(lambda result: self._post(_settle, future, result))
        return await future

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        """Call on the event loop, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
                self._loop.call_soon_threadsafe(function, *args)

    def _state_from_thread(self, client: Any, state: str) -> None:
        identity = client.client_id
        self._post(self._state_changed, client, state, 0 if identity is None else identity[0])

    def _state_changed(self, client: Any, state: str, session_id: int) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED and session_id:
            _log.info("connected to ZooKeeper, session %#x", session_id & (1 << 64) - 1)
            self.session_id = session_id
            self._may_send.set()
            self._on_state(SessionState.CONNECTED)
            return
        self._may_send.clear()
        self._needs_sync = True
        expired = state == KazooState.LOST
        _log.warning("ZooKeeper %s", "session expired" if expired else "connection lost")
        self._on_state(SessionState.EXPIRED if expired else SessionState.SUSPENDED)


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
