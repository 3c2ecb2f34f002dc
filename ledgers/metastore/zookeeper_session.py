"""One ZooKeeper session, and the next one when it expires, over one connection at a time.

This module decides what a lost connection means. A request that was not passed to a connection has
not happened (METADATA_UNAVAILABLE); a write that was passed and got no answer may have
(METADATA_UNKNOWN), and is never sent again. A connection sends the requests of a session in order
and drops the unanswered ones when it ends, so reading back afterwards shows the outcome; that read
is preceded by a ``sync``, since the next server may lag behind.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fencelog.ledgers.errors import FencelogError, copy_of
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import METADATA_TIMEOUT_MS
from fencelog.ledgers.metastore.paths import unauthorized, unavailable, unknown
from fencelog.ledgers.metastore.port import SessionState
from fencelog.ledgers.metastore.zookeeper_connection import (
    AuthenticationRefused,
    ConnectionLost,
    SessionExpired,
    ZooKeeperConnection,
)
from fencelog.ledgers.metastore.zookeeper_credentials import NOBODY, ZooKeeperCredentials
from fencelog.ledgers.metastore.zookeeper_names import ServerNames
from fencelog.ledgers.metastore.zookeeper_tls import (
    Certificate,
    certificate_of_server,
    why_lost,
    why_not_trusted,
)
from fencelog.ledgers.metastore.zookeeper_wire import (
    CLOSE,
    NoAuthError,
    Refusal,
    Request,
    ServerError,
    SessionIdentity,
    sync,
)

SESSION_TIMEOUT_MS = 6_000
"""The time by which a session, and its ephemeral nodes, outlive their process. A shorter time
detects dead owners sooner; with too short a time a pause of a busy machine looks like death."""

START_TIMEOUT_MS = 6_000
"""The time for the first connection; an operator who starts a process should see a failure within
10 s. Also the time in which all servers are tried once, however long the session lives."""

CLOSE_TIMEOUT_MS = 2_000
"""The time for the end of a session at the server; without it the session ends by its timeout."""

FIRST_ATTEMPTS = 6
"""The attempts to connect that the time of all servers allows at first; where it did not suffice
for the answers of a server the next round of attempts has twice as much. A name of all servers,
such as a Service of Kubernetes, may lead to one that is dead: a third of the session is left when a
silent server is given up, and has to suffice for the next attempt."""

_RECONNECT_DELAY_S = 0.1
_RECONNECT_DELAY_MAX_S = 1.0
_WATCH_RETRY_S = 1.0

_log = logging.getLogger(__name__)


class ZooKeeperSession:
    """A session, and the next one when it expires. ``on_state`` is called with every change of its
    state, ``on_event`` with the path of a node that was watched and has changed.

    While the connection is lost, requests wait for it up to METADATA_TIMEOUT_MS.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        host: Host,
        timeout_ms: int,
        on_state: Callable[[SessionState], None],
        on_event: Callable[[str], None],
        credentials: ZooKeeperCredentials = NOBODY,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # In an order of its own, so that clients spread over the servers.
        self._hosts = host.shuffled(hosts)
        self._names = ServerNames()
        self._host = host
        self._timeout_ms = timeout_ms
        self._on_state = on_state
        self._on_event = on_event
        self._credentials = credentials
        self._tls = tls
        self._is_slow = False
        """True if an attempt of this round took all of its time."""
        self._silences = Counter[str]()
        """The attempts of these rounds that took all of their time, by the address that they began
        with. One that takes connections and says nothing may always be the first of a name."""
        self._last_failure = ""
        """The reason why the last attempt to connect failed."""
        self._identity = SessionIdentity()
        self.session_id = 0
        """Name of the newest session, also while it is not known whether it lives."""
        self.server_certificate: Certificate | None = None
        """The certificate of the server that was connected last; None without TLS."""
        self._last_zxid = 0
        self._connection: ZooKeeperConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._may_send = asyncio.Event()
        """The event of being connected, refused, or closed: then there is nothing to wait for."""
        self._refused: FencelogError | None = None
        """The reason why no server in the last round of attempts took the credentials and showed a
        certificate to trust: waiting does not help."""
        self._refusals: list[FencelogError] = []
        """The reasons of the servers in this round."""
        self._is_closed = False
        self._losses = self._synced_losses = 0
        """The answers and connections that were lost, in all and before the last sync."""

    async def start(self) -> None:
        """Connect. Raises FencelogError: METADATA_UNAVAILABLE naming the hosts, and why they cannot
        be reached or trusted, METADATA_UNAUTHORIZED naming the file of the credentials."""
        self._connecting = asyncio.get_running_loop().create_task(self._keep_connected())
        try:
            async with asyncio.timeout(START_TIMEOUT_MS / 1000):
                await self._connected("connect")
        except TimeoutError:
            await self.close()
            why = f"no ZooKeeper answers at {','.join(self._hosts)}"
            because = f" ({self._last_failure})" if self._last_failure else ""
            raise unavailable("connect", why + because) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session; its ephemeral nodes are deleted at once if the server can be reached."""
        self._is_closed = True
        self._may_send.set()
        connecting, self._connecting = self._connecting, None
        if connecting is None:
            return
        connecting.cancel()
        await asyncio.wait((connecting,))
        await self._names.close()
        connection = self._connection
        if connection is not None:
            if connection.is_open:
                with suppress(ConnectionLost, ServerError, TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                        await connection.send(CLOSE)
            connection.abort()
            await asyncio.wait((connection.ended,))

    async def write(self, what: str, request: Request) -> Any:
        """Send once. Raises ``Refusal`` and FencelogError."""
        is_sent = False
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                connection = await self._connected(what)
                is_sent = True
                return await connection.send(request)
        except NoAuthError:
            raise self.no_access(what) from None
        except Refusal:
            raise
        except (ServerError, ConnectionLost, TimeoutError) as error:
            if not is_sent:
                raise unavailable(what, f"no connection to {','.join(self._hosts)}") from error
            self._losses += 1
            why = f"{type(error).__name__} at {','.join(self._hosts)}"
            raise unknown(what, why) from error

    async def read(self, what: str, request: Request) -> Any:
        """Send, and repeat after every loss. Raises ``Refusal`` and METADATA_UNAVAILABLE."""
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                while True:
                    connection = await self._connected(what)
                    try:
                        await self._sync(connection)
                        return await connection.send(request)
                    except ConnectionLost:
                        await asyncio.sleep(_RECONNECT_DELAY_S)
        except NoAuthError:
            raise self.no_access(what) from None
        except Refusal:
            raise
        except (ServerError, TimeoutError) as error:
            why = f"{type(error).__name__}, no connection to {','.join(self._hosts)}"
            raise unavailable(what, why) from error

    async def arm(self, request: Request) -> Any:
        """Send a read that leaves a watch; it is not repeated after a loss, since the next
        connection refreshes all watches. Raises ``Refusal`` and METADATA_UNAVAILABLE."""
        while True:
            connection = self._connection
            if connection is None or not connection.is_open:
                raise unavailable("watch", "not connected")
            try:
                return await connection.send(request)
            except NoAuthError:
                raise self.no_access("watch") from None
            except Refusal:
                raise
            except ConnectionLost as error:
                raise unavailable("watch", type(error).__name__) from error
            except ServerError as error:
                # There is no watch, and the connection stays: nobody else would ask again.
                _log.info("ZooKeeper: a watch could not be set: %s", error)
                await asyncio.sleep(_WATCH_RETRY_S)

    def no_access(self, what: str) -> FencelogError:
        """Return, and log, the error of a request that a node's access list refuses."""
        why = f"refused with NoAuth: {self._credentials.why_refused}"
        _log.info("ZooKeeper: %s: %s", what, why)
        return unauthorized(what, why)

    async def _sync(self, connection: ZooKeeperConnection) -> None:
        """Have the server catch up before the first read after a lost connection.

        Until one sync is answered every read has its own: a read that follows one which fails may
        be stale.
        """
        losses = self._losses
        if losses > self._synced_losses:
            await connection.send(sync("/"))
            self._synced_losses = max(self._synced_losses, losses)

    async def _connected(self, what: str) -> ZooKeeperConnection:
        """Wait for a connection; nothing else may happen between its return and the request."""
        while True:
            await self._may_send.wait()
            if self._is_closed:
                raise unavailable(what, "the store is closed")
            connection = self._connection
            if connection is not None and connection.is_open:
                return connection
            if self._refused is not None:
                raise copy_of(self._refused)
            self._may_send.clear()  # it has ended in this turn of the loop

    # -- connections -----------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        delay_s = _RECONNECT_DELAY_S
        all_s = min(self._timeout_ms, START_TIMEOUT_MS) / 1000
        first_s, most_s = all_s / FIRST_ATTEMPTS, all_s / len(self._hosts)
        attempt_s = min(first_s, most_s)
        while True:
            is_used = self._is_slow = False
            self._refusals.clear()
            for host in self._hosts:
                connection = await self._connect(host, attempt_s)
                if connection is not None:
                    shown = connection.shown_certificate
                    self.server_certificate = certificate_of_server(host, shown)
                    delay_s, is_used = _RECONNECT_DELAY_S, True
                    await self._use(connection)
            if is_used:
                attempt_s = min(first_s, most_s)
            elif self._is_slow:
                attempt_s = min(2 * attempt_s, most_s)
            if self._refusals and not is_used:
                self._refused = self._refusals[-1]
                self._may_send.set()
            else:
                self._refused = None
            # Not all clients at once.
            await asyncio.sleep(delay_s * (1 + self._host.fraction()) / 2)
            delay_s = min(2 * delay_s, _RECONNECT_DELAY_MAX_S)

    async def _connect(self, address: str, timeout_s: float) -> ZooKeeperConnection | None:
        """Try one server, twice if it says that the session has expired."""
        host, _, port = address.rpartition(":")
        name = host.strip("[]")
        while True:
            found: Sequence[str] = ()
            try:
                async with asyncio.timeout(timeout_s):
                    found = await self._names.addresses(name)
                    found = sorted(found, key=self._silences.__getitem__)
                    return await ZooKeeperConnection.open(
                        found,
                        int(port),
                        self._identity,
                        timeout_ms=self._timeout_ms,
                        last_zxid=self._last_zxid,
                        on_event=self._on_event,
                        users=self._credentials.users,
                        tls=self._tls,
                        name=name,
                    )
            except SessionExpired:
                if not self._identity.session_id:
                    self._last_failure = f"{address}: it opens no session"
                    return None
                _log.warning("ZooKeeper session expired")
                self._identity = SessionIdentity()
                self._on_state(SessionState.EXPIRED)
            except AuthenticationRefused as error:
                why = f"ZooKeeper at {address} does not take {self._credentials.name}: {error}"
                _log.error("%s", why)
                self._refusals.append(unauthorized("connect", why))
                return None
            except ssl.SSLCertVerificationError as error:
                why = f"ZooKeeper at {address}: {why_not_trusted(error)}"
                _log.error("%s", why)
                self._refusals.append(unavailable("connect", why))
                return None
            except (OSError, ValueError, ConnectionLost, TimeoutError) as error:
                # ValueError: no resolver takes such a name.
                is_silent = isinstance(error, TimeoutError)
                if is_silent:
                    self._is_slow = True
                    self._silences.update(found[:1])
                why = f"{address}: {why_lost(error, is_tls=self._tls is not None)}"
                if not (is_silent and self._last_failure):  # an answer says more than none
                    self._last_failure = why
                _log.debug("no connection to ZooKeeper at %s", why)
                return None

    async def _use(self, connection: ZooKeeperConnection) -> None:
        """Return when the connection has ended."""
        self._connection, self._identity = connection, connection.identity
        self.session_id = self._identity.session_id
        _log.info("connected to ZooKeeper, session %#x", self.session_id & (1 << 64) - 1)
        self._refused = None
        self._silences.clear()
        self._may_send.set()
        self._on_state(SessionState.CONNECTED)
        await asyncio.wait((connection.ended,))
        self._connection, self._last_zxid = None, connection.last_zxid
        self._may_send.clear()
        self._losses += 1
        _log.warning("ZooKeeper connection lost")
        self._on_state(SessionState.SUSPENDED)
