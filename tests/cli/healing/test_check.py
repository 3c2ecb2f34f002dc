"""``fencelog check`` over real bookies: what it reports, its exit codes, and its progress."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fencelog.api.cli import main as cli
from fencelog.api.cli.healing.admin_access import RemoteAdmin
from fencelog.api.console import EXIT_ERROR, EXIT_USAGE
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.ledger_metadata.ledger_nodes import ledger_path
from fencelog.ledgers.ledger_metadata.model import Fragment
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from tests.cli.healing.healing_stage import Run, commands_over
from tests.support.fencelog_cli import complaint, fencelog
from tests.support.local_cluster import LocalCluster
from tests.support.metadata_nodes import overwrite, remove


@pytest.fixture(autouse=True)
def quiet_logger() -> Iterator[None]:
    """Restores the logger that the command turns off in its own process."""
    logger = logging.getLogger("fencelog.bookie.auditor")
    before = logger.propagate
    yield
    logger.propagate = before


@pytest.fixture
def run(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``fencelog check …`` over the cluster of this process; gives the exit code."""
    run = commands_over(cluster, monkeypatch, within_s=20)

    async def check(*arguments: str) -> int:
        return await run("check", *arguments, "--repeat-delay-ms", "1")

    return check


async def closed_ledger(cluster: LocalCluster) -> int:
    writer = await cluster.write(b"0", b"1", b"2")
    await writer.close()
    return writer.metadata.ledger_id


async def misplace(cluster: LocalCluster, ledger_id: int) -> str:
    """Have the metadata name a bookie that has no entry of the ledger; returns it."""
    metadata, version = await cluster.ledgers.get(ledger_id)
    old = metadata.fragments[0].bookies
    (other,) = cluster.bookies.keys() - set(old)
    changed = replace(metadata, fragments=(Fragment(0, (*old[1:], other)),))
    await cluster.ledgers.update(changed, version)
    return other


async def test_a_cluster_that_is_whole_has_no_violation(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await closed_ledger(cluster)
    await cluster.write(b"0")
    assert await run() == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("1 of 2 ledgers were checked in ")
    assert "1 are not closed" in out[0]
    assert out[1:] == ["no violation"]
    assert await run("--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["ledgers"], shown["checked"], shown["violations"]) == (2, 1, [])


async def test_violations_come_by_category_with_everything_known(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await closed_ledger(cluster)
    broken = await closed_ledger(cluster)
    await overwrite(cluster.store, ledger_path(LEDGERS_PATH, broken), b"nonsense")
    other = await misplace(cluster, first)
    assert await run() == EXIT_ERROR
    said = capsys.readouterr()
    out = said.out.splitlines()
    assert out[0] == "below_write_quorum: 1 (entries have fewer than Qw copies)"
    assert out[1] == f"  ledger {first}, fragment from entry 0: entries 0..2: not on {other}"
    assert out[2].startswith("unreadable_metadata: 1 ")
    assert out[-1] == "2 violations"
    assert said.err == ""
    assert await run("--json", "--repeats", "0") == EXIT_ERROR
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"]["below_write_quorum"] == 1
    (found,) = (each for each in shown["violations"] if each["kind"] == "below_write_quorum")
    assert found["ledger_id"] == first
    assert (found["entries"], found["entry_count"], found["absent"]) == ([[0, 2]], 3, [other])


async def test_what_is_marked_or_not_known_is_told_apart_from_violations(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = await closed_ledger(cluster)
    metadata, _ = await cluster.ledgers.get(await closed_ledger(cluster))
    silent = metadata.fragments[0].bookies[0]
    now_us = 2**62  # later than any clock: not for too long
    marks = UnderReplicatedLedgers(cluster.store)
    await marks.mark(marked, missing=["b1"], why=Cause.LOST_BOOKIE, now_us=now_us)
    await remove(cluster.store, f"{BOOKIES_PATH}/{silent}")
    cluster.cut(silent)
    assert await run() == 0
    out = capsys.readouterr().out
    assert "1 are marked as under-replicated" in out
    assert "not verified: 1 ledgers (a bookie does not answer)" in out
    assert out.endswith("no violation\n")


async def test_progress_goes_to_stderr(
    cluster: LocalCluster,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.api.cli.healing.progress._PROGRESS_S", 0.001)
    await misplace(cluster, await closed_ledger(cluster))
    assert await run("--json", "--repeat-delay-ms", "50") == EXIT_ERROR
    said = capsys.readouterr()
    json.loads(said.out)
    assert "1 of 1 ledgers" in said.err


def test_a_cluster_that_cannot_be_checked_is_no_violation() -> None:
    """Another exit code: a script must not take one for the other."""
    for url, words in (
        ("zk://127.0.0.1:9/fencelog", "no ZooKeeper answers at 127.0.0.1:9"),
        ("nonsense", "is not valid"),
    ):
        done = fencelog("check", "--metadata", url)
        assert done.returncode == EXIT_USAGE
        said = complaint(done)
        assert said.startswith("the cluster could not be checked: ")
        assert words in said
    nobody = fencelog("check", "--server", "http://127.0.0.1:9")
    assert nobody.returncode == EXIT_USAGE
    assert "cannot reach http://127.0.0.1:9" in complaint(nobody)
    assert fencelog("check", "--metadata", "memory:", "--repeats", "-1").returncode == EXIT_USAGE


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ({"cluster": {"finished_us": 1, "error": "nonsense"}}, "nonsense"),
        ({}, "its result cannot be read"),
    ],
)
def test_a_check_of_the_auditor_that_fails_is_no_violation(
    results: dict[str, Any],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def auditor(_admin: RemoteAdmin) -> dict[str, Any]:
        return {"auditor": {"process_id": "h", "since_us": 1}}

    async def audit(_admin: RemoteAdmin, _checks: list[str]) -> dict[str, Any]:
        return {"results": results, "requested": []}

    monkeypatch.setattr(RemoteAdmin, "auditor", auditor)
    monkeypatch.setattr(RemoteAdmin, "audit", audit)
    assert cli.run(["check"]) == EXIT_USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert f"the cluster could not be checked: {why}" in said.err


def test_the_auditor_of_a_service_checks(service: str) -> None:
    done = fencelog("check", "--server", service)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"no violation\n")


@pytest.mark.parametrize("option", ["--repeats", "--repeat-delay-ms"])
def test_the_auditor_is_not_told_how_to_repeat(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check", option, "5", "--server", "http://127.0.0.1:1"]) == EXIT_USAGE
    assert "it needs --metadata" in capsys.readouterr().err
