"""``fencelog bench audit``: every check of the auditor, of many small ledgers in a cluster of
processes with ZooKeeper.

The metadata of one ledger claims an entry that no bookie has: a check that looks at nothing is
noticed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import anyio

from fencelog.api.client.tasks import map_concurrently
from fencelog.api.local_cluster.cluster import ClusterConfig, running_cluster
from fencelog.api.local_cluster.cluster_access import ClusterAccess, cluster_access
from fencelog.bookie.auditor.check_core import ViolationKind
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.ledger_check import LedgerCheck
from fencelog.bookie.auditor.lost_bookies import check_bookies
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost

COPIES = Replication(ensemble_size=3, write_quorum=3, ack_quorum=2)
BOOKIES = 3
ENTRIES = 3
PAYLOAD = bytes(100)
AT_ONCE = 64


async def measure_audit(directory: Path, _seconds: float, *, ledgers: int) -> dict[str, float]:
    """Write and close so many ledgers of ENTRIES entries, and measure the time of each check, as
    it passed and on the processor of the process that checks."""
    config = ClusterConfig(directory, bookies=BOOKIES, brokers=0)
    async with running_cluster(config) as cluster, cluster_access(cluster.metadata, None) as access:
        client = LedgerClient(access.store, access.bookies, host=SystemHost())
        begin = perf_counter()
        ids = await map_concurrently(
            lambda _: _write(client), range(ledgers), limit=min(AT_ONCE, ledgers)
        )
        metrics = {"written_ledgers_per_s": ledgers / (perf_counter() - begin)}
        await _claim_an_entry(access, ids[ledgers // 2])
        metrics |= await _check_all(access, ledgers)
    return metrics


async def _write(client: LedgerClient) -> int:
    is_written = anyio.Event()
    failures: list[FencelogError] = []

    def acknowledged(lac: int) -> None:
        if lac == ENTRIES - 1:
            is_written.set()

    def failed(error: FencelogError) -> None:
        failures.append(error)
        is_written.set()

    writer = await client.create(COPIES, on_ack=acknowledged, on_failure=failed)
    for _ in range(ENTRIES):
        writer.append(PAYLOAD)
    await is_written.wait()
    if failures:
        raise failures[0]
    await writer.close()
    return writer.ledger_id


async def _claim_an_entry(access: ClusterAccess, ledger_id: int) -> None:
    """Write into the metadata of a closed ledger that it has an entry more than it has."""
    metadata, version = await access.ledgers.get_latest(ledger_id)
    longer = replace(metadata, last_entry_id=ENTRIES, length=metadata.length + len(PAYLOAD))
    await access.ledgers.update(longer, version)


async def _check_all(access: ClusterAccess, ledgers: int) -> dict[str, float]:
    store, bookies, host = access.store, access.bookies, SystemHost()
    metrics: dict[str, float] = {}

    async def timed(name: str, check: Callable[[], Awaitable[Any]]) -> Any:
        begin, begin_cpu = perf_counter(), process_time()
        found = await check()
        metrics[f"{name}_s"] = perf_counter() - begin
        metrics[f"{name}_cpu_s"] = process_time() - begin_cpu
        return found

    scanned = await timed("bookies", partial(check_bookies, store, host=host, lost=frozenset))
    config = CheckConfig(repeats=1, repeat_delay_ms=0)
    report = await timed("cluster", ClusterCheck(store, bookies, host=host, config=config).run)
    checked = await timed("ledgers", LedgerCheck(store, bookies, host=host).run)
    seen = (scanned.ledgers, report.checked, checked.ledgers, checked.marked)
    if seen != (ledgers, ledgers, ledgers, 1) or report.counts != {ViolationKind.NO_COPY: 1}:
        raise FencelogError(
            ErrorCode.INTERNAL, f"of {ledgers} ledgers, checks saw {seen}, {report.counts}"
        )
    metrics["checks_s"] = sum(metrics[f"{name}_s"] for name in ("bookies", "cluster", "ledgers"))
    return metrics
