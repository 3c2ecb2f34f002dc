"""``fencelog bench recovery``: how fast the copies of a lost bookie are made again, and what the
appends of others feel of it.

Everything is a process of its own: ZooKeeper, five bookies, one that heals. Ledgers are written
and closed, one bookie is killed for good, and its ledgers are marked while self-healing is off.
Turned on, it copies them, measured from that moment until no ledger is marked any more.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import anyio

from fencelog.api.bench.harness.cpu import process_cpu_s
from fencelog.api.bench.harness.histogram import LatencyHistogram
from fencelog.api.bench.harness.limits import SEQUENTIAL_WRITE_BYTES, measure_sync
from fencelog.api.bench.harness.steady_adds import SteadyAdds
from fencelog.api.client.tasks import task_group
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.api.local_cluster.cluster_access import ClusterAccess, cluster_access
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.registered import read_bookies
from fencelog.bookie.auditor.scan import bookies_of
from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import COPY_BYTES_PER_S, KIB, MIB
from fencelog.ledgers.writer.writer import LedgerWriter

BOOKIES = 5
SESSION_MS = 2000
HEALER: tuple[str, ...] = ("--look-ms", "100", "--lost-bookie-grace-ms", "86400000")
HEALER += ("--bookie-check-ms", "0", "--ledger-check-ms", "0", "--cluster-check-ms", "0")
"""The options of the process that heals: it looks for marks soon, and makes no checks meanwhile."""

UNLIMITED_BYTES_PER_S = 1 << 40
LEDGER_BYTES = 8 * MIB
WINDOW_BYTES = 8 * MIB
POLL_S = 0.02
DISK_S = 0.5
HEALED_S = 600.0
"""The time to heal ledgers without a limit of the rate."""

COPIES = Replication(ensemble_size=3, write_quorum=3, ack_quorum=2)
STRIPED = Replication(ensemble_size=4, write_quorum=3, ack_quorum=2)

ADDS_PER_S = 200.0
ADD_BYTES = KIB


@dataclass(frozen=True, slots=True)
class _Kind:
    """Ledgers of one kind. ``share``: of the bytes to be copied."""

    name: str
    replication: Replication
    payload_bytes: int
    share: float


KINDS = (
    _Kind("small", COPIES, KIB, 1.0),
    _Kind("large", COPIES, 64 * KIB, 1.0),
    _Kind("striped", STRIPED, 16 * KIB, 0.5),
)


async def measure_recovery(directory: Path, seconds: float, *, copied_mib: int) -> dict[str, float]:
    """Measure the rate of copying for entries of 1 KiB, of 64 KiB, and of striped ledgers, about
    ``copied_mib`` each, its share of what the disk writes at that time, and the CPU seconds that
    the worker and all bookies take for a gigabyte; then appends at a steady rate, ``seconds`` each,
    without and with healing at the usual limit."""
    metrics: dict[str, float] = {}
    async with _cluster(directory) as (cluster, access):
        await change_settings(access.store, is_disabled=True)
        client = LedgerClient(access.store, access.bookies, host=SystemHost())
        victim = cluster.bookies[0]
        written = {}
        for kind in KINDS:
            size = int(copied_mib * kind.share * MIB)
            written[kind.name] = await _write(client, kind, victim.name, size)
        usual_bytes = int(COPY_BYTES_PER_S * seconds)
        beneath = await _write(client, KINDS[1], victim.name, usual_bytes)
        await victim.kill()
        await _is_gone(access, victim.name)
        await change_settings(access.store, copy_bytes_per_s=UNLIMITED_BYTES_PER_S)
        for kind in KINDS:
            disk = await anyio.to_thread.run_sync(
                measure_sync, directory, SEQUENTIAL_WRITE_BYTES, DISK_S
            )
            cpu = _Cpu(cluster)
            healed = await _heal(access, written[kind.name], victim.name)
            rate = healed.bytes_per_s
            metrics[f"{kind.name}_copied_mb_per_s"] = rate / 1e6
            metrics[f"{kind.name}_share_of_disk"] = rate / (disk.per_s * SEQUENTIAL_WRITE_BYTES)
            for process, used_s in cpu.used_s().items():
                metrics[f"{kind.name}_{process}_cpu_s_per_gb"] = used_s * 1e9 / healed.copied_bytes
        metrics |= await _beneath_appends(access, client, beneath, victim.name, seconds)
        await _check(access)
    return metrics


@asynccontextmanager
async def _cluster(directory: Path) -> AsyncIterator[tuple[Cluster, ClusterAccess]]:
    config = ClusterConfig(
        directory, bookies=BOOKIES, brokers=0, session_ms=SESSION_MS, autorecovery=HEALER
    )
    async with (
        running_cluster(config) as cluster,
        cluster_access(cluster.metadata, None) as access,
    ):
        yield cluster, access


async def _write(client: LedgerClient, kind: _Kind, victim: str, size: int) -> list[int]:
    """Write closed ledgers with ``size`` bytes of entries on the victim; return their ids."""
    written: list[int] = []
    payload = os.urandom(kind.payload_bytes)
    share = kind.replication.write_quorum / kind.replication.ensemble_size
    count = max(1, int(min(LEDGER_BYTES, size) / share) // kind.payload_bytes)
    while size > 0:
        progress = _Progress()
        writer = await client.create(
            kind.replication, on_ack=progress.acknowledged, on_failure=progress.failed
        )
        if victim in writer.metadata.fragments[0].bookies:
            await progress.append_all(writer, payload, count)
            size -= int(count * kind.payload_bytes * share)
            written.append(writer.ledger_id)
        await writer.close()
    return written


class _Progress:
    """The acknowledgements of one writer."""

    def __init__(self) -> None:
        self._changed = anyio.Event()
        self._lac = -1
        self._error: FencelogError | None = None

    def acknowledged(self, lac: int) -> None:
        self._lac = lac
        self._changed.set()

    def failed(self, error: FencelogError) -> None:
        self._error = error
        self._changed.set()

    async def append_all(self, writer: LedgerWriter, payload: bytes, count: int) -> None:
        """Append ``count`` entries, WINDOW_BYTES on the way at most. Raises FencelogError."""
        window = WINDOW_BYTES // len(payload)
        sent = 0
        while self._lac < count - 1:
            while sent < min(count, self._lac + 1 + window):
                writer.append(payload)
                sent += 1
            await self._changed.wait()
            self._changed = anyio.Event()
            if self._error is not None:
                raise self._error


async def _is_gone(access: ClusterAccess, bookie_id: str) -> None:
    """Wait until a bookie is not registered any more."""

    async def gone() -> bool:
        return bookie_id not in (await read_bookies(access.store)).registered

    await _until(gone, HEALED_S)


@dataclass(frozen=True, slots=True)
class _Healed:
    """The bytes of entries that were copied."""

    copied_bytes: int
    bytes_per_s: float


class _Cpu:
    """The CPU time of the worker, and of the bookies that run, from the beginning on."""

    def __init__(self, cluster: Cluster) -> None:
        bookies = [bookie for bookie in cluster.bookies if bookie.is_running]
        self._kinds = {"worker": cluster.healers, "bookies": bookies}
        self._begin_s = self._now_s()

    def used_s(self) -> dict[str, float]:
        """Return the CPU seconds that each kind of process has used."""
        return {kind: now_s - self._begin_s[kind] for kind, now_s in self._now_s().items()}

    def _now_s(self) -> dict[str, float]:
        return {
            kind: sum(process_cpu_s(process.pid) for process in processes)
            for kind, processes in self._kinds.items()
        }


async def _heal(
    access: ClusterAccess, ledger_ids: Sequence[int], victim: str, *, least_s: float = 0.0
) -> _Healed:
    """Mark the ledgers, and turn self-healing on until nothing is marked. ``least_s``: what it
    takes at the rate of copying that is set. Raises FencelogError(INTERNAL) if it takes too
    long."""
    copied = await _mark(access, ledger_ids, victim)
    marks = UnderReplicatedLedgers(access.store)

    async def healed() -> bool:
        return not [ledger_id async for ledger_id in marks.list_ids()]

    begin = perf_counter()
    await change_settings(access.store, is_disabled=False)
    await _until(healed, HEALED_S + 2 * least_s)
    elapsed_s = perf_counter() - begin
    await change_settings(access.store, is_disabled=True)
    for ledger_id in ledger_ids:
        if victim in bookies_of((await access.ledgers.get_latest(ledger_id))[0]):
            raise FencelogError(ErrorCode.INTERNAL, f"ledger {ledger_id} still names {victim}")
    return _Healed(copied, copied / elapsed_s)


async def _mark(access: ClusterAccess, ledger_ids: Sequence[int], victim: str) -> int:
    """Mark ledgers, and return how many bytes of their entries the victim had."""
    marks, size = UnderReplicatedLedgers(access.store), 0
    now_us = SystemHost().now_us()
    for ledger_id in ledger_ids:
        metadata, _ = await access.ledgers.get(ledger_id)
        size += _share_of(metadata)
        await marks.mark(ledger_id, missing=[victim], why=Cause.LOST_BOOKIE, now_us=now_us)
    return size


def _share_of(metadata: LedgerMetadata) -> int:
    """Return the bytes of a closed ledger's entries on each of its bookies, to an entry."""
    return metadata.length * metadata.write_quorum // metadata.ensemble_size


