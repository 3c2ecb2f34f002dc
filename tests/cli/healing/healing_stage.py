"""Self-healing beside bookies of this process, and what tests of its commands ask of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.admin.autorecovery import AutorecoveryAdmin
from fencelog.api.cli import main as cli
from fencelog.api.processes.autorecovery import AutorecoveryConfig, serving_autorecovery
from fencelog.bookie.auditor.auditor import AuditorConfig
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from tests.support.local_cluster import LocalCluster

Run = Callable[..., Coroutine[Any, Any, int]]
HEALING = AutorecoveryConfig(
    AuditorConfig(lost_bookie_grace_ms=10_000_000, decommission_step_ms=20), check_ms=100
)


async def register(cluster: LocalCluster, name: str) -> None:
    value = bookie_registration("nowhere:1", cluster.describe(name))
    await cluster.store.create(f"{BOOKIES_PATH}/{name}", value)


def commands_over(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, *, within_s: float
) -> Run:
    """What runs a command over the cluster of this process, and gives the exit code."""
    loop: asyncio.AbstractEventLoop

    class Access:
        store = cluster.store
        ledgers = cluster.ledgers
        bookies = cluster

    @contextlib.asynccontextmanager
    async def access(_url: str, _secret_file: Path | None) -> AsyncIterator[Any]:
        yield Access

    def run_here(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(within_s)

    monkeypatch.setattr("fencelog.api.local_cluster.cluster_access.cluster_access", access)
    for module in ("processes.lifecycle", "local_cluster.cluster_access"):
        monkeypatch.setattr(f"fencelog.api.{module}.run_on_uvloop", run_here)

    async def run(*arguments: str) -> int:
        nonlocal loop
        loop = asyncio.get_running_loop()
        line = [*arguments, "--metadata", "zk://somewhere:1"]
        return await loop.run_in_executor(None, cli.run, line)

    return run


@contextlib.asynccontextmanager
async def healing(cluster: LocalCluster) -> AsyncIterator[None]:
    """Self-healing that runs, and has been elected."""
    local = {name: cluster.client(name) for name in cluster.bookies}
    process = serving_autorecovery(
        cluster.store,
        local,  # type: ignore[arg-type]  # clients of bookies in this process
        process_id="healer",
        host=SystemHost(),
        settings=HEALING,
    )
    async with process:
        yield


async def closed_ledger(cluster: LocalCluster) -> tuple[int, str]:
    """A closed ledger, and a bookie that holds it."""
    writer = await cluster.write(b"0", b"1", b"2")
    await writer.close()
    return writer.metadata.ledger_id, writer.metadata.fragments[0].bookies[0]


async def named(cluster: LocalCluster, ledger_id: int) -> set[str]:
    metadata, _ = await cluster.ledgers.get_latest(ledger_id)
    return {bookie for fragment in metadata.fragments for bookie in fragment.bookies}


async def is_unmarked(marks: UnderReplicatedLedgers, ledger_id: int) -> bool:
    return await marks.get(ledger_id) is None


async def has_left(cluster: LocalCluster, ledger_id: int, bookie: str) -> bool:
    return bookie not in await named(cluster, ledger_id)


async def is_read_only(cluster: LocalCluster, bookie: str) -> bool:
    return cluster.bookies[bookie].is_read_only


async def has_no_cookie(cluster: LocalCluster, bookie: str) -> bool:
    return bookie not in await cluster.store.children("/cookies")


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another task brings about."""
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.02)


def fail_at_times(monkeypatch: pytest.MonkeyPatch, *looks: str) -> Counter[str]:
    """Have each of these requests fail every other time, from its second look on; count them."""
    failed = Counter[str]()

    def at_times(name: str) -> None:
        works, calls = getattr(AutorecoveryAdmin, name), count()

        async def look(*args: Any, **options: Any) -> Any:
            if next(calls) % 2 == 1:
                failed[name] += 1
                raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "the store is away")
            return await works(*args, **options)

        monkeypatch.setattr(AutorecoveryAdmin, name, look)

    for name in looks:
        at_times(name)
    return failed


async def until_said(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Wait until a command that runs says this on stderr."""
    async with asyncio.timeout(20):
        while words not in capsys.readouterr().err:  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.02)
