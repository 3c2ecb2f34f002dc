"""The locks of replication workers: one ephemeral node for each ledger that is being repaired.

A lock keeps two workers from copying the same entries; nothing else depends on it. A worker that
was suspended may believe that it holds a lock long after its session has expired, so every change
of metadata is a compare-and-set of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import UNDERREPLICATION_PATH
from fencelog.ledgers.metastore.instance import check_session
from fencelog.ledgers.metastore.port import MetadataStore, Version
from fencelog.ledgers.metastore.until_known import until_known

LOCKS_PATH = f"{UNDERREPLICATION_PATH}/locks"


@dataclass(frozen=True, slots=True)
class ReplicationLock:
    """A lock that this process acquired in this session."""

    ledger_id: int
    version: Version
    session_id: int


class ReplicationLocks:
    """The locks of one worker. ``worker_id``: who holds them, for a person to read. ``token``: a
    random value by which the worker recognises a lock whose acquisition or release was not
    answered; one session may serve several workers."""

    def __init__(self, store: MetadataStore, *, worker_id: str, token: str) -> None:
        self._store = store
        self._value = f"{worker_id} {token}".encode()
        self._held: set[int] = set()

    async def acquire(self, ledger_id: int) -> ReplicationLock | None:
        """Lock a ledger; None: it is locked already, by another worker or by this one. Raises
        FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN (the end of the session gives up what
        may be locked)."""
        if ledger_id in self._held:
            return None
        self._held.add(ledger_id)
        lock: ReplicationLock | None = None
        try:
            lock = await until_known(lambda: self._create(ledger_id))
        finally:
            if lock is None:
                self._held.discard(ledger_id)
        return lock

    def check(self, lock: ReplicationLock) -> None:
        """Check that the session in which the lock was acquired has not ended, as far as this
        process knows. Raises METADATA_UNAVAILABLE."""
        check_session(self._store, lock.session_id, f"hold the lock of ledger {lock.ledger_id}")

    async def release(self, lock: ReplicationLock) -> None:
        """Release a lock; one that is gone is no error. Raises FencelogError:
        METADATA_UNAVAILABLE, METADATA_UNKNOWN; the worker may acquire the lock again even so."""
        self._held.discard(lock.ledger_id)
        gone = (ErrorCode.METADATA_NOT_FOUND, ErrorCode.METADATA_CONFLICT)

        async def delete() -> None:
            try:
                await self._store.delete(_path(lock.ledger_id), lock.version)
            except FencelogError as error:
                if error.code not in gone:
                    raise

        await until_known(delete)

    async def _create(self, ledger_id: int) -> ReplicationLock | None:
        session_id = self._store.session_id
        try:
            version = await self._store.create(_path(ledger_id), self._value, ephemeral=True)
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_EXISTS:
                raise
            return await self._own(ledger_id, session_id)
        return self._checked(ReplicationLock(ledger_id, version, session_id))

    async def _own(self, ledger_id: int, session_id: int) -> ReplicationLock | None:
        """Return the lock that exists if it is our own: its acquisition or its release was not
        answered."""
        try:
            node = await self._store.get(_path(ledger_id))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise
        if (node.ephemeral_owner, node.value) != (session_id, self._value):
            return None
        return self._checked(ReplicationLock(ledger_id, node.version, session_id))

    def _checked(self, lock: ReplicationLock) -> ReplicationLock:
        """Return the lock, of which it is certain in which session it was acquired."""
        self.check(lock)
        return lock


def _path(ledger_id: int) -> str:
    return f"{LOCKS_PATH}/{ledger_id:x}"
