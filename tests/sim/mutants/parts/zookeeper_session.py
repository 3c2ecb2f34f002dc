"""Wrong sessions and connections at ZooKeeper: which answer is whose, and what a loss means."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CONNECTION = "fencelog.ledgers.metastore.zookeeper_connection"
SESSION = "fencelog.ledgers.metastore.zookeeper_session"
WIRE = "fencelog.ledgers.metastore.zookeeper_wire"

_STORE = "PROTOCOL.md: the metadata store"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "lost-write-is-a-refusal",
        _STORE,
        "A write whose answer was lost is reported as one that was not sent.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession.write",
                "                is_sent = True\n",
                "",
            ),
        ),
    ),
    Mutant(
        "unsent-write-is-unknown",
        _STORE,
        "A write that waited for a connection in vain is reported as one that may have been made.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession.write",
                "        is_sent = False\n",
                "        is_sent = True\n",
            ),
        ),
    ),
    Mutant(
        "sent-again-by-itself",
        _STORE,
        "A write whose connection was lost is sent on the next one.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession.write",
                "                return await connection.send(request)",
                "                try:\n"
                "                    return await connection.send(request)\n"
                "                except ConnectionLost:\n"
                "                    return await (await self._connected(what)).send(request)",
            ),
        ),
    ),
    Mutant(
        "read-back-at-a-server-that-lags",
        _STORE,
        "The first read after a lost connection does not have its server catch up.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession._use",
                "        self._losses += 1\n",
                "",
            ),
            Edit(
                SESSION,
                "ZooKeeperSession.write",
                "            self._losses += 1\n",
                "",
            ),
        ),
    ),
    Mutant(
        "read-back-without-a-sync",
        _STORE,
        "The read after a write that its server could not decide does not have it catch up.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession.write",
                "            self._losses += 1\n",
                "",
            ),
        ),
    ),
    Mutant(
        "sync-that-failed-is-enough",
        _STORE,
        "A read is not preceded by a sync after one that failed.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession._sync",
                '            await connection.send(sync("/"))\n'
                "            self._synced_losses = max(self._synced_losses, losses)\n",
                "            self._synced_losses = losses\n"
                '            await connection.send(sync("/"))\n',
            ),
        ),
    ),
    Mutant(
        "read-behind-a-sync-that-fails",
        _STORE,
        "A read leaves the sync to another one that is in flight, and fails.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession._sync",
                '            await connection.send(sync("/"))\n',
                "            self._synced_losses = losses\n"
                "            try:\n"
                '                await connection.send(sync("/"))\n'
                "            except BaseException:\n"
                "                self._synced_losses = losses - 1\n"
                "                raise\n",
            ),
        ),
    ),
    Mutant(
        "reads-go-back",
        _STORE,
        "The next server is not told which changes the session has seen.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession._use",
                "self._connection, self._last_zxid = None, connection.last_zxid",
                "self._connection = None",
            ),
        ),
    ),
    Mutant(
        "ended-session-tried-for-ever",
        _STORE,
        "A session that the server has ended is tried again.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession._connect",
                "                self._identity = SessionIdentity()\n",
                "                return None\n",
            ),
        ),
    ),
    Mutant(
        "nobody-hears-of-the-end",
        _STORE,
        "A session begins in place of one that has ended, and nobody is told.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession._connect",
                "                self._on_state(SessionState.EXPIRED)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "new-session-for-every-connection",
        _STORE,
        "A connection that is lost is followed by one of a new session.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession._use",
                "self._connection, self._identity = connection, connection.identity\n"
                "        self.session_id = self._identity.session_id",
                "self._connection = connection\n"
                "        self.session_id = connection.identity.session_id",
            ),
        ),
    ),
    Mutant(
        "read-given-up-at-a-loss",
        _STORE,
        "A read whose connection is lost is not repeated.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession.read",
                "except (ServerError, TimeoutError) as error:",
                "except (ServerError, ConnectionLost, TimeoutError) as error:",
            ),
            Edit(
                SESSION,
                "ZooKeeperSession.read",
                "                        await asyncio.sleep(_RECONNECT_DELAY_S)\n",
                "                        raise\n",
            ),
        ),
    ),
    Mutant(
        "watch-that-was-not-set",
        _STORE,
        "A watch that the server has refused to set is set no more while the connection lives.",
        (
            Edit(
                SESSION,
                "ZooKeeperSession.arm",
                "                await asyncio.sleep(_WATCH_RETRY_S)\n",
                '                raise unavailable("watch", str(error)) from error\n',
            ),
        ),
    ),
    Mutant(
        "answer-of-another-metadata-request",
        _STORE,
        "An answer is given to the oldest request, whichever it is for.",
        (
            Edit(
                CONNECTION,
                "ZooKeeperConnection._take",
                "if not self._in_flight or self._in_flight[0][0] != xid:",
                "if not self._in_flight:",
            ),
        ),
    ),
    Mutant(
        "seen-change-forgotten",
        _STORE,
        "An answer with an older change takes back which one the session has seen.",
        (
            Edit(
                CONNECTION,
                "ZooKeeperConnection._take",
                "self.last_zxid = max(self.last_zxid, zxid)",
                "self.last_zxid = zxid",
            ),
        ),
    ),
    Mutant(
        "stranger-until-all-users-are-there",
        _STORE,
        "A connection is open when the first of its users is authenticated.",
        (
            Edit(
                CONNECTION,
                "ZooKeeperConnection._authenticate_with",
                "if self._unanswered_users == 0:",
                "if self._unanswered_users < len(self._users):",
            ),
        ),
    ),
    Mutant(
        "refused-user-is-authenticated",
        _STORE,
        "The refusal of a user counts as the answer that takes it.",
        (
            Edit(
                CONNECTION,
                "ZooKeeperConnection._authenticate_with",
                "        if error:\n",
                "        if error and not self._users:\n",
            ),
        ),
    ),
    Mutant(
        "sent-without-its-version",
        _STORE,
        "A change goes out for any version of the node.",
        (
            Edit(
                WIRE,
                "set_data",
                "_INT.pack(version)",
                "_INT.pack(_ANY_VERSION)",
            ),
        ),
    ),
    Mutant(
        "unknown-error-is-a-refusal",
        _STORE,
        "An error that does not say whether a write was made counts as one that says no.",
        (
            Edit(
                WIRE,
                "error_of",
                "return ServerError(code) if refusal is None else refusal()",
                "return Refusal(code) if refusal is None else refusal()",
            ),
        ),
    ),
    Mutant(
        "rolled-back-is-done",
        _STORE,
        "An operation of a transaction that was rolled back counts as done.",
        (
            Edit(
                WIRE,
                "_decode_results",
                "RolledBackError() if code == _ROLLED_BACK else error_of(code)",
                "None if code == _ROLLED_BACK else error_of(code)",
            ),
        ),
    ),
)
