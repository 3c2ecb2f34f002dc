"""``fencelog bench ledger``: durable adds of 1 KiB over three bookie processes, Qw 3 / Qa 2."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from fencelog.api.bench.harness.limits import percentile
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieInfo
from fencelog.ledgers.writer.writer import LedgerWriter

REPLICATION = Replication(ensemble_size=3, write_quorum=3, ack_quorum=2)
PAYLOAD_BYTES = KIB
WINDOW_ENTRIES = 4000
"""The adds in flight in the pipelined phase: some 4 MiB, far below the writer's limit."""

WARM_UP_S = 0.3


@dataclass(frozen=True, slots=True)
class LedgerMetrics:
    adds_per_s: float
    single_add_p50_ms: float
    single_add_p99_ms: float


@dataclass(frozen=True, slots=True)
class Written:
    """A ledger that was written at full speed and has been closed."""

    metadata: LedgerMetadata
    elapsed_s: float

    @property
    def adds_per_s(self) -> float:
        return (self.metadata.last_entry_id + 1) / self.elapsed_s


class FixedBookies:
    """A BookieDirectory whose bookies never change."""

    def __init__(
        self, clients: Mapping[str, BookieClient], infos: Mapping[str, BookieInfo]
    ) -> None:
        self._clients = dict(clients)
        self._infos = dict(infos)

    def client(self, bookie_id: str) -> BookieClient:
        return self._clients[bookie_id]

    def available(self) -> list[str]:
        return sorted(self._clients)

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        return self._infos[bookie_id]


async def measure_ledger(directory: Path, seconds: float) -> LedgerMetrics:
    """Measure adds at full speed, then one at a time, ``seconds`` each."""
    async with AsyncExitStack() as stack:
        bookies = []
        for number in range(REPLICATION.ensemble_size):
            bookies.append(await _start_bookie(f"bookie-{number}", directory))
            stack.push_async_callback(bookies[-1].stop)
        client = await stack.enter_async_context(ledger_client(bookies))
        await pipelined_adds(client, WARM_UP_S)
        written = await pipelined_adds(client, seconds)
        times_s = await _single_adds(client, seconds)
    return LedgerMetrics(
        adds_per_s=written.adds_per_s,
        single_add_p50_ms=percentile(times_s, 0.50) * 1e3,
        single_add_p99_ms=percentile(times_s, 0.99) * 1e3,
    )


@asynccontextmanager
async def ledger_client(bookies: Iterable[ChildProcess]) -> AsyncIterator[LedgerClient]:
    """Open a client of bookie processes. They share no metadata store; the client has one of its
    own."""
    async with AsyncExitStack() as stack:
        clients: dict[str, BookieClient] = {}
        infos: dict[str, BookieInfo] = {}
        for bookie in bookies:
            client = TcpBookieClient(bookie.announcement["id"], bookie.announcement["address"])
            stack.push_async_callback(client.close)
            clients[client.bookie_id] = client
            infos[client.bookie_id] = BookieInfo(
                client.bookie_id, bookie.announcement["incarnation"]
            )
        store = MemoryMetadataStore()
        await store.start()
        stack.push_async_callback(store.close)
        yield LedgerClient(store, FixedBookies(clients, infos), host=SystemHost())


async def _start_bookie(name: str, directory: Path) -> ChildProcess:
    command = ["bookie", "--metadata", "memory:", "--listen", "127.0.0.1:0", "--id", name]
    command += ["--data", str(directory / name)]
    return await ChildProcess.start(name, command, log=directory / f"{name}.log")


async def pipelined_adds(
    client: LedgerClient,
    seconds: float,
    *,
    replication: Replication = REPLICATION,
    payload_bytes: int = PAYLOAD_BYTES,
    window_entries: int = WINDOW_ENTRIES,
) -> Written:
    """Write a ledger as fast as possible, with ``window_entries`` adds in flight all the time."""
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    payload = os.urandom(payload_bytes)
    appended = -1

    def acknowledged(lac: int) -> None:
        nonlocal appended
        if perf_counter() < end:
            append = writer.append
            for _ in range(lac + window_entries - appended):
                appended = append(payload)
        elif lac == appended and not finished.done():
            finished.set_result(None)

    writer = await _create(client, replication, acknowledged, finished)
    begin = perf_counter()
    end = begin + seconds
    acknowledged(-1)
    await finished
    elapsed_s = perf_counter() - begin
    return Written(await _close(writer), elapsed_s)


async def _single_adds(client: LedgerClient, seconds: float) -> list[float]:
    """Add one entry after the other, each when the previous one is acknowledged; return the sorted
    times in s."""
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    payload = os.urandom(PAYLOAD_BYTES)
    times_s: list[float] = []
    sent = 0.0

    def acknowledged(lac: int) -> None:
        nonlocal sent
        now = perf_counter()
        times_s.append(now - sent)
        if now < end:
            sent = now
            writer.append(payload)
        elif not finished.done():
            finished.set_result(None)

    writer = await _create(client, REPLICATION, acknowledged, finished)
    sent = perf_counter()
    end = sent + seconds
    writer.append(payload)
    await finished
    await _close(writer)
    return sorted(times_s)


async def _create(
    client: LedgerClient,
    replication: Replication,
    on_ack: Callable[[int], None],
    finished: asyncio.Future[None],
) -> LedgerWriter:
    """Create a ledger; ``finished`` raises its failure."""

    def failed(error: FencelogError) -> None:
        if not finished.done():
            finished.set_exception(error)

    return await client.create(replication, on_ack=on_ack, on_failure=failed)


async def _close(writer: LedgerWriter) -> LedgerMetadata:
    """Close the ledger and compare: a metric counts only if the ledger holds what was counted."""
    metadata = await writer.close()
    if metadata.last_entry_id != writer.last_add_confirmed:
        raise FencelogError(
            ErrorCode.INTERNAL,
            f"ledger {writer.ledger_id} was closed at entry {metadata.last_entry_id}, "
            f"{writer.last_add_confirmed} was acknowledged",
        )
    return metadata
