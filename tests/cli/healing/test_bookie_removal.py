"""Bookies that leave the cluster, or have left it, on the command line."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from fencelog.api.admin.autorecovery import AutorecoveryAdmin
from fencelog.api.console import EXIT_ERROR, EXIT_USAGE
from fencelog.bookie.auditor.decommission import DECOMMISSIONS_PATH, Decommissions
from fencelog.bookie.auditor.decommission_core import Phase
from fencelog.bookie.identity.cookie_registry import COOKIES_PATH
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import ledger_path
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from tests.cli.healing.healing_stage import (
    Run,
    closed_ledger,
    fail_at_times,
    has_no_cookie,
    healing,
    is_read_only,
    named,
    until,
    until_said,
)
from tests.support.local_cluster import LocalCluster
from tests.support.metadata_nodes import overwrite, remove
from tests.support.until import until_found


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


async def begun(cluster: LocalCluster, run: Run, bookie: str) -> asyncio.Task[int]:
    """A command that waits for the end of a decommission, which no auditor carries on."""
    deciding = asyncio.create_task(run("bookie", "decommission", bookie, "--yes"))
    await until_found(lambda: Decommissions(cluster.store).get(bookie))
    return deciding


async def test_a_decommission_that_somebody_cancels_leaves_the_bookie_and_says_so(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    deciding = await begun(cluster, run, bookie)
    await Decommissions(cluster.store).cancel(bookie, cluster)
    assert await deciding == EXIT_ERROR
    said = capsys.readouterr()
    assert said.out == ""
    assert f"was cancelled, or the bookie began anew meanwhile: bookie {bookie} stays" in said.err
    assert bookie in await named(cluster, ledger_id)


async def test_a_decommission_that_is_still_being_cancelled_is_as_good_as_cancelled(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = Decommissions(cluster.store)
    deciding = await begun(cluster, run, "b1")
    found = await jobs.get("b1")
    assert found is not None
    await jobs.write(replace(found[0], phase=Phase.CANCELLING), found[1])
    assert await deciding == EXIT_ERROR
    assert "bookie b1 stays" in capsys.readouterr().err


async def test_a_bookie_without_a_cookie_is_out_of_the_cluster(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    deciding = await begun(cluster, run, "b1")
    await remove(cluster.store, f"{COOKIES_PATH}/b1")
    await remove(cluster.store, f"{DECOMMISSIONS_PATH}/b1")
    assert await deciding == 0
    assert capsys.readouterr().out == "bookie b1 is out of the cluster\n"


@pytest.mark.parametrize(("failures", "code"), [(2, 0), (3, EXIT_ERROR)])
async def test_a_decommission_is_looked_at_again_where_the_store_is_away_for_a_moment(
    failures: int,
    code: int,
    cluster: LocalCluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = failures

    async def decommission(_admin: AutorecoveryAdmin, bookie: str) -> dict[str, Any]:
        nonlocal left
        left -= 1
        if left >= 0:
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "the store is away")
        return {"bookie_id": bookie, "phase": "drained", "remainder": None}

    monkeypatch.setattr("fencelog.api.cli.healing.bookie_removal.MAX_FAILED_LOOKS", 2)
    monkeypatch.setattr(AutorecoveryAdmin, "decommission", decommission)
    assert await run("bookie", "decommission", "b1", "--yes") == code
    assert ("the store is away" in capsys.readouterr().err) is (code != 0)


async def test_a_name_that_no_bookie_has_is_not_recovered(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, _ = await closed_ledger(cluster)
    assert await run("bookie", "recover", "bookei-1") == EXIT_ERROR
    said = capsys.readouterr()
    assert said.out == ""
    assert "there is no bookie bookei-1: it has no cookie, and no ledger names it" in said.err
    await overwrite(cluster.store, ledger_path(LEDGERS_PATH, ledger_id), b"nonsense")
    assert await run("bookie", "recover", "bookei-1") == EXIT_ERROR
    assert "; 1 could not be read" in capsys.readouterr().err


async def test_a_bookie_is_recovered_after_its_cookie_has_gone(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    await remove(cluster.store, f"{BOOKIES_PATH}/{bookie}")
    await cluster.kill(bookie)
    await remove(cluster.store, f"{COOKIES_PATH}/{bookie}")
    async with healing(cluster):
        assert await run("bookie", "recover", bookie) == 0
    assert f"1 ledgers named bookie {bookie}, and none does" in capsys.readouterr().out
    assert bookie not in await named(cluster, ledger_id)


async def test_metadata_that_cannot_be_read_may_name_a_bookie_that_is_recovered(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger_id, bookie = await closed_ledger(cluster)
    broken, _ = await closed_ledger(cluster)
    await overwrite(cluster.store, ledger_path(LEDGERS_PATH, broken), b"nonsense")
    await remove(cluster.store, f"{BOOKIES_PATH}/{bookie}")
    await cluster.kill(bookie)
    async with healing(cluster):
        assert await run("bookie", "recover", bookie) == EXIT_ERROR
    said = capsys.readouterr()
    assert f"1 ledgers named bookie {bookie}, and none that can be read does" in said.out
    assert "the metadata of 1 ledgers could not be read" in said.err
    assert bookie not in await named(cluster, ledger_id)
    assert await run("bookie", "recover", bookie, "--no-wait") == EXIT_ERROR
    assert capsys.readouterr().out == f"0 ledgers of bookie {bookie} are marked\n"
    assert await run("bookie", "recover", bookie, "--json") == EXIT_ERROR
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"bookie_id": bookie, "ledgers": 0, "unreadable": 1, "is_done": False}


async def test_an_outage_of_a_moment_ends_no_recovery(
    cluster: LocalCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bookie = await closed_ledger(cluster)
    await remove(cluster.store, f"{BOOKIES_PATH}/{bookie}")
    await cluster.kill(bookie)
    failed = fail_at_times(monkeypatch, "recover", "underreplicated")
    async with healing(cluster):
        assert await run("bookie", "recover", bookie) == 0
    assert min(failed["recover"], failed["underreplicated"]) > 0


async def test_that_nobody_carries_a_decommission_on_is_said_while_a_command_waits(
    cluster: LocalCluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("fencelog.api.cli.healing.progress._PROGRESS_S", 0.02)
    deciding = await begun(cluster, run, "b1")
    await until_said(capsys, "bookie b1 waits: there is no auditor")
    assert await run("autorecovery", "off") == 0
    await until_said(capsys, "bookie b1 waits: self-healing is off")
    await Decommissions(cluster.store).cancel("b1", cluster)
    assert await deciding == EXIT_ERROR


async def test_a_decommission_is_either_cancelled_or_looked_at(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    deciding = await begun(cluster, run, "b1")
    assert await run("bookie", "decommission", "b1", "--cancel", "--status") == EXIT_USAGE
    assert "either of them" in capsys.readouterr().err
    assert await Decommissions(cluster.store).get("b1") is not None
    await Decommissions(cluster.store).cancel("b1", cluster)
    assert await deciding == EXIT_ERROR
