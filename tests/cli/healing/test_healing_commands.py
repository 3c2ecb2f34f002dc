"""Self-healing on the command line, over real bookies with an auditor and a worker beside them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from fencelog.api.console import EXIT_ERROR, EXIT_USAGE
from fencelog.bookie.replication.store import Cause, FragmentMove, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from tests.cli.healing.healing_stage import (
    Run,
    closed_ledger,
    has_left,
    healing,
    is_unmarked,
    named,
    until,
)
from tests.support.fencelog_cli import complaint, fencelog
from tests.support.local_cluster import LocalCluster
from tests.support.until import PATIENCE_S


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
    assert process["updated_us"] >= process["started_us"]
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
    for bookie, is_there in (("b9", False), ("bookie-1", True)):
        path = f"/v1/admin/decommissions/{bookie}"
        problem = httpx.get(f"{service}{path}", trust_env=False, timeout=PATIENCE_S).json()
        assert (problem["code"], problem["has_cookie"]) == ("not_found", is_there)
    metrics = httpx.get(f"{service}/metrics", trust_env=False, timeout=PATIENCE_S).text
    assert 'fencelog_auditor{process="standalone"} 1.0' in metrics
    assert "fencelog_underreplicated_ledgers 0.0" in metrics
    assert "fencelog_recent_check_missing_copies_ledgers 0.0" in metrics
    assert "fencelog_recent_check_looks_total" in metrics
    assert "fencelog_balance_ledgers_to_move 0.0" in metrics
    assert 'fencelog_balance_moved_bytes_total{process="standalone"} 0.0' in metrics
    assert 'fencelog_rereplicated_bytes_total{process="standalone"} 0.0' in metrics
