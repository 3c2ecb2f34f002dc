"""The cost of auditing many ledgers: time and memory of each check at several numbers of ledgers.

    python -m tests.bench.audit_scale [NUMBER …]

Metadata and bookies are generated as they are asked, so that memory is that of the checks alone.
Each number is measured in a process of its own. Everything else is real: metadata is decoded from
JSON and lists of entries from BP-34's encoding, as they come from ZooKeeper and from bookies.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fencelog.bookie.auditor.check_core import ViolationKind
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.ledger_check import LedgerCheck
from fencelog.bookie.auditor.lost_bookies import check_bookies
from fencelog.bookie.repair.core import wanted_ranges
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.ledger_nodes import ledger_path
from fencelog.ledgers.ledger_metadata.model import (
    LedgerMetadata,
    decode_metadata,
    encode_metadata,
    new_metadata,
)
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieInfo

POINTS = (10_000, 30_000, 100_000)

MAX_SECONDS_PER_LEDGER = 300 / 100_000
MAX_RSS_MB = 300
"""A hundred thousand ledgers in five minutes of one core, for all three checks together, and
300 MB."""

LAST_ENTRY = 9_999
_BOOKIES = tuple(f"bookie-{number}" for number in range(12))
_SHAPES = 120


def metadata_of(ledger_id: int) -> LedgerMetadata:
    """Return the metadata of a ledger: every fourth is striped, every tenth has two fragments."""
    return replace(_shape(ledger_id % _SHAPES), ledger_id=ledger_id, token=f"{ledger_id:032x}")


@lru_cache(maxsize=_SHAPES)
def _shape(number: int) -> LedgerMetadata:
    size = 5 if number % 4 == 0 else 3
    metadata = new_metadata(
        number, ensemble=_ensemble(number, size), write_quorum=3, ack_quorum=2, token="t"
    )
    if number % 10 == 0:
        metadata = metadata.with_ensemble(LAST_ENTRY // 2, _ensemble(number + 5, size))
    return metadata.closed(last_entry_id=LAST_ENTRY, length=LAST_ENTRY * 100)


def _ensemble(number: int, size: int) -> tuple[str, ...]:
    return tuple(_BOOKIES[(number + k) % len(_BOOKIES)] for k in range(size))


@lru_cache(maxsize=_SHAPES * len(_BOOKIES))
def _list(number: int, bookie_id: str) -> bytes:
    held = wanted_ranges(_shape(number), bookie_id, 0, LAST_ENTRY)
    return EntryList(Availability.of(held)).encode()


class GeneratedStore(MemoryMetadataStore):
    """A store with ``count`` ledgers that are not in memory."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    async def children(self, path: str) -> list[str]:
        if not path.startswith("/ledgers"):
            return await super().children(path)
        if path == "/ledgers":
            return [f"{high:x}" for high in range((self._count >> 16) + 1)]
        high = int(path.rpartition("/")[2], 16) << 16
        lows = range(max(1, high), min(self._count, high + 0xFFFF) + 1)
        return [f"{ledger_id & 0xFFFF:04x}" for ledger_id in lows]

    async def get(self, path: str) -> Versioned:
        if not path.startswith("/ledgers/"):
            return await super().get(path)
        await asyncio.sleep(0)
        high, low = path.split("/")[2:]
        ledger_id = int(high, 16) << 16 | int(low, 16)
        assert path == ledger_path("/ledgers", ledger_id)
        return Versioned(encode_metadata(metadata_of(ledger_id)), Version(1, 0))


class ListingBookie(AbsentBookie):
    """A bookie that has what metadata assigns to it; ``lacking``: a ledger that it has lost."""

    def __init__(self, bookie_id: str, lacking: int) -> None:
        super().__init__(bookie_id)
        self._lacking = lacking

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        await asyncio.sleep(0)
        if ledger_id == self._lacking:
            raise FencelogError(ErrorCode.NO_SUCH_LEDGER, f"{self.bookie_id} has no {ledger_id}")
        return EntryList.decode(_list(ledger_id % _SHAPES, self.bookie_id), from_entry)


