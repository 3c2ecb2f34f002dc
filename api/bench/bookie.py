"""``fencelog bench bookie``: one bookie process with everything on, seen over TCP.

Adds go through a ledger writer, as under load. Reads go to a bookie that was restarted since, so
that nothing is in its write cache; the page cache of the machine is as the adds left it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import anyio

from fencelog.api.bench.alone_adds import measure_alone_adds
from fencelog.api.bench.ledger import ledger_client, pipelined_adds
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run, verify_run
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import KIB, MAX_READ_BYTES, MAX_RUN_ENTRIES, MIB
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient

ONE_COPY = Replication(ensemble_size=1, write_quorum=1, ack_quorum=1)
SMALL_BYTES = KIB
LARGE_BYTES = 64 * KIB
WINDOW_BYTES = 4 * MIB
"""The bytes of adds in flight: the bookie is never idle, and far from refusing."""

WARM_UP_S = 0.3

JOURNAL_LEDGER = 1
JOURNAL_RUN_ENTRIES = 1000
"""The entries of a run of 1 KiB payloads, as a writer under load sends it."""

TINY_BYTES = 64
TINY_LEDGERS = 1000
TINY_RUN_ENTRIES = 100
"""The entries of a run that memory is measured with: many ledgers, short runs, as many topics write
them."""

RUNS_ON_THE_WAY = 16

ALONE_ADDS = 40_000
"""Adds for their CPU time: enough for some flushes."""

NEVER_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a measurement. ``journal_mib``: not in a checkpoint at the kill; ``entries``:
    stored when memory is read."""

    journal_mib: int
    entries: int


@dataclass(frozen=True, slots=True)
class BookieMetrics:
    """The metrics of a bookie. ``restart_s``: from the start of the process until it serves.
    ``alone_add_cpu_us``: of an embedded bookie, for an add of 1 KiB that is alone in its ledger.
    ``rss_mb`` (VmRSS) and ``peak_rss_mb`` (VmHWM) of the process that has stored the small
    entries."""

    small_adds_per_s: float
    large_adds_mb_per_s: float
    entry_log_read_mb_per_s: float
    restart_s: float
    rss_mb: float
    peak_rss_mb: float
    alone_add_cpu_us: float


async def measure_bookie(directory: Path, seconds: float, *, sizes: Sizes) -> BookieMetrics:
    """Measure adds of each size for ``seconds``, then reads, a restart after SIGKILL, and
    memory."""
    place = directory / "adds"
    async with _bookie(place) as bookie, ledger_client([bookie]) as client:
        await pipelined_adds(client, WARM_UP_S, replication=ONE_COPY)
        small = await pipelined_adds(client, seconds, replication=ONE_COPY)
        large = await pipelined_adds(
            client,
            seconds,
            replication=ONE_COPY,
            payload_bytes=LARGE_BYTES,
            window_entries=WINDOW_BYTES // LARGE_BYTES,
        )
    async with _bookie(place) as bookie:
        read_mb_per_s = await _read_all(bookie, small.metadata)
    restart_s = await _restart(directory / "restart", sizes.journal_mib * MIB)
    rss_mb, peak_rss_mb = await _memory(directory / "memory", sizes.entries)
    return BookieMetrics(
        small_adds_per_s=small.adds_per_s,
        large_adds_mb_per_s=large.adds_per_s * LARGE_BYTES / 1e6,
        entry_log_read_mb_per_s=read_mb_per_s,
        restart_s=restart_s,
        rss_mb=rss_mb,
        peak_rss_mb=peak_rss_mb,
        alone_add_cpu_us=await measure_alone_adds(directory / "alone", ALONE_ADDS),
    )


@asynccontextmanager
async def _bookie(place: Path, *options: str) -> AsyncIterator[ChildProcess]:
    """Run a bookie on the data that is there, and end it cleanly afterwards."""
    bookie = await _start_bookie(place, *options)
    try:
        yield bookie
    finally:
        await bookie.stop()


async def _start_bookie(place: Path, *options: str) -> ChildProcess:
    metadata = ["--metadata", f"sqlite:{place}.sqlite"]
    command = ["bench", "bookie-process", "--data", str(place), *metadata, *options]
    return await ChildProcess.start(place.name, command, log=Path(f"{place}.log"))