async def _beneath_appends(
    access: ClusterAccess,
    client: LedgerClient,
    ledger_ids: Sequence[int],
    victim: str,
    seconds: float,
) -> dict[str, float]:
    """Measure appends at a steady rate without healing, then while ledgers are healed at the
    usual rate."""
    adds = SteadyAdds(per_s=ADDS_PER_S, payload_bytes=ADD_BYTES)
    await change_settings(access.store, copy_bytes_per_s=None)
    async with task_group() as group:
        group.start_soon(adds.run, client, COPIES)
        await anyio.sleep(1.0)
        adds.latencies = before = LatencyHistogram()
        await anyio.sleep(seconds)
        adds.latencies = during = LatencyHistogram()
        healed = await _heal(access, ledger_ids, victim, least_s=seconds)
        adds.latencies = LatencyHistogram()
        group.cancel_scope.cancel()
    p99_before, p99_during = before.percentile_ms(0.99), during.percentile_ms(0.99)
    return {
        "usual_copied_mb_per_s": healed.bytes_per_s / 1e6,
        "append_p50_ms": before.percentile_ms(0.5),
        "append_p99_ms": p99_before,
        "append_p50_healing_ms": during.percentile_ms(0.5),
        "append_p99_healing_ms": p99_during,
        "append_p99_ratio": p99_during / p99_before,
    }


async def _check(access: ClusterAccess) -> None:
    """Check that every entry of every closed ledger has its copies: otherwise no figure counts."""
    report = await ClusterCheck(
        access.store,
        access.bookies,
        host=SystemHost(),
        config=CheckConfig(repeats=1, repeat_delay_ms=1000),
    ).run()
    if report.counts:
        raise FencelogError(ErrorCode.INTERNAL, f"the check found {dict(report.counts)}")


async def _until(condition: Callable[[], Awaitable[bool]], limit_s: float) -> None:
    """Wait until the condition holds. Raises FencelogError(INTERNAL) after ``limit_s``."""
    with anyio.move_on_after(limit_s) as scope:
        while not await condition():  # noqa: ASYNC110 - what the metadata store says
            await anyio.sleep(POLL_S)
    if scope.cancelled_caught:
        raise FencelogError(ErrorCode.INTERNAL, f"it was not healed within {limit_s:,.0f} s")
