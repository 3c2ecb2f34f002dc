"""Marks for placement: only what can be repaired, and only a few at a time."""

from __future__ import annotations

from fencelog.bookie.auditor.placement_marks import check_placement
from fencelog.bookie.replication.store import Cause
from tests.bookie.auditor.audit_stage import AuditStage


async def marked(stage: AuditStage) -> dict[int, dict[str, frozenset[Cause]]]:
    return {mark.ledger_id: dict(mark.missing) async for mark in stage.marks.list()}


async def test_one_member_of_a_poor_write_set_is_marked(stage: AuditStage) -> None:
    await stage.register("b5", rack="r2")
    await stage.ledger(1)
    await stage.ledger(2, "b1 b2 b5")
    await stage.ledger(3, is_closed=False)
    found = await check_placement(stage.store, host=stage.host)
    assert await marked(stage) == {1: {"b3": frozenset({Cause.PLACEMENT})}}
    assert found.to_json() == {
        "ledgers": 2,
        "violating": 1,
        "marked": 1,
        "impossible": 0,
        "put_off": 0,
    }


async def test_what_no_bookie_could_take_is_not_marked(stage: AuditStage) -> None:
    await stage.register("b5", rack="r2", read_only=True)
    await stage.ledger(1)
    found = await check_placement(stage.store, host=stage.host)
    assert await marked(stage) == {}
    assert (found.violating, found.impossible) == (1, 1)


async def test_marks_of_this_kind_are_few_and_come_last(stage: AuditStage) -> None:
    await stage.register("b5", rack="r2")
    for ledger_id in range(1, 7):
        await stage.ledger(ledger_id)
    await stage.marks.mark(1, missing=["b1"], why=Cause.LOST_BOOKIE, now_us=1)
    found = await check_placement(stage.store, host=stage.host, most=3)
    assert list(await marked(stage)) == [1, 2, 3]
    assert (found.violating, found.marked, found.put_off) == (6, 2, 3)
    found = await check_placement(stage.store, host=stage.host, most=3)
    assert (found.marked, found.put_off) == (0, 3)