class ListingBookies:
    """The directory of these bookies. Implements ``BookieDirectory``."""

    def __init__(self, lacking: int) -> None:
        self._clients = {b: ListingBookie(b, lacking) for b in _BOOKIES}

    def client(self, bookie_id: str) -> BookieClient:
        return self._clients[bookie_id]

    def available(self) -> list[str]:
        return sorted(self._clients)

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id)


async def measure(count: int) -> dict[str, Any]:
    """Return the seconds of each check of so many ledgers, of CPU and as they passed, and the peak
    memory of the process. In one ledger copies are missing, so that a check that looks at nothing
    is noticed."""
    assert decode_metadata(encode_metadata(metadata_of(count))) == metadata_of(count)
    lacking = count // 2
    store, bookies, host = GeneratedStore(count), ListingBookies(lacking), SystemHost()
    await store.start()
    await create_instance(store, host)
    for bookie in _BOOKIES:
        value = bookie_registration(f"{bookie}:1", BookieInfo(bookie, "1"))
        await store.create(f"{BOOKIES_PATH}/{bookie}", value, ephemeral=True)
    seconds: dict[str, float] = {}

    async def timed(name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        began, began_cpu = time.perf_counter(), time.process_time()
        found = await work()
        seconds[f"{name}_cpu_s"] = round(time.process_time() - began_cpu, 3)
        seconds[f"{name}_wall_s"] = round(time.perf_counter() - began, 3)
        return found

    scanned = await timed("bookies", lambda: check_bookies(store, host=host, lost=frozenset))
    assert scanned.ledgers == count
    config = CheckConfig(repeat_delay_ms=0)
    check = ClusterCheck(store, bookies, host=host, config=config)
    report = await timed("cluster", check.run)
    members = len(metadata_of(lacking).fragments[0].bookies)
    assert report.checked == count
    assert report.counts.keys() == {ViolationKind.NO_COPY}, report.to_json()
    assert {v.ledger_id for v in report.violations} == {lacking}
    assert members >= 3
    ledger_check = LedgerCheck(store, bookies, host=host, share=-1)
    marked = await timed("ledgers", ledger_check.run)
    assert (marked.ledgers, marked.marked) == (count, 1)
    await store.close()
    return {"ledgers": count, **seconds, "peak_rss_mb": _peak_rss_mb()}


def _peak_rss_mb() -> float:
    """Return the peak memory of this process: ``ru_maxrss`` may be that of the process that has
    started it."""
    status = Path("/proc/self/status").read_text()
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024, 1)


def in_process(count: int) -> dict[str, Any]:
    """Measure in a process of its own, on one core."""
    command = [sys.executable, "-m", "tests.bench.audit_scale", "--one", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def too_much(measured: dict[str, Any]) -> list[str]:
    """Return what of a measurement is over the limits."""
    count = measured["ledgers"]
    seconds = sum(value for name, value in measured.items() if name.endswith("_cpu_s"))
    found = []
    if seconds > count * MAX_SECONDS_PER_LEDGER:
        found.append(f"{count} ledgers took {seconds:.1f} s of a core")
    if measured["peak_rss_mb"] > MAX_RSS_MB:
        found.append(f"{count} ledgers took {measured['peak_rss_mb']} MB")
    return found


def main() -> None:
    """Print a line for each number of ledgers; fail if one takes too much."""
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(json.dumps(asyncio.run(measure(int(sys.argv[2])))))
        return
    failed = []
    for count in map(int, sys.argv[1:] or POINTS):
        measured = in_process(count)
        sys.stdout.write(f"{json.dumps(measured)}\n")
        sys.stdout.flush()
        failed += too_much(measured)
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
