"""Ledgers that lack copies, and checks by the auditor, on the command line."""

from __future__ import annotations

import json

import pytest

from fencelog.api.console import EXIT_ERROR
from tests.cli.healing.healing_stage import Run, closed_ledger, healing, named
from tests.support.local_cluster import LocalCluster


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