@asynccontextmanager
async def _connected(bookie: ChildProcess) -> AsyncIterator[TcpBookieClient]:
    client = TcpBookieClient(bookie.announcement["id"], bookie.announcement["address"])
    try:
        yield client
    finally:
        await client.close()


async def _read_all(bookie: ChildProcess, ledger: LedgerMetadata) -> float:
    """Read a whole ledger, one request after the other, and return the MB/s of runs, each
    checked."""
    size, next_entry_id = 0, 0
    async with _connected(bookie) as client:
        begin = perf_counter()
        while next_entry_id <= ledger.last_entry_id:
            reply = await client.read(
                ledger.ledger_id,
                next_entry_id,
                max_entries=MAX_RUN_ENTRIES,
                max_bytes=MAX_READ_BYTES,
            )
            size += len(reply.run)
            next_entry_id = verify_run(reply.run).last_entry_id + 1
        return size / (perf_counter() - begin) / 1e6


async def _restart(place: Path, journal_bytes: int) -> float:
    """Return the seconds that a bookie with the usual buffers takes to serve a journal left by
    SIGKILL."""
    buffers = ["--write-cache-bytes", str(4 * journal_bytes), "--flush-interval-ms", str(NEVER_MS)]
    async with _bookie(place, *buffers) as bookie:
        await _store(bookie, _journal_runs(journal_bytes))
        await bookie.kill()
    begin = perf_counter()
    async with _bookie(place) as bookie:
        elapsed_s = perf_counter() - begin
        async with _connected(bookie) as client:
            last = journal_bytes // SMALL_BYTES - 1
            await client.read(JOURNAL_LEDGER, last, max_entries=1, max_bytes=SMALL_BYTES)
    return elapsed_s


def _journal_runs(journal_bytes: int) -> Iterator[bytes]:
    payload = bytes(SMALL_BYTES)
    entries = journal_bytes // SMALL_BYTES
    for first in range(0, entries, JOURNAL_RUN_ENTRIES):
        count = min(JOURNAL_RUN_ENTRIES, entries - first)
        yield build_run(
            JOURNAL_LEDGER, first, [payload] * count, lac=-1, length_before=first * SMALL_BYTES
        )


async def _memory(place: Path, entries: int) -> tuple[float, float]:
    """Return the resident memory of a bookie, in MB, once it has stored so many entries: current
    and peak."""
    async with _bookie(place) as bookie:
        await _store(bookie, _tiny_runs(entries))
        return resident_mb(bookie.pid)


def _tiny_runs(entries: int) -> Iterator[bytes]:
    payloads = [bytes(TINY_BYTES)] * TINY_RUN_ENTRIES
    for number in range(-(-entries // TINY_RUN_ENTRIES)):
        first = number // TINY_LEDGERS * TINY_RUN_ENTRIES
        yield build_run(
            1 + number % TINY_LEDGERS, first, payloads, lac=-1, length_before=first * TINY_BYTES
        )


async def _store(bookie: ChildProcess, runs: Iterable[bytes]) -> None:
    """Add runs, some at a time; all of them are acknowledged on return. Raises FencelogError."""
    capacity = anyio.Semaphore(RUNS_ON_THE_WAY, fast_acquire=True)
    errors: list[FencelogError] = []

    def on_reply(error: FencelogError | None) -> None:
        capacity.release()
        if error is not None:
            errors.append(error)

    incarnation = bookie.announcement["incarnation"]
    async with _connected(bookie) as client:
        for run in runs:
            await capacity.acquire()
            if errors:
                capacity.release()
                break
            client.add(run, recovery=False, incarnation=incarnation, on_reply=on_reply)
        for _ in range(RUNS_ON_THE_WAY):
            await capacity.acquire()
    if errors:
        raise errors[0]


def resident_mb(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process in MB: current and peak."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return _kib(status, "VmRSS") * KIB / 1e6, _kib(status, "VmHWM") * KIB / 1e6


def _kib(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise FencelogError(ErrorCode.INTERNAL, f"/proc says nothing of {name}")
    return int(found[1])
