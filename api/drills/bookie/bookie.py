"""The common parts of the bookie drills: a cluster without brokers, its ledger client, the
report."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from fencelog.api.drills.bookie.acks import BookieAcks, OwnCopies, WatchedBookieClient, own_copies
from fencelog.api.drills.bookie.load import BurstLoad, LedgerLoad, recover_and_compare
from fencelog.api.drills.harness.account import Account
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.client import LedgerClient
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies

BOOKIES = 4
"""The number of bookies, one more than an ensemble: another one can replace a lost one."""

WRITERS = 3

POLL_S = 0.02
"""The pause between two polls; times are known to this precision."""


@dataclass(frozen=True, slots=True)
class BookieDrill:
    """A running drill. ``acks``: by bookie id."""

    cluster: Cluster
    bookies: RegisteredBookies
    ledgers: LedgerClient
    acks: dict[str, BookieAcks]
    store: MetadataStore

    def writers(self, load: BurstLoad) -> list[LedgerLoad]:
        return [LedgerLoad(self.ledgers, load) for _ in range(WRITERS)]

    async def restart(self, bookie: ChildProcess) -> ChildProcess:
        """Start a bookie that has ended, on the data it had. Raises FencelogError if it fails."""
        return await self.cluster.restart(bookie)

    async def until(self, holds: Callable[[], bool], within_s: float) -> float | None:
        """Wait for a condition that registrations or answers show; return the seconds that it took,
        or None if it did not become true."""
        began = anyio.current_time()
        while not holds():
            if anyio.current_time() - began > within_s:
                return None
            await anyio.sleep(POLL_S)
        return round(anyio.current_time() - began, 3)

    async def own_copies(self, bookie: ChildProcess, load: BurstLoad) -> OwnCopies:
        """Return the state of all entries that a bookie ever acknowledged."""
        client = TcpBookieClient(bookie.name, bookie.announcement["address"])
        try:
            return await own_copies(client, self.acks[bookie.name], load.payload)
        finally:
            await client.close()

    async def report(
        self,
        name: str,
        writers: Sequence[LedgerLoad],
        load: BurstLoad,
        metrics: Mapping[str, float | None],
    ) -> BookieReport:
        """Recover and read all ledgers, then each bookie's own copies; all bookies have to run."""
        written = [ledger for writer in writers for ledger in writer.ledgers]
        result = await recover_and_compare(self.ledgers, written, load)
        report = BookieReport(name, result.account, OwnCopies(different=result.different), metrics)
        for bookie in self.cluster.bookies:
            report.own.add(await self.own_copies(bookie, load))
        report.notes.append(
            f"{result.account.unknown} entries of unknown outcome, "
            f"{result.account.unknown_present} of them present; {len(written)} ledgers"
        )
        longest_s = max(writer.longest_wait_s for writer in writers)
        report.notes.append(f"longest wait for an acknowledgement: {longest_s * 1000:,.0f} ms")
        return report


@dataclass(slots=True)
class BookieReport:
    """The outcome of a drill. ``own``: single copies; its ``different`` counts those of ledgers,
    too. ``broken``: expectations of the drill that were not met, in words."""

    drill: str
    account: Account
    own: OwnCopies
    metrics: Mapping[str, float | None]
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        counted = self.account.is_clean and self.own.is_clean and self.account.acknowledged > 0
        return counted and not self.broken

    def expect(self, holds: bool, otherwise: str) -> None:
        """Note ``otherwise`` unless the condition holds: a drill that did not go as intended proves
        nothing."""
        if not holds:
            self.broken.append(otherwise)
            self.notes.append(otherwise)

    def say_where(self, directory: Path, *, kept: bool) -> None:
        """Note the directory of the data and logs, if they are kept."""
        if kept:
            self.notes.append(f"data and logs are in {directory}")

    def as_json(self) -> dict[str, object]:
        return {
            "drill": self.drill,
            "acknowledged": self.account.acknowledged,
            "lost": self.account.lost,
            "duplicated": self.account.duplicated,
            "out_of_order": self.account.out_of_order,
            "failover_ms": None,
            **self.metrics,
            "foreign": self.account.foreign,
            "different": self.own.different,
            "own_copies_read": self.own.read,
            "own_copies_unknown": self.own.unknown,
            "wrong_negatives": self.own.wrong_negatives,
            "notes": self.notes,
        }


@contextlib.asynccontextmanager
async def bookie_drill(
    data_dir: Path,
    *,
    session_ms: int = SESSION_TIMEOUT_MS,
    bookies: int = BOOKIES,
    racks: Mapping[str, str] | None = None,
    autorecovery: tuple[str, ...] | None = None,
) -> AsyncIterator[BookieDrill]:
    """Run a cluster of ZooKeeper and bookies, and a client that notes all their answers; ``racks``,
    ``autorecovery``: as in ``ClusterConfig``.

    Raises FencelogError when it cannot be started.
    """
    host = SystemHost()
    acks: dict[str, BookieAcks] = defaultdict(BookieAcks)

    def connect(address: str, bookie_id: str) -> WatchedBookieClient:
        return WatchedBookieClient(bookie_id, address, acks[bookie_id])

    async with contextlib.AsyncExitStack() as stack:
        config = ClusterConfig(
            data_dir,
            bookies=bookies,
            brokers=0,
            session_ms=session_ms,
            racks=racks or {},
            autorecovery=autorecovery,
        )
        cluster = await stack.enter_async_context(running_cluster(config))
        store = open_metadata_store(cluster.metadata, host=host)
        await store.start()
        stack.push_async_callback(store.close)
        directory = RegisteredBookies(store, connect=connect)
        await directory.start()
        stack.push_async_callback(directory.close)
        ledgers = LedgerClient(store, directory, host=host)
        yield BookieDrill(cluster, directory, ledgers, acks, store)
