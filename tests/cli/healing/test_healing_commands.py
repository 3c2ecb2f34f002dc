"""Self-healing on the command line, over real bookies with an auditor and a worker beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from fencelog.api.cli import main as cli
from fencelog.api.console import EXIT_ERROR, EXIT_USAGE
from fencelog.api.processes.autorecovery import AutorecoveryConfig, serving_autorecovery
from fencelog.bookie.auditor.auditor import AuditorConfig
from fencelog.bookie.replication.store import Cause, FragmentMove, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from tests.support.fencelog_cli import complaint, fencelog
from tests.support.local_cluster import LocalCluster
from tests.support.metadata_nodes import remove

Run = Callable[..., Coroutine[Any, Any, int]]
HEALING = AutorecoveryConfig(
    AuditorConfig(lost_bookie_grace_ms=10_000_000, decommission_step_ms=20), check_ms=100
)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 4) as cluster:
        for name in cluster.bookies:
            await register(cluster, name)
        yield cluster


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelog.api.processes.autorecovery.STATUS_MS", 20)
    monkeypatch.setattr("fencelog.bookie.auditor.auditor.DECOMMISSION_SCAN_SHARE", 0)
    monkeypatch.setattr("fencelog.api.cli.healing.under_replicated.POLL_S", 0.02)
    monkeypatch.setattr("fencelog.api.cli.healing.bookie_removal.POLL_S", 0.02)


@pytest.fixture
def run(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command over the cluster of this process; gives the exit code."""
    loop: asyncio.AbstractEventLoop

    class Access:
        store = cluster.store
        ledgers = cluster.ledgers
        bookies = cluster

    @contextlib.asynccontextmanager
    async def access(_url: str, _secret_file: Path | None) -> AsyncIterator[Any]:
        yield Access

    def run_here(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    monkeypatch.setattr("fencelog.api.local_cluster.cluster_access.cluster_access", access)
    for module in ("processes.lifecycle", "local_cluster.cluster_access"):
        monkeypatch.setattr(f"fencelog.api.{module}.run_on_uvloop", run_here)

    async def run(*arguments: str) -> int:
        nonlocal loop
        loop = asyncio.get_running_loop()
        line = [*arguments, "--metadata", "zk://somewhere:1"]
        return await loop.run_in_executor(None, cli.run, line)

    return run


async def register(cluster: LocalCluster, name: str) -> None:
    value = bookie_registration("nowhere:1", cluster.describe(name))
    await cluster.store.create(f"{BOOKIES_PATH}/{name}", value)


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


async def test_what_lacks_copies_is_listed_until_a_worker_has_made_them(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    marks = UnderReplicatedLedgers(cluster.store)
    since_us = SystemHost().now_us() - 90 * 3_600_000_000
    await marks.mark(ledger_id, missing=[bookie], why=Cause.DECOMMISSION, now_us=since_us)
    assert await run("ledger", "underreplicated") == 0
    assert capsys.readouterr().out == f"{ledger_id} for 90 h 0 min: {bookie} (decommission)\n"
    assert await run("ledger", "underreplicated", "--json") == 0
    (mark,) = json.loads(capsys.readouterr().out)
    assert mark == {
        "ledger_id": ledger_id,
        "since_us": since_us,
        "missing": {bookie: ["decommission"]},
        "moves": [],
        "waiting": [],
    }
    async with healing(cluster):
        await until(lambda: is_unmarked(marks, ledger_id))
    assert await run("ledger", "underreplicated") == 0
    assert capsys.readouterr().out == ""
    assert bookie not in await named(cluster, ledger_id)
    assert await cluster.contents(ledger_id) == [b"0", b"1", b"2"]


async def test_a_better_balance_is_turned_on_shown_and_turned_off(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    (target, *_) = sorted(cluster.bookies.keys() - await named(cluster, ledger_id))
    marks = UnderReplicatedLedgers(cluster.store)
    now_us = SystemHost().now_us()
    assert await run("autorecovery", "set", "--balance-bytes-per-s", "5000") == 0
    assert "balance_bytes_per_s of all processes: 5,000" in capsys.readouterr().out
    await marks.mark_moves(ledger_id, [FragmentMove(0, bookie, target)], now_us=now_us)
    assert await run("ledger", "underreplicated") == 0
    shown = capsys.readouterr().out
    assert f": {bookie} (balance)\n" in shown
    assert f"  fragment at 0: {bookie} gives its copies to {target}\n" in shown
    async with healing(cluster):
        await until(lambda: has_left(cluster, ledger_id, bookie))
        await until(lambda: is_unmarked(marks, ledger_id))

        async def is_published() -> bool:
            capsys.readouterr()
            assert await run("autorecovery", "status") == 0
            return "1 fragments moved" in capsys.readouterr().out

        await until(is_published)
    assert target in await named(cluster, ledger_id)
    assert await run("autorecovery", "set", "--balance-bytes-per-s", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["balance_bytes_per_s"] is None


async def test_a_stuck_repair_names_the_entries_that_are_lost(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = await cluster.write(*(b"%d" % number for number in range(100)))
    metadata = await writer.close()
    ledger_id, (bookie, *_) = metadata.ledger_id, metadata.fragments[0].bookies
    lost = {3, 4, 5, *range(10, 60, 2)}
    for name in metadata.fragments[0].bookies:
        cluster.put(name, WithoutEntries(cluster.client(name), lost))
    marks = UnderReplicatedLedgers(cluster.store)
    await marks.mark(ledger_id, missing=[bookie], why=Cause.DECOMMISSION, now_us=1)
    async with healing(cluster):

        async def is_stuck() -> bool:
            capsys.readouterr()
            assert await run("ledger", "underreplicated", "--json") == 0
            (mark,) = json.loads(capsys.readouterr().out)
            return bool(mark["waiting"])

        await until(is_stuck)
        assert await run("ledger", "underreplicated", "--json") == 0
        ((waiting,),) = [mark["waiting"] for mark in json.loads(capsys.readouterr().out)]
        assert (waiting["why"], waiting["entry_count"]) == ("lost", 28)
        assert waiting["entries"][:3] == [[3, 5], [10, 10], [12, 12]]
        assert len(waiting["entries"]) == 16
        assert waiting["are_more"] is False
        named = ", ".join(map(str, range(10, 40, 2)))
        for command in (("ledger", "underreplicated"), ("autorecovery", "status")):
            assert await run(*command) == 0
            out = capsys.readouterr().out
            assert f"waits: lost, entries 3..5, {named}, and 10 more: no other bookie" in out


class WithoutEntries:
    """A client of a bookie that lacks entries, and says so."""

    def __init__(self, client: Any, lost: set[int]) -> None:
        self._client = client
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def read(self, ledger_id: int, entry_id: int, **options: Any) -> Any:
        if entry_id in self._lost:
            raise FencelogError(ErrorCode.NO_SUCH_ENTRY, f"no entry {entry_id}")
        after = [lost for lost in self._lost if lost > entry_id]
        most = min([options["max_entries"], *(lost - entry_id for lost in after)])
        return await self._client.read(ledger_id, entry_id, **{**options, "max_entries": most})


async def test_a_bookie_is_replaced_in_one_ledger(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    other, _ = await closed_ledger(cluster)
    before = await named(cluster, other)
    async with healing(cluster):
        assert await run("ledger", "replace-bookie", str(ledger_id), bookie) == 0
        assert capsys.readouterr().out.startswith(f"ledger {ledger_id} has no copies on bookie")
        assert await run("check", "--repeats", "0") == 0
    assert bookie not in await named(cluster, ledger_id)
    assert await named(cluster, other) == before
    capsys.readouterr()
    assert await run("ledger", "replace-bookie", str(ledger_id), bookie) == EXIT_ERROR
    assert f"bookie {bookie} has no part of ledger {ledger_id}" in capsys.readouterr().err
    assert await run("ledger", "replace-bookie", "77", bookie) == EXIT_ERROR
    assert "ledger 77 is not there" in capsys.readouterr().err


async def test_the_auditor_is_named_and_checks_on_request(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await closed_ledger(cluster)
    assert await run("ledger", "who-is-auditor") == EXIT_ERROR
    assert "there is no auditor" in capsys.readouterr().err
    assert await run("ledger", "audit", "ledgers", "--no-wait") == 0
    assert capsys.readouterr().out == "asked for: ledgers\n"
    async with healing(cluster):
        assert await run("ledger", "audit", "cluster", "ledgers") == 0
        out = capsys.readouterr().out
        assert "cluster: finished_us" in out
        assert "violation_count 0" in out
        assert "ledgers: finished_us" in out
        assert await run("ledger", "audit", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["results"]["ledgers"]["marked"] == 0
        assert found["requested"] == []
        assert await run("ledger", "who-is-auditor") == 0
        assert capsys.readouterr().out == "healer\n"
    assert await run("ledger", "who-is-auditor") == EXIT_ERROR


async def test_off_holds_for_all_until_on(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    async with healing(cluster):
        assert await run("autorecovery", "off") == 0
        assert capsys.readouterr().out == "self-healing is off\n"
        assert await run("ledger", "replace-bookie", str(ledger_id), bookie, "--no-wait") == 0
        await asyncio.sleep(0.5)  # several looks of the worker
        assert bookie in await named(cluster, ledger_id)
        assert await run("autorecovery", "status", "--json") == 0
        shown = json.loads(capsys.readouterr().out.partition("\n")[2])
        assert shown["is_enabled"] is False
        (process,) = shown["processes"]
        assert (process["process_id"], process["worker"]["is_disabled"]) == ("healer", True)
        assert await run("autorecovery", "on") == 0
        await until(lambda: has_left(cluster, ledger_id, bookie))


async def test_settings_change_for_all(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("autorecovery", "set", "--copy-bytes-per-s", "1000") == 0
    assert "copy_bytes_per_s of all processes: 1,000" in capsys.readouterr().out
    assert await run("autorecovery", "set", "--lost-bookie-grace-ms", "5", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {
        "is_enabled": True,
        "lost_bookie_grace_ms": 5,
        "copy_bytes_per_s": 1000,
        "balance_bytes_per_s": None,
    }
    assert await run("autorecovery", "set") == EXIT_USAGE
    assert await run("autorecovery", "status") == 0
    assert "no process runs: nothing is repaired" in capsys.readouterr().out


async def test_a_dead_bookie_is_recovered_before_its_grace_has_ended(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    assert await run("bookie", "recover", bookie) == EXIT_ERROR
    assert f"bookie {bookie} is registered" in capsys.readouterr().err
    await remove(cluster.store, f"{BOOKIES_PATH}/{bookie}")
    await cluster.kill(bookie)
    async with healing(cluster):
        assert await run("bookie", "recover", bookie) == 0
    assert f"1 ledgers named bookie {bookie}, and none does" in capsys.readouterr().out
    assert bookie not in await named(cluster, ledger_id)
    assert await run("check", "--repeats", "0") == 0


async def test_a_bookie_is_decommissioned_while_it_runs(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    assert await run("bookie", "decommission", bookie, "--status") == EXIT_ERROR
    assert "is not being removed" in capsys.readouterr().err
    async with healing(cluster):
        deciding = asyncio.create_task(run("bookie", "decommission", bookie, "--yes"))
        await until(lambda: is_read_only(cluster, bookie))
        await remove(cluster.store, f"{BOOKIES_PATH}/{bookie}")
        info = cluster.describe(bookie)
        read_only = type(info)(bookie, info.incarnation, info.rack, 0, True)
        value = bookie_registration("nowhere:1", read_only)
        await cluster.store.create(f"{BOOKIES_PATH}/{bookie}", value)
        assert await deciding == 0
        assert "stop it, and its cookie goes" in capsys.readouterr().out
        assert bookie not in await named(cluster, ledger_id)
        await remove(cluster.store, f"{BOOKIES_PATH}/{bookie}")
        await until(lambda: has_no_cookie(cluster, bookie))
    assert len(await cluster.store.children("/cookies")) == 3
    capsys.readouterr()
    for name in await named(cluster, ledger_id):
        assert await run("bookie", "decommission", name, "--yes") == EXIT_ERROR
        assert "start others first" in capsys.readouterr().err


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


def test_a_service_says_the_same_over_http(service: str, topic: str) -> None:
    def said(*arguments: str) -> Any:
        done = fencelog(*arguments, "--json", "--server", service)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert fencelog("append", topic, "--server", service, stdin=b"x\n").returncode == 0
    assert said("ledger", "who-is-auditor")["process_id"] == "standalone"
    assert said("ledger", "underreplicated") == []
    assert said("autorecovery", "off")["is_enabled"] is False
    assert said("autorecovery", "on")["is_enabled"] is True
    (process,) = said("autorecovery", "status")["processes"]
    assert process["process_id"] == "standalone"
    for _ in range(100):  # it says so soon after its election
        if process["is_auditor"]:
            break
        time.sleep(0.1)
        (process,) = said("autorecovery", "status")["processes"]
    assert process["is_auditor"]
    refused = fencelog("bookie", "decommission", "bookie-1", "--yes", "--server", service)
    assert refused.returncode == EXIT_ERROR
    assert "only 2 take adds: start others first" in complaint(refused)
    running = fencelog("bookie", "recover", "bookie-1", "--server", service)
    assert "bookie bookie-1 is registered" in complaint(running)
    nobody = fencelog("bookie", "decommission", "b9", "--status", "--server", service)
    assert "bookie b9 is not being removed" in complaint(nobody)
    metrics = httpx.get(f"{service}/metrics", trust_env=False).text
    assert 'fencelog_auditor{process="standalone"} 1.0' in metrics
    assert "fencelog_underreplicated_ledgers 0.0" in metrics
    assert "fencelog_recent_check_missing_copies_ledgers 0.0" in metrics
    assert "fencelog_recent_check_looks_total" in metrics
    assert "fencelog_balance_ledgers_to_move 0.0" in metrics
    assert 'fencelog_balance_moved_bytes_total{process="standalone"} 0.0' in metrics
    assert 'fencelog_rereplicated_bytes_total{process="standalone"} 0.0' in metrics
