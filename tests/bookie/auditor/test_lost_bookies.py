"""The bookie check: ledgers of lost bookies are marked, those of bookies that are back are not."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.auditor import lost_bookies
from fencelog.bookie.auditor.lost_bookies import check_bookies
from fencelog.bookie.auditor.registered import read_bookies
from fencelog.bookie.replication.store import Cause
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from tests.bookie.auditor.audit_stage import AuditStage
from tests.support.metadata_nodes import overwrite_now


async def marked(stage: AuditStage) -> dict[int, dict[str, frozenset[Cause]]]:
    return {mark.ledger_id: dict(mark.missing) async for mark in stage.marks.list()}


async def test_ledgers_that_name_a_lost_bookie_anywhere_are_marked(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2, "b2 b3 b4", then=[(5, "b1 b3 b4")])
    await stage.ledger(3, "b2 b3 b4")
    await stage.ledger(4, "b1 b4 b5", is_closed=False)
    await stage.lose("b1")
    await stage.lose("b4")
    found = await check_bookies(stage.store, host=stage.host, lost=lambda: {"b1", "b4"})
    why = frozenset({Cause.LOST_BOOKIE})
    assert await marked(stage) == {
        1: {"b1": why},
        2: {"b1": why, "b4": why},
        3: {"b4": why},
        4: {"b1": why, "b4": why},
    }
    assert (found.ledgers, found.marked, sorted(found.lost)) == (4, 4, ["b1", "b4"])
    assert found.named == {"b1": 3, "b2": 3, "b3": 3, "b4": 3, "b5": 1}


async def test_a_bookie_that_is_registered_now_is_not_lost(stage: AuditStage) -> None:
    """Whatever an earlier look, or the view of a server that lags behind, has said."""
    await stage.ledger(1)
    found = await check_bookies(stage.store, host=stage.host, lost=lambda: {"b1"})
    assert await marked(stage) == {}
    assert found.to_json() == {"ledgers": 1, "marked": 0, "lost_bookies": [], "unreadable": 0}


async def test_a_bookie_that_comes_back_meanwhile_costs_no_more_marks(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ledger_id in range(1, 101):
        await stage.ledger(ledger_id)
    await stage.lose("b1")
    calls = 0

    def lost() -> set[str]:
        nonlocal calls
        calls += 1
        return {"b1"} if calls <= 2 else set()

    monkeypatch.setattr(lost_bookies, "_LEDGERS_PER_LOOK", 10)
    found = await check_bookies(stage.store, host=stage.host, lost=lost)
    assert (found.ledgers, found.marked, calls) == (100, 20, 3)


async def test_an_unreadable_ledger_is_noted_and_ends_nothing(stage: AuditStage) -> None:
    metadata: list[LedgerMetadata] = [await stage.ledger(n) for n in (1, 2)]
    await stage.lose("b1")
    overwrite_now(stage.memory, "/ledgers/0/0001", b"{}")
    found = await check_bookies(stage.store, host=stage.host, lost=lambda: {"b1"})
    assert found.unreadable == [metadata[0].ledger_id]
    assert list(await marked(stage)) == [2]


async def test_a_mark_that_cannot_be_read_ends_nothing(stage: AuditStage) -> None:
    for number in (1, 2):
        await stage.ledger(number)
    await stage.lose("b1")
    await stage.marks.mark(1, missing=["b1"], why=Cause.DAMAGED, now_us=1)
    overwrite_now(stage.memory, ledger_path(MARKS_PATH, 1), b"{}")
    found = await check_bookies(stage.store, host=stage.host, lost=lambda: {"b1"})
    assert found.marked == 1
    assert await stage.marks.get(2) is not None


async def test_registrations_that_were_read_in_two_sessions_prove_nothing(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of cookies is the oldest part; what was seen before a session ended may be older
    than the next session."""
    children = stage.store.children

    async def in_the_next_session(path: str) -> list[str]:
        names = await children(path)
        if path == BOOKIES_PATH:
            stage.store.disconnect()
            stage.store.expire()
            stage.store.reconnect()
            await asyncio.sleep(1)
        return names

    before = stage.store.session_id
    monkeypatch.setattr(stage.store, "children", in_the_next_session)
    with pytest.raises(FencelogError, match="read the registered bookies") as caught:
        await read_bookies(stage.store)
    assert stage.store.session_id != before
    assert caught.value.code.retryable
