"""Replication workers, seen from outside: what they repair, and which writers they end
(invariant 39)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from fencelog.bookie.replication.locks import ReplicationLock
from fencelog.bookie.replication.worker import ReplicationWorker
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import SessionState, Version
from tests.sim.engine.process import Process
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.oracle.history import History

ENDED_S = 1.0
"""The time that a change may be on its way when its worker learns that its session has ended."""


class RepairWatch:
    """All workers of one history. ``open_grace_s``: the grace time of workers, while they alone
    recover ledgers; None: others do, too."""

    def __init__(self, history: History, cluster: Cluster) -> None:
        self._history = history
        self._cluster = cluster
        self._repairs: dict[int, dict[ObservedWorker, ReplicationLock]] = {}
        self.open_grace_s: float | None = None

    def began(self, worker: ObservedWorker, lock: ReplicationLock) -> None:
        """Check that no other worker repairs the ledger. One that has died does not, and one whose
        session has ended will notice."""
        self._history.counts["repairs"] += 1
        repairs = self._repairs.setdefault(lock.ledger_id, {})
        for other, held in repairs.items():
            if other.process.is_alive and self._cluster.has_session(held.session_id):
                self._history.violate(
                    39,
                    f"{worker.process.label} and {other.process.label} repair ledger "
                    f"{lock.ledger_id} at once",
                )
        repairs[worker] = lock

    def ended(self, worker: ObservedWorker, lock: ReplicationLock) -> None:
        del self._repairs[lock.ledger_id][worker]

    def changes(self, worker: ObservedWorker, ledger_id: int) -> None:
        """Check that a worker which is about to change metadata holds the lock, as far as it
        knows."""
        lock = self._repairs.get(ledger_id, {}).get(worker)
        ended_s = asyncio.get_running_loop().time() - worker.session_since_s
        if lock is not None and lock.session_id != worker.session_id and ended_s > ENDED_S:
            self._history.violate(
                39,
                f"{worker.process.label} changes ledger {ledger_id}, whose lock it lost "
                f"{ended_s:.1f} s ago",
            )

    def metadata_changed(self, before: LedgerMetadata | None, now: LedgerMetadata | None) -> None:
        """Check that the writer of an open ledger is ended after the grace time alone, and where
        there is another bookie."""
        if self.open_grace_s is None or before is None or now is None:
            return
        if (before.state, now.state) != (LedgerState.OPEN, LedgerState.IN_RECOVERY):
            return
        self._history.counts["writers ended by workers"] += 1
        what = f"the writer of ledger {now.ledger_id} is ended,"
        marked_s = self._history.marked_since.get(now.ledger_id)
        if marked_s is None:
            self._history.violate(39, f"{what} which is not marked")
            return
        for_s = asyncio.get_running_loop().time() - marked_s
        if for_s < self.open_grace_s:
            self._history.violate(39, f"{what} which has been marked for {for_s:.1f} s")
        if not self._cluster.bookies.keys() - set(now.last_fragment.bookies):
            self._history.violate(39, f"{what} and there is no bookie to copy to")


class ObservedWorker(ReplicationWorker):
    """A worker whose repairs are noted."""

    def __init__(self, session: Session, watch: RepairWatch, **settings: Any) -> None:
        super().__init__(session.store, session.directory, **settings)
        self.process: Process = session.process
        self.watch = watch
        self.session_since_s = 0.0
        self._tools = replace(self._tools, ledgers=_ObservedLedgers(session, self))
        session.store.on_session(self._on_session)

    @property
    def session_id(self) -> int:
        return self._store.session_id

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.session_since_s = self._loop.time()

    async def _repair(self, ledger_id: int, lock: ReplicationLock) -> None:
        self.watch.began(self, lock)
        try:
            await super()._repair(ledger_id, lock)
        finally:
            self.watch.ended(self, lock)


class _ObservedLedgers(LedgerStore):
    def __init__(self, session: Session, worker: ObservedWorker) -> None:
        super().__init__(session.store)
        self._worker = worker

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version:
        self._worker.watch.changes(self._worker, metadata.ledger_id)
        return await super().update(metadata, version)
