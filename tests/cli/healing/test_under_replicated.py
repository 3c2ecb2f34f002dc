"""Ledgers that lack copies, and checks by the auditor, on the command line."""

from __future__ import annotations

import asyncio
import json

import pytest

from fencelog.api.console import EXIT_ERROR
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from tests.cli.healing.healing_stage import (
    Run,
    closed_ledger,
    fail_at_times,
    healing,
    named,
    until_said,
)
from tests.support.local_cluster import LocalCluster
from tests.support.until import until_found


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


@pytest.mark.parametrize("names", [("ledgers",), ("bookies", "ledgers", "cluster")])
async def test_a_check_that_fails_is_no_check_that_finds_nothing(
    names: tuple[str, ...], cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await closed_ledger(cluster)
    await cluster.store.create("/ledgers/zz", b"")
    async with healing(cluster):
        assert await run("ledger", "audit", *names) == EXIT_ERROR
        said = capsys.readouterr()
        assert "ledgers: finished_us" in said.out
        assert "error" in said.out
        failed = ", ".join(names)
        assert f"failed, so nothing is known from it: the check of {failed}" in said.err
        assert await run("ledger", "audit", *names, "--json") == EXIT_ERROR
        assert "error" in json.loads(capsys.readouterr().out)["results"]["ledgers"]


async def test_a_check_that_is_not_made_is_no_check_that_finds_nothing(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """While self-healing is off nothing is marked; a check that only reports is made."""
    await closed_ledger(cluster)
    async with healing(cluster):
        assert await run("autorecovery", "off") == 0
        for options in ((), ("--json",)):
            assert await run("ledger", "audit", "cluster", "ledgers", *options) == EXIT_ERROR
            said = capsys.readouterr()
            assert "violation_count" in said.out
            assert "not made, as self-healing is off: the check of ledgers\n" in said.err
        assert await run("ledger", "audit", "cluster") == 0


async def waiting_for_a_worker(
    cluster: LocalCluster, run: Run, ledger_id: int, bookie: str, *options: str
) -> asyncio.Task[int]:
    """A command that waits until a ledger is repaired, which nobody does."""
    line = ("ledger", "replace-bookie", str(ledger_id), bookie, *options)
    waiting = asyncio.create_task(run(*line))
    await until_found(lambda: UnderReplicatedLedgers(cluster.store).get(ledger_id))
    return waiting


async def test_a_mark_that_goes_without_a_repair_is_none(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does when a decommission of the bookie is cancelled."""
    marks = UnderReplicatedLedgers(cluster.store)
    ledger_id, bookie = await closed_ledger(cluster)
    waiting = await waiting_for_a_worker(cluster, run, ledger_id, bookie)
    await marks.withdraw(ledger_id, bookie, Cause.DECOMMISSION)
    assert await waiting == EXIT_ERROR
    said = capsys.readouterr()
    assert said.out == ""
    assert f"ledger {ledger_id} still names bookie {bookie}, and is not marked" in said.err
    waiting = await waiting_for_a_worker(cluster, run, ledger_id, bookie, "--json")
    await marks.withdraw(ledger_id, bookie, Cause.DECOMMISSION)
    assert await waiting == EXIT_ERROR
    shown = json.loads(capsys.readouterr().out)
    assert (shown["is_done"], shown["is_deleted"]) == (False, False)


async def test_a_ledger_that_is_deleted_before_its_repair(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    waiting = await waiting_for_a_worker(cluster, run, ledger_id, bookie)
    await cluster.ledgers.delete(ledger_id)
    await UnderReplicatedLedgers(cluster.store).withdraw(ledger_id, bookie, Cause.DECOMMISSION)
    assert await waiting == 0
    assert capsys.readouterr().out == f"ledger {ledger_id} was deleted meanwhile\n"


async def test_an_outage_of_a_moment_ends_no_command_that_waits(
    cluster: LocalCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    failed = fail_at_times(monkeypatch, "mark", "status", "checks")
    replacing = asyncio.create_task(run("ledger", "replace-bookie", str(ledger_id), bookie))
    await until_found(lambda: UnderReplicatedLedgers(cluster.store).get(ledger_id))
    while min(failed["mark"], failed["status"]) == 0:  # noqa: ASYNC110 - a thread does it
        await asyncio.sleep(0.02)
    async with healing(cluster):
        assert await replacing == 0
        while not failed["checks"]:
            assert await run("ledger", "audit", "cluster") == 0


async def test_that_nobody_repairs_is_said_while_a_command_waits(
    cluster: LocalCluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("fencelog.api.cli.healing.progress._PROGRESS_S", 0.02)
    ledger_id, bookie = await closed_ledger(cluster)
    waiting = await waiting_for_a_worker(cluster, run, ledger_id, bookie)
    await until_said(capsys, f"ledger {ledger_id} waits: no autorecovery runs")
    assert await run("autorecovery", "off") == 0
    await until_said(
        capsys, f"ledger {ledger_id} waits: self-healing is off; `fencelog autorecovery on`"
    )
    assert await run("autorecovery", "on") == 0
    async with healing(cluster):
        assert await waiting == 0
