"""Composition root of self-healing: a replication worker, and a candidate for auditor.

Any number of processes may run it, alone or inside bookies: they share the marked ledgers, and one
of them is the auditor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencelog.api.processes.lifecycle import Running
from fencelog.bookie.auditor.auditor import Auditor, AuditorConfig
from fencelog.bookie.auditor.election import Election
from fencelog.bookie.balance.balancer import BookieBalancer
from fencelog.bookie.maintenance.maintenance import running
from fencelog.bookie.recent.check import RecentCheck, RecentCheckConfig
from fencelog.bookie.replication.statuses import STATUSES_PATH, encode_status
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.bookie.replication.worker import ReplicationWorker
from fencelog.broker.names import check_name
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host, SystemHost
from fencelog.ledgers.limits import (
    COPY_BYTES_PER_S,
    LEDGERS_AT_ONCE,
    OPEN_LEDGER_GRACE_MS,
    REPLICATION_CHECK_MS,
)
from fencelog.ledgers.metastore.instance import require_instance
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.registration import Registration
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import EmbeddedBookie, RegisteredBookies
from fencelog.ledgers.rpc.secret_file import secret_from

STATUS_MS = 5_000
"""The pause between two looks at the state of a process: a person waits no longer for progress,
and a hundred processes write twenty small nodes a second. What has not changed is not written."""

_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class AutorecoveryConfig:
    """The settings of self-healing in one process. ``copy_bytes_per_s`` and the grace time of lost
    bookies may be changed for the whole cluster while it runs. ``ledgers_at_once``: of the worker;
    ``check_ms``: the interval at which it lists marked ledgers; ``open_ledger_grace_ms``: without
    any sign of a writer before its ledger is recovered."""

    auditor: AuditorConfig = field(default_factory=AuditorConfig)
    recent_check: RecentCheckConfig = field(default_factory=RecentCheckConfig)
    copy_bytes_per_s: int = COPY_BYTES_PER_S
    ledgers_at_once: int = LEDGERS_AT_ONCE
    check_ms: int = REPLICATION_CHECK_MS
    open_ledger_grace_ms: int = OPEN_LEDGER_GRACE_MS


@dataclass(frozen=True, slots=True)
class AutorecoveryProcessConfig:
    """The configuration of a process of its own. ``metadata``: URL of the store; ``process_id``:
    None draws one; ``secret_file``: the secret that bookies ask for (None: none)."""

    metadata: str
    process_id: str | None = None
    secret_file: Path | None = None
    settings: AutorecoveryConfig = field(default_factory=AutorecoveryConfig)


@contextlib.asynccontextmanager
async def autorecovery_process(config: AutorecoveryProcessConfig) -> AsyncIterator[Running]:
    """Run self-healing over a shared metadata store and registered bookies.

    Raises FencelogError: METADATA_UNAVAILABLE within METADATA_TIMEOUT_MS, METADATA_NOT_FOUND (a
    store that belongs to no cluster), BAD_REQUEST (secret), INVALID_NAME.
    """
    host = SystemHost()
    secret = secret_from(config.secret_file, host=host)
    async with contextlib.AsyncExitStack() as stack:
        store = open_metadata_store(config.metadata, host=host)
        await store.start()
        stack.push_async_callback(store.close)
        await require_instance(store, config.metadata)
        process_id = config.process_id or f"autorecovery-{host.random_bytes(_ID_BYTES).hex()}"
        healing = serving_autorecovery(
            store, {}, process_id=process_id, host=host, secret=secret, settings=config.settings
        )
        await stack.enter_async_context(healing)
        yield Running({"role": "autorecovery", "id": process_id})


@contextlib.asynccontextmanager
async def serving_autorecovery(
    store: MetadataStore,
    local: Mapping[str, EmbeddedBookie],
    *,
    process_id: str,
    host: Host,
    secret: SharedSecret | None = None,
    settings: AutorecoveryConfig | None = None,
) -> AsyncIterator[None]:
    """Run a replication worker and a candidate for auditor, and publish their state. ``local``:
    bookies in this process; ``secret``: of the others.

    What fails is reported and begun again. Leaving gives the auditor's office and all locks up.
    Raises FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN, INVALID_NAME.
    """

    def connect(address: str, bookie_id: str) -> TcpBookieClient:
        return TcpBookieClient(bookie_id, address, credentials=secret)

    check_name("process", process_id)
    settings = settings or AutorecoveryConfig()
    async with contextlib.AsyncExitStack() as stack:
        bookies = RegisteredBookies(store, local=local, connect=connect)
        await bookies.start()
        stack.push_async_callback(bookies.close)
        healing = _Healing(store, bookies, process_id, host, settings)
        path = f"{STATUSES_PATH}/{process_id}"
        registration = await Registration.start(store, path, encode_status(await healing.status()))
        stack.push_async_callback(registration.close)

        async def publish() -> None:
            while True:
                await asyncio.sleep(STATUS_MS / 1000)
                registration.update(encode_status(await healing.status()))

        async def audit() -> None:
            registration.update(encode_status(await healing.status()))  # it is the auditor now
            await healing.audit()

        services = {
            "replication worker": healing.worker.run,
            "auditor": lambda: healing.election.run(audit),
            "status": publish,
        }
        await stack.enter_async_context(running(process_id, services))
        yield


class _Healing:
    """The parts of one process, and their state."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: RegisteredBookies,
        process_id: str,
        host: Host,
        settings: AutorecoveryConfig,
    ) -> None:
        self._store = store
        self._process_id = process_id
        self._host = host
        self._started_us = host.now_us()
        self._marks = UnderReplicatedLedgers(store)
        self.worker = ReplicationWorker(
            store,
            bookies,
            worker_id=process_id,
            host=host,
            copy_bytes_per_s=settings.copy_bytes_per_s,
            ledgers_at_once=settings.ledgers_at_once,
            check_ms=settings.check_ms,
            open_ledger_grace_ms=settings.open_ledger_grace_ms,
        )
        self.auditor = Auditor(store, bookies, host=host, config=settings.auditor)
        self._recent = RecentCheck(store, bookies, host=host, config=settings.recent_check)
        self._balancer = BookieBalancer(store, host=host)
        self.election = Election(store, process_id, host=host)

    async def audit(self) -> None:
        """Do the work of the auditor until cancelled. A bug in the recent check or the balancer
        ends no audit: another auditor would meet it as well, and count absences anew."""
        beside = {"recent check": self._recent.run, "balancer": self._balancer.run}
        async with running(self._process_id, beside):
            await self.auditor.run()

    async def status(self) -> dict[str, Any]:
        """Return the state as JSON-compatible values; that of the auditor and the whole cluster
        only where this process is the auditor."""
        status = {
            "process_id": self._process_id,
            "started_us": self._started_us,
            "updated_us": self._host.now_us(),
            "is_auditor": self.election.is_leader,
            "worker": self.worker.status(),
        }
        if self.election.is_leader:
            status["auditor"] = self.auditor.status()
            status["recent_check"] = self._recent.status()
            status["balance"] = self._balancer.status()
            with contextlib.suppress(FencelogError):  # the store is away: the node stays as it is
                status["cluster"] = await self._cluster()
        return status

    async def _cluster(self) -> dict[str, Any]:
        """Return the number of ledgers that lack copies, and since when the oldest one is marked;
        and the number of those that are only to be moved. A mark that cannot be read may be of any
        kind, and counts as one of a ledger that lacks copies."""
        marked, oldest_us, to_move = 0, None, 0
        unreadable: list[FencelogError] = []
        async for mark in self._marks.list(unreadable.append):
            if mark.is_for_balance:
                to_move += 1
                continue
            marked += 1
            oldest_us = mark.since_us if oldest_us is None else min(oldest_us, mark.since_us)
        return {
            "underreplicated_ledgers": marked + len(unreadable),
            "oldest_since_us": oldest_us,
            "ledgers_to_move": to_move,
        }
