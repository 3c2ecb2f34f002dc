"""The cluster metadata checker: what it accuses, what it does not, and that it reads before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fencelog.bookie.auditor import check_report
from fencelog.bookie.auditor.check_core import Violation, ViolationKind
from fencelog.bookie.auditor.check_report import CheckReport, Unverified
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.replication.store import Cause
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.ledger_metadata.model import Fragment
from tests.bookie.auditor.audit_stage import AuditStage
from tests.support.metadata_nodes import overwrite_now

HOUR_US = 3_600_000_000


def checker(stage: AuditStage, **settings: Any) -> ClusterCheck:
    return ClusterCheck(stage.store, stage, host=stage.host, config=CheckConfig(**settings))


async def check(stage: AuditStage, **settings: Any) -> CheckReport:
    return await checker(stage, **settings).run()


def kinds(report: CheckReport) -> dict[ViolationKind, int]:
    assert len(report.violations) == report.counts.total()
    return dict(report.counts)


async def test_a_cluster_that_is_well_is_clean_at_once(stage: AuditStage) -> None:
    for ledger_id in range(1, 8):
        await stage.ledger(ledger_id)
    await stage.ledger(8, "b1 b2 b3 b4 b5", last=33, then=[(11, "b5 b4 b3 b2 b1")])
    await stage.ledger(9, last=-1)
    await stage.ledger(10, is_closed=False)
    began = asyncio.get_running_loop().time()
    report = await check(stage)
    assert report.is_clean
    assert asyncio.get_running_loop().time() - began < 1
    assert (report.ledgers, report.checked, report.not_closed) == (10, 9, 1)
    assert report.to_json()["violations"] == []


async def test_missing_copies_are_violations_by_what_is_left(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 4, 5, 7)
    stage.drop("b2", 1, 5, 7)
    stage.drop("b3", 1, 7)
    report = await check(stage)
    assert kinds(report) == {
        ViolationKind.BELOW_WRITE_QUORUM: 1,
        ViolationKind.BELOW_ACK_QUORUM: 1,
        ViolationKind.NO_COPY: 1,
    }
    assert [v.detail for v in report.violations] == [
        "entry 4: not on b1",
        "entry 5: not on b1, b2",
        "entry 7: lost with their whole write set, b1, b2, b3",
    ]


async def test_a_ledger_that_a_bookie_denies_is_missing_there(stage: AuditStage) -> None:
    await stage.ledger(1)
    del stage.bookies["b2"].entries[1]
    report = await check(stage)
    assert kinds(report) == {ViolationKind.BELOW_WRITE_QUORUM: 1}
    assert report.violations[0].to_json()["entries"] == [[0, 9]]


async def test_an_add_in_flight_is_no_violation(stage: AuditStage) -> None:
    metadata = await stage.ledger(1)
    held = dict(stage.bookies["b3"].entries[1])
    stage.drop("b3", 1, 9)
    check = checker(stage)
    task = asyncio.create_task(check.run())
    await asyncio.sleep(1)
    assert check.progress.phase == "waiting"
    stage.bookies["b3"].entries[metadata.ledger_id] = held
    assert (await task).is_clean


async def test_a_marked_ledger_is_left_alone_unless_that_takes_too_long(stage: AuditStage) -> None:
    for ledger_id in (1, 2):
        await stage.ledger(ledger_id)
        stage.drop("b1", ledger_id, 3)
    now_us = stage.host.now_us()
    await stage.marks.mark(1, missing=["b1"], why=Cause.MISSING_COPIES, now_us=now_us - HOUR_US)
    await stage.marks.mark(2, missing=["b1"], why=Cause.LOST_BOOKIE, now_us=now_us - 3 * HOUR_US)
    report = await check(stage, too_long_ms=2 * HOUR_US // 1000)
    assert kinds(report) == {ViolationKind.UNDER_REPLICATED_TOO_LONG: 1}
    assert report.violations[0].ledger_id == 2
    assert "b1 (lost_bookie)" in report.violations[0].detail
    assert report.marked == 2
    assert stage.bookies["b1"].asked == []


async def test_a_mark_that_comes_meanwhile_is_seen_before_the_accusation(
    stage: AuditStage,
) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    task = asyncio.create_task(check(stage))
    await asyncio.sleep(1)
    now_us = stage.host.now_us()
    await stage.marks.mark(1, missing=["b1"], why=Cause.MISSING_COPIES, now_us=now_us)
    report = await task
    assert report.is_clean
    assert report.marked == 1


async def test_metadata_that_changed_is_compared_anew(stage: AuditStage) -> None:
    """The last look finds copies missing on b1; by then the ledger has moved to b4."""
    metadata = await stage.ledger(1)
    stage.bookies["b4"].entries[1] = dict(stage.bookies["b1"].entries[1])
    del stage.bookies["b1"].entries[1]
    moved = replace(metadata, fragments=(Fragment(0, ("b4", "b2", "b3")),))

    class Moving(type(stage.bookies["b2"])):  # type: ignore[misc]  # a class of an instance
        async def list_entries(self, ledger_id: int, from_entry: int = 0) -> EntryList:
            if len(self.asked) == 0:
                await stage.change(1, moved)
            answer: EntryList = await super().list_entries(ledger_id, from_entry)
            return answer

    stage.bookies["b2"] = Moving("b2", entries=stage.bookies["b2"].entries)
    report = await check(stage, repeats=0)
    assert report.is_clean
    assert report.checked == 1


async def test_a_ledger_that_is_deleted_meanwhile_is_no_violation(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    task = asyncio.create_task(check(stage))
    await asyncio.sleep(1)
    await stage.ledgers.delete(1)
    report = await task
    assert report.is_clean
    assert report.deleted == 1


async def test_a_bookie_that_is_back_in_time_is_asked_again(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.lose("b1")
    task = asyncio.create_task(check(stage))
    await asyncio.sleep(1)
    stage.bookies["b1"].come_back()
    await stage.register("b1")
    report = await task
    assert report.is_clean
    assert report.unverified[Unverified.UNAVAILABLE] == 0


async def test_a_bookie_that_is_not_registered_is_the_auditors(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2, "b2 b3 b4")
    await stage.lose("b1")
    report = await check(stage)
    assert report.is_clean
    assert report.unverified[Unverified.UNAVAILABLE] == 1


async def test_a_bookie_that_is_registered_and_silent_is_a_violation(stage: AuditStage) -> None:
    for ledger_id in range(1, 101):
        await stage.ledger(ledger_id)
    stage.bookies["b1"].go_down()
    asked = stage.bookies["b1"].asked
    report = await check(stage)
    assert kinds(report) == {ViolationKind.REGISTERED_BUT_UNREACHABLE: 1}
    assert "b1 is registered and did not answer for 100 ledgers" in report.violations[0].detail
    assert report.unverified[Unverified.UNAVAILABLE] == 100
    assert len(asked) <= 3 * 32, "a bookie that does not answer is not asked for every ledger"


async def test_copies_that_are_missing_elsewhere_are_violations_all_the_same(
    stage: AuditStage,
) -> None:
    await stage.ledger(1)
    stage.drop("b2", 1, 4)
    stage.drop("b3", 1, 4)
    await stage.lose("b1")
    report = await check(stage)
    assert kinds(report) == {ViolationKind.BELOW_ACK_QUORUM: 1}
    assert report.violations[0].to_json()["unknown"] == ["b1"]
    assert report.unverified[Unverified.UNAVAILABLE] == 1


async def test_limbo_is_unknown(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2)
    stage.drop("b1", 1, 2, 3)
    original = stage.bookies["b1"].list_entries

    async def in_limbo(ledger_id: int, from_entry: int = 0) -> EntryList:
        return replace(await original(ledger_id, from_entry), in_limbo=True)

    setattr(stage.bookies["b1"], "list_entries", in_limbo)  # noqa: B010 - a double of one method
    report = await check(stage)
    assert report.is_clean
    assert report.unverified[Unverified.IN_LIMBO] == 1
    assert report.unknown_entries == 2


async def test_a_write_set_of_bookies_that_were_given_up_is_lost(stage: AuditStage) -> None:
    await stage.ledger(1)
    for name in ("b1", "b2", "b3"):
        await stage.give_up(name)
    report = await check(stage)
    assert kinds(report) == {ViolationKind.NO_COPY: 1}
    assert report.violations[0].entries == 10


async def test_racks_are_compared_where_they_are_known(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2, "b1 b2 b4", then=[(5, "b1 b2 b3")])
    assert (await check(stage)).is_clean, "there is but one rack"
    await stage.register("b4", rack="r2")
    report = await check(stage)
    assert kinds(report) == {ViolationKind.PLACEMENT: 2}
    assert sorted((v.ledger_id, v.fragment) for v in report.violations) == [(1, 0), (2, 5)]
    await stage.lose("b3")
    assert (await check(stage)).is_clean, "the rack of b3 is not known"


async def test_metadata_that_cannot_be_read_is_a_violation(stage: AuditStage) -> None:
    await stage.ledger(1)
    overwrite_now(stage.memory, "/ledgers/0/0001", b"{}")
    report = await check(stage)
    assert kinds(report) == {ViolationKind.UNREADABLE_METADATA: 1}


async def test_a_mark_that_cannot_be_read_is_a_violation(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.marks.mark(1, missing=["b1"], why=Cause.LOST_BOOKIE, now_us=1)
    overwrite_now(stage.memory, "/underreplication/ledgers/0/0001", b"{}")
    assert kinds(await check(stage)) == {ViolationKind.UNREADABLE_METADATA: 1}


async def test_a_check_survives_a_short_outage_of_the_metadata_store(stage: AuditStage) -> None:
    for ledger_id in range(1, 200):
        await stage.ledger(ledger_id)
    running = checker(stage)
    bookie = stage.bookies["b1"]

    def cut(request: str) -> None:
        if running.progress.done >= 50:
            stage.store.disconnect()

    bookie.fault = cut
    task = asyncio.create_task(running.run())
    await asyncio.sleep(30)
    assert not task.done()
    bookie.come_back()
    stage.store.reconnect()
    report = await task
    assert report.is_clean
    assert report.checked == 199


async def test_a_long_outage_ends_the_check(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.store.disconnect()
    with pytest.raises(FencelogError) as caught:
        await check(stage)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


async def test_violations_are_reported_as_they_are_found(
    stage: AuditStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    found: list[Violation] = []
    await ClusterCheck(stage.store, stage, host=stage.host, on_violation=found.append).run()
    assert [violation.kind for violation in found] == [ViolationKind.BELOW_WRITE_QUORUM]
    assert '"entries": [[3, 3]]' in caplog.text


async def test_lists_that_come_in_pages_are_compared_page_by_page(stage: AuditStage) -> None:
    metadata = await stage.ledger(1, last=99)
    stage.drop("b2", 1, 50, 51)
    for number, name in enumerate(("b1", "b2", "b3"), start=1):
        original = stage.bookies[name].list_entries

        async def paged(
            ledger_id: int, from_entry: int = 0, *, most: int = 7 * number, ask: Any = original
        ) -> EntryList:
            whole: EntryList = await ask(ledger_id, from_entry)
            end = from_entry + most
            if end > metadata.last_entry_id:
                return whole
            ranges = whole.availability.ranges(from_entry, end - 1)
            return EntryList(type(whole.availability).of(ranges), end)

        setattr(stage.bookies[name], "list_entries", paged)  # noqa: B010 - a double of one method
    report = await check(stage)
    assert [v.detail for v in report.violations] == ["entries 50..51: not on b2"]


async def test_violations_beyond_those_that_are_described_are_counted(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_report, "MAX_REPORTED_VIOLATIONS", 2)
    for ledger_id in (1, 2, 3):
        await stage.ledger(ledger_id)
        stage.drop("b1", ledger_id, 3)
    report = await check(stage)
    assert len(report.violations) == 2
    assert report.counts == {ViolationKind.BELOW_WRITE_QUORUM: 3}
    assert report.summary()["violation_count"] == 3


async def test_the_report_names_every_count(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    found = (await check(stage)).to_json()
    assert found["counts"] == {
        "placement": 0,
        "below_write_quorum": 1,
        "below_ack_quorum": 0,
        "no_copy": 0,
        "under_replicated_too_long": 0,
        "registered_but_unreachable": 0,
        "unreadable_metadata": 0,
    }
    assert found["violation_count"] == 1
    assert found["unverified"] == {"in_limbo": 0, "unavailable": 0, "changing": 0}


async def test_a_bookie_that_joined_after_the_check_began_is_not_gone(stage: AuditStage) -> None:
    """A ledger may have moved to it; it is asked as soon as it is known."""
    await stage.give_up("b5")
    await stage.ledger(1, "b1 b2 b5")
    original = stage.bookies["b1"].list_entries

    async def joining(ledger_id: int, from_entry: int = 0) -> EntryList:
        if len(stage.bookies["b1"].asked) == 0:
            stage.bookies["b5"].come_back()
            await stage.register("b5")
        return await original(ledger_id, from_entry)

    setattr(stage.bookies["b1"], "list_entries", joining)  # noqa: B010 - a double of one method
    report = await check(stage, repeats=0)
    assert report.is_clean
    assert report.checked == 1
