"""The auditor: grace times, lost bookies, decommissions, and its endurance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencelog.bookie.auditor import auditor as auditor_module
from fencelog.bookie.auditor import lost_bookies
from fencelog.bookie.auditor.audit_store import AuditStore
from fencelog.bookie.auditor.auditor import Auditor, AuditorConfig
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from tests.bookie.auditor.audit_stage import NEVER, AuditStage, auditing, marked


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


async def test_a_bug_in_one_decommission_holds_up_no_other(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.ledger(1, "b2 b3 b4")
    await stage.lose("b5")
    jobs = Decommissions(stage.store)
    await jobs.start("b1", host=stage.host)
    await jobs.start("b5", host=stage.host)
    async with auditing(stage) as auditor:
        step = auditor._decommissioner.step

        async def fails_for_one(name: str) -> None:
            if name == "b1":
                raise ZeroDivisionError("a bug")
            await step(name)

        monkeypatch.setattr(auditor._decommissioner, "step", fails_for_one)
        await asyncio.sleep(120)
        assert [job.bookie_id for job in await jobs.list()] == ["b1"]


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
