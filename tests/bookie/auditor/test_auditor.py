"""The auditor: grace times, checks that are due or asked for, decommissions, and its endurance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencelog.bookie.auditor import auditor as auditor_module
from fencelog.bookie.auditor import lost_bookies
from fencelog.bookie.auditor.audit_store import AuditStore
from fencelog.bookie.auditor.auditor import Auditor, AuditorConfig
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.auditor.placement_marks import PlacementCheck
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from tests.bookie.auditor.audit_stage import AuditStage

NEVER = dict.fromkeys(CheckName, 0)


@asynccontextmanager
async def auditing(stage: AuditStage, **settings: Any) -> AsyncIterator[Auditor]:
    settings = {"intervals_ms": NEVER, "lost_bookie_grace_ms": 600_000, **settings}
    auditor = Auditor(stage.store, stage, host=stage.host, config=AuditorConfig(**settings))
    task = asyncio.create_task(auditor.run())
    await asyncio.sleep(1)
    yield auditor
    task.cancel()
    await asyncio.wait([task])


async def marked(stage: AuditStage) -> list[int]:
    return [ledger_id async for ledger_id in stage.marks.list_ids()]


async def eventually(condition: Callable[[], bool], *, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.5)


async def test_ledgers_of_a_lost_bookie_are_marked_after_the_grace_time(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2, "b2 b3 b4")
    async with auditing(stage) as auditor:
        await stage.lose("b1")
        await asyncio.sleep(590)
        assert await marked(stage) == []
        assert auditor.status()["absent_bookies"].keys() == {"b1"}
        assert auditor.status()["lost_bookies"] == []
        await asyncio.sleep(20)
        assert await marked(stage) == [1]
        assert auditor.status()["lost_bookies"] == ["b1"]
        await asyncio.sleep(3600)
        assert auditor.lost_bookie_marks == 1, "marked once, not at every look"


async def test_a_rolling_restart_marks_nothing(stage: AuditStage) -> None:
    await stage.ledger(1)
    async with auditing(stage):
        for name in stage.bookies:
            await stage.deregister(name)
            await asyncio.sleep(400)
            await stage.register(name)
        await asyncio.sleep(1000)
        assert await marked(stage) == []


async def test_several_lost_bookies_do_not_shorten_the_grace_time(stage: AuditStage) -> None:
    await stage.ledger(1)
    async with auditing(stage):
        for name in ("b1", "b2", "b3"):
            await stage.lose(name)
        await asyncio.sleep(590)
        assert await marked(stage) == []
        await asyncio.sleep(20)
        mark = await stage.marks.get(1)
        assert mark is not None
        assert sorted(mark.missing) == ["b1", "b2", "b3"]


async def test_a_bookie_that_is_lost_again_is_marked_again(stage: AuditStage) -> None:
    await stage.ledger(1)
    async with auditing(stage, lost_bookie_grace_ms=60_000):
        await stage.lose("b1")
        await asyncio.sleep(80)
        mark = await stage.marks.get(1)
        assert mark is not None
        await stage.register("b1")
        await asyncio.sleep(20)
        await stage.marks.unmark(1, mark.version)
        await stage.lose("b1")
        await asyncio.sleep(80)
        assert await marked(stage) == [1]


async def test_a_bookie_that_is_lost_during_a_scan_is_marked_by_the_next(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.ledger(1)
    await stage.ledger(2, "b2 b3 b4")
    scan = lost_bookies.check_bookies

    async def slow_scan(*arguments: Any, **options: Any) -> lost_bookies.BookieCheck:
        found = await scan(*arguments, **options)
        await asyncio.sleep(100)
        return found

    monkeypatch.setattr(auditor_module, "check_bookies", slow_scan)
    async with auditing(stage, lost_bookie_grace_ms=60_000):
        await stage.lose("b1")
        await asyncio.sleep(30)
        await stage.lose("b2")
        await asyncio.sleep(100)
        assert await marked(stage) == [1]
        await asyncio.sleep(200)
        assert await marked(stage) == [1, 2]


async def test_a_scan_marks_nothing_more_once_it_is_turned_off(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_bookies, "_LEDGERS_PER_LOOK", 1)
    for ledger_id in range(1, 9):
        await stage.ledger(ledger_id)
    mark = UnderReplicatedLedgers.mark

    async def mark_and_turn_off(self: UnderReplicatedLedgers, *ids: int, **why: Any) -> None:
        await mark(self, *ids, **why)
        await change_settings(stage.store, is_disabled=True)
        await asyncio.sleep(1)

    monkeypatch.setattr(UnderReplicatedLedgers, "mark", mark_and_turn_off)
    async with auditing(stage, lost_bookie_grace_ms=10_000):
        await stage.lose("b1")
        await asyncio.sleep(100)
        assert await marked(stage) == [1]
        monkeypatch.setattr(UnderReplicatedLedgers, "mark", mark)
        await change_settings(stage.store, is_disabled=False)
        await asyncio.sleep(10)
        assert await marked(stage) == list(range(1, 9))


async def test_the_grace_time_is_changed_while_it_runs(stage: AuditStage) -> None:
    await stage.ledger(1)
    async with auditing(stage) as auditor:
        await stage.lose("b1")
        await asyncio.sleep(30)
        await change_settings(stage.store, lost_bookie_grace_ms=20_000)
        await asyncio.sleep(2)
        assert auditor.grace_ms == 20_000
        assert await marked(stage) == [1]


async def test_nothing_is_marked_while_it_is_off(stage: AuditStage) -> None:
    await stage.ledger(1)
    await change_settings(stage.store, is_disabled=True)
    async with auditing(stage, lost_bookie_grace_ms=10_000) as auditor:
        await stage.lose("b1")
        await AuditStore(stage.store).request(list(CheckName))
        await asyncio.sleep(100)
        assert await marked(stage) == []
        results = await AuditStore(stage.store).results()
        assert results[CheckName.LEDGERS]["skipped"] == "self-healing is off"
        assert results[CheckName.CLUSTER]["ledgers"] == 1
        assert auditor.status()["is_disabled"]
        await change_settings(stage.store, is_disabled=False)
        await asyncio.sleep(2)
        assert await marked(stage) == [1]


async def test_an_outage_of_the_store_starts_the_clocks_anew(stage: AuditStage) -> None:
    """All sessions end with it, and bookies need a while to be back."""
    await stage.ledger(1)
    async with auditing(stage):
        await stage.deregister("b1")
        await asyncio.sleep(400)
        stage.store.disconnect()
        stage.store.expire()
        await asyncio.sleep(300)
        stage.store.reconnect()
        await asyncio.sleep(200)
        await stage.register("b1")
        await asyncio.sleep(1000)
        assert await marked(stage) == []


async def test_a_bookie_without_cookie_is_lost_as_well(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.give_up("b1")
    async with auditing(stage, lost_bookie_grace_ms=60_000):
        await AuditStore(stage.store).request([CheckName.BOOKIES])
        await asyncio.sleep(100)
        assert await marked(stage) == [1]


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


async def test_a_check_that_fails_for_good_is_a_result(stage: AuditStage) -> None:
    await stage.store.create("/ledgers/nonsense", b"")
    audits = AuditStore(stage.store)
    async with auditing(stage):
        await audits.request([CheckName.LEDGERS])
        await asyncio.sleep(5)
        assert "nonsense" in (await audits.results())[CheckName.LEDGERS]["error"]


async def test_a_check_that_fails_for_now_is_made_again_and_no_result(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()

    async def fails_once(*_: Any, **__: Any) -> PlacementCheck:
        made.append("")
        if len(made) == 1:
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away")
        return PlacementCheck()

    monkeypatch.setattr(auditor_module, "check_placement", fails_once)
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


async def test_another_auditor_knows_bookies_without_a_cookie_soon(stage: AuditStage) -> None:
    """The earlier one has just made the scan that names them."""
    await stage.ledger(1)
    await stage.give_up("b1")
    intervals = {**NEVER, CheckName.BOOKIES: 24 * 3_600_000}
    for _ in range(2):
        async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=10_000):
            await asyncio.sleep(300)
            assert await marked(stage) == []
    async with auditing(stage, intervals_ms=intervals, first_check_delay_ms=10_000):
        await asyncio.sleep(620)
        assert await marked(stage) == [1]


async def test_results_that_cannot_be_read_are_none(stage: AuditStage) -> None:
    await stage.store.create("/auditor/checks/ledgers", b"[]")
    await stage.store.create("/auditor/checks/cluster", b"{")
    await stage.store.create("/auditor/request", b'{"checks": ["ledgers", "nonsense"]}')
    audits = AuditStore(stage.store)
    assert await audits.results() == {}
    request = await audits.requested()
    assert request is not None
    assert request.checks == (CheckName.LEDGERS,)


async def test_decommissions_are_carried_on(stage: AuditStage) -> None:
    await stage.ledger(1, "b2 b3 b4")
    await stage.lose("b1")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await jobs.start("b5", host=stage.host)
    async with auditing(stage):
        await asyncio.sleep(60)
        assert [job.bookie_id for job in await jobs.list()] == ["b5"]
        assert (await CookieRegistry(stage.store).read("b1")).registered.cookie is None


async def test_errors_of_the_store_end_nothing(
    stage: AuditStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.ledger(1)
    async with auditing(stage, lost_bookie_grace_ms=10_000):
        stage.store.disconnect()
        await asyncio.sleep(100)
        stage.store.reconnect()
        await stage.lose("b1")
        await asyncio.sleep(60)
        assert await marked(stage) == [1]
    assert "not connected" in caplog.text


class LaggingStore(MemoryMetadataStore):
    """A session whose server lags behind until it has written: it does not know of any
    registration."""

    lags = True

    async def children(self, path: str) -> list[str]:
        found = await super().children(path)
        return [] if self.lags and path == "/bookies" else found

    async def set(self, path: str, value: bytes, version: Any) -> Any:
        self.lags = False
        return await super().set(path, value, version)


async def test_a_lagging_server_makes_no_bookie_lost(stage: AuditStage) -> None:
    await stage.ledger(1)
    lagging = LaggingStore(stage.memory)
    await lagging.start()
    config = AuditorConfig(intervals_ms=NEVER, lost_bookie_grace_ms=0)
    auditor = Auditor(lagging, stage, host=stage.host, config=config)
    task = asyncio.create_task(auditor.run())
    for _ in range(50):
        lagging.lags = True
        await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    await lagging.close()
    assert await marked(stage) == []


async def test_a_bookie_that_was_back_during_an_outage_is_not_lost(stage: AuditStage) -> None:
    """The session survives, but nothing is seen for a while."""
    await stage.ledger(1)
    async with auditing(stage, lost_bookie_grace_ms=60_000):
        await stage.deregister("b1")
        await asyncio.sleep(40)
        stage.store.disconnect()
        await stage.register("b1")
        await asyncio.sleep(5)
        await stage.deregister("b1")
        await asyncio.sleep(5)
        stage.store.reconnect()
        await asyncio.sleep(40)
        await stage.register("b1")
        await asyncio.sleep(100)
        assert await marked(stage) == []
