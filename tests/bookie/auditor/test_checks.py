"""The checks of an auditor: when they are made, and those that fail, or end early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.bookie.auditor import auditor as auditor_module
from fencelog.bookie.auditor.audit_store import AuditStore, completed_us
from fencelog.bookie.auditor.placement_marks import PlacementCheck
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.replication.settings import SETTINGS_PATH, change_settings
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.bookie.auditor.audit_stage import NEVER, AuditStage, auditing, marked


def failing_once(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> list[None]:
    """Let the first check of placement fail; return what counts all of them."""
    made: list[None] = []

    async def check(*_: Any, **__: Any) -> PlacementCheck:
        made.append(None)
        if len(made) == 1:
            raise FencelogError(code, "why")
        return PlacementCheck()

    monkeypatch.setattr(auditor_module, "check_placement", check)
    return made


async def test_checks_are_made_when_they_are_due(stage: AuditStage) -> None:
    await stage.ledger(1)
    audits = AuditStore(stage.store)
    intervals = {CheckName.LEDGERS: 3_600_000, CheckName.CLUSTER: 0}
    async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=60_000):
        await asyncio.sleep(30)
        assert await audits.results() == {}
        await asyncio.sleep(40)
        first = (await audits.results())[CheckName.LEDGERS]
        assert first["ledgers"] == 1
    async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=0):
        await asyncio.sleep(600)
        assert (await audits.results())[CheckName.LEDGERS] == first, "it was made by another one"
        await asyncio.sleep(3600)
        again = (await audits.results())[CheckName.LEDGERS]
        assert again["finished_us"] - first["finished_us"] >= 3_600_000_000


async def test_checks_are_made_when_they_are_asked_for(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 4)
    audits = AuditStore(stage.store)
    async with auditing(stage) as auditor:
        await audits.request([CheckName.CLUSTER])
        await audits.request([CheckName.PLACEMENT])
        await asyncio.sleep(100)
        assert await audits.requested() is None
        results = await audits.results()
        assert results.keys() == {CheckName.CLUSTER, CheckName.PLACEMENT}
        assert results[CheckName.CLUSTER]["counts"]["below_write_quorum"] == 1
        assert auditor.last_check is not None
        assert not auditor.last_check.is_clean
        await audits.request([CheckName.LEDGERS])
        await asyncio.sleep(10)
        assert await marked(stage) == [1]


async def test_a_request_that_waits_for_an_auditor_is_done_by_the_next(stage: AuditStage) -> None:
    audits = AuditStore(stage.store)
    await audits.request([CheckName.BOOKIES])
    async with auditing(stage):
        await asyncio.sleep(5)
        assert await audits.requested() is None
        assert CheckName.BOOKIES in await audits.results()


async def test_a_check_that_is_asked_for_while_others_are_made_is_made_too(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def long(*_: Any, **__: Any) -> PlacementCheck:
        began.set()
        await goes_on.wait()
        return PlacementCheck()

    monkeypatch.setattr(auditor_module, "check_placement", long)
    audits = AuditStore(stage.store)
    async with auditing(stage):
        await audits.request([CheckName.PLACEMENT])
        await began.wait()
        await audits.request([CheckName.BOOKIES])
        goes_on.set()
        await asyncio.sleep(10)
        assert CheckName.BOOKIES in await audits.results()
        assert await audits.requested() is None


async def test_a_check_that_fails_for_good_is_a_result(stage: AuditStage) -> None:
    await stage.store.create("/ledgers/nonsense", b"")
    audits = AuditStore(stage.store)
    async with auditing(stage):
        await audits.request([CheckName.LEDGERS])
        await asyncio.sleep(5)
        assert "nonsense" in (await audits.results())[CheckName.LEDGERS]["error"]


async def test_a_check_that_has_failed_or_was_skipped_remembers_when_it_was_last_made(
    stage: AuditStage,
) -> None:
    audits = AuditStore(stage.store)

    async def result() -> dict[str, Any]:
        await audits.request([CheckName.LEDGERS])
        await asyncio.sleep(10)
        return (await audits.results())[CheckName.LEDGERS]

    async with auditing(stage):
        await stage.store.create("/ledgers/nonsense", b"")
        assert completed_us(await result()) is None
        nonsense = await stage.store.get("/ledgers/nonsense")
        await stage.store.delete("/ledgers/nonsense", nonsense.version)
        made = await result()
        assert completed_us(made) == made["finished_us"]
        await stage.store.create("/ledgers/nonsense", b"")
        for _ in range(2):
            failed = await result()
            assert "error" in failed
            assert completed_us(failed) == made["finished_us"] < failed["finished_us"]
        await change_settings(stage.store, is_disabled=True)
        assert "skipped" in (skipped := await result())
        assert completed_us(skipped) == made["finished_us"]


async def test_a_check_that_fails_for_now_is_made_again_and_no_result(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = failing_once(monkeypatch, ErrorCode.METADATA_UNAVAILABLE)
    audits = AuditStore(stage.store)
    async with auditing(stage) as auditor:
        await audits.request([CheckName.PLACEMENT])
        await asyncio.sleep(1)
        assert (len(made), auditor.running) == (1, None)
        assert await audits.results() == {}
        assert await audits.requested() is not None
        await asyncio.sleep(10)
        assert len(made) == 2
        assert "error" not in (await audits.results())[CheckName.PLACEMENT]


async def test_a_check_that_is_skipped_is_made_when_it_is_on_again(stage: AuditStage) -> None:
    intervals = {**NEVER, CheckName.LEDGERS: 7 * 24 * 3_600_000}
    audits = AuditStore(stage.store)
    await change_settings(stage.store, is_disabled=True)
    async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=10_000):
        await asyncio.sleep(100)
        assert CheckName.LEDGERS not in await audits.results()
        await audits.request([CheckName.LEDGERS])
        await asyncio.sleep(10)
        assert "skipped" in (await audits.results())[CheckName.LEDGERS]
        await change_settings(stage.store, is_disabled=False)
        await asyncio.sleep(10)
        assert "skipped" not in (await audits.results())[CheckName.LEDGERS]


async def test_a_check_that_runs_as_it_is_turned_off_ends_and_is_made_later(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, goes_on = list[str](), asyncio.Event()

    async def long(*_: Any, **__: Any) -> PlacementCheck:
        made.append("began")
        await goes_on.wait()
        made.append("ended")
        return PlacementCheck()

    monkeypatch.setattr(auditor_module, "check_placement", long)
    intervals = {**NEVER, CheckName.PLACEMENT: 7 * 24 * 3_600_000}
    audits = AuditStore(stage.store)
    async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=1_000) as auditor:
        await asyncio.sleep(10)
        assert auditor.running is CheckName.PLACEMENT
        await change_settings(stage.store, lost_bookie_grace_ms=20_000)
        await asyncio.sleep(10)
        assert auditor.running is CheckName.PLACEMENT
        await change_settings(stage.store, is_disabled=True)
        await asyncio.sleep(1)
        assert made == ["began"]
        assert auditor.status()["running"] is None
        assert "skipped" in (await audits.results())[CheckName.PLACEMENT]
        goes_on.set()
        await change_settings(stage.store, is_disabled=False)
        await asyncio.sleep(10)
        assert made == ["began", "began", "ended"]
        assert "skipped" not in (await audits.results())[CheckName.PLACEMENT]


async def test_a_check_that_has_failed_is_made_again_within_the_hour(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = failing_once(monkeypatch, ErrorCode.METADATA_NOT_FOUND)
    intervals = {**NEVER, CheckName.PLACEMENT: 7 * 24 * 3_600_000}
    async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=1_000):
        await asyncio.sleep(3_500)
        assert len(made) == 1
        await asyncio.sleep(200)
        assert len(made) == 2
        await asyncio.sleep(24 * 3_600)
        assert len(made) == 2


async def test_settings_that_cannot_be_read_end_no_check_that_only_reports(
    stage: AuditStage,
) -> None:
    """Self-healing is off then, as for everybody who watches them."""
    await stage.ledger(1)
    await stage.store.create(SETTINGS_PATH, b"no settings")
    audits = AuditStore(stage.store)
    await audits.request(list(CheckName))
    async with auditing(stage, lost_bookie_grace_ms=10_000) as auditor:
        await stage.lose("b1")
        await asyncio.sleep(100)
        assert auditor.status()["is_disabled"]
        assert await marked(stage) == []
        assert (await audits.results())[CheckName.CLUSTER]["ledgers"] == 1


async def test_results_that_cannot_be_read_are_none(stage: AuditStage) -> None:
    await stage.store.create("/auditor/checks/ledgers", b"[]")
    await stage.store.create("/auditor/checks/cluster", b"{")
    await stage.store.create("/auditor/request", b'{"checks": ["ledgers", "nonsense", []]}')
    audits = AuditStore(stage.store)
    assert await audits.results() == {}
    request = await audits.requested()
    assert request is not None
    assert request.checks == (CheckName.LEDGERS,)


async def test_a_bug_in_a_check_holds_up_nothing_else(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above all not the absence of a bookie, which another auditor would count anew."""

    async def fails(*_: Any, **__: Any) -> PlacementCheck:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(auditor_module, "check_placement", fails)
    await stage.ledger(1)
    intervals = {**NEVER, CheckName.PLACEMENT: 10_000, CheckName.CLUSTER: 60_000}
    audits = AuditStore(stage.store)
    async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=1_000) as auditor:
        await stage.lose("b1")
        await asyncio.sleep(590)
        assert auditor.status()["absent_bookies"].keys() == {"b1"}
        results = await audits.results()
        assert "a bug" in results[CheckName.PLACEMENT]["error"]
        assert results[CheckName.CLUSTER]["ledgers"] == 1
        await asyncio.sleep(20)
        assert await marked(stage) == [1]


async def test_a_bug_in_one_loop_ends_no_other(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = list[str]()

    async def fails(*_: Any, **__: Any) -> None:
        failed.append("")
        raise ZeroDivisionError("a bug")

    await stage.ledger(1)
    async with auditing(stage) as auditor:
        monkeypatch.setattr(auditor._jobs, "names", fails)
        await change_settings(stage.store, lost_bookie_grace_ms=20_000)
        await stage.lose("b1")
        await asyncio.sleep(30)
        assert len(failed) > 1
        assert await marked(stage) == [1]
