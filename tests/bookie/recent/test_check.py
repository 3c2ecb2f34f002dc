"""The recent check over scripted bookies: what a writer left behind is marked soon, and nothing
else is; an open ledger costs nothing while it does not change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fencelog.bookie.recent.check import RecentCheck, RecentCheckConfig
from fencelog.bookie.recent.limits import LOOKS_PER_S
from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import Cause
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.ledger_metadata.model import Fragment
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Versioned
from tests.bookie.auditor.audit_stage import AuditStage
from tests.support.metadata_nodes import overwrite_now
from tests.support.scripted_cluster import ScriptedBookie


@asynccontextmanager
async def checking(stage: AuditStage, **settings: Any) -> AsyncIterator[RecentCheck]:
    check = RecentCheck(stage.store, stage, host=stage.host, config=RecentCheckConfig(**settings))
    task = asyncio.create_task(check.run())
    await asyncio.sleep(1)
    yield check
    task.cancel()
    await asyncio.wait([task])


async def marked(stage: AuditStage) -> dict[int, dict[str, set[str]]]:
    return {
        mark.ledger_id: {b: {why.value for why in causes} for b, causes in mark.missing.items()}
        async for mark in stage.marks.list()
    }


def lists_of(stage: AuditStage) -> Counter[str]:
    return Counter(
        name for name, bookie in stage.bookies.items() for what, _ in bookie.asked if "list" in what
    )


async def close(stage: AuditStage, ledger_id: int, last: int) -> None:
    metadata, _ = await stage.ledgers.get(ledger_id)
    await stage.change(ledger_id, metadata.closed(last_entry_id=last, length=0))


async def test_a_copy_that_was_in_flight_at_the_close_is_missed_within_half_a_minute(
    stage: AuditStage,
) -> None:
    await stage.ledger(1, is_closed=False)
    stage.drop("b3", 1, 8, 9)
    async with checking(stage) as check:
        await asyncio.sleep(300)
        assert await marked(stage) == {}, "entries of an open fragment may be in flight"
        await close(stage, 1, 9)
        await asyncio.sleep(29)
        assert await marked(stage) == {}
        assert check.status()["lacking"] == [1]
        await asyncio.sleep(3)
        assert await marked(stage) == {1: {"b3": {"missing_copies"}}}
        assert check.status()["marked"] == 1


async def test_a_new_ledger_is_looked_at_after_the_next_listing(stage: AuditStage) -> None:
    async with checking(stage):
        await stage.ledger(1)
        await stage.ledger(2)
        stage.drop("b1", 2, 4)
        await asyncio.sleep(77)
        assert await marked(stage) == {2: {"b1": {"missing_copies"}}}


async def test_closed_fragments_of_an_open_ledger_are_compared(stage: AuditStage) -> None:
    """A writer that replaced a bookie goes on; what the others lacked by then stays away."""
    metadata = await stage.ledger(1, is_closed=False)
    stage.drop("b2", 1, 3)
    async with checking(stage):
        await asyncio.sleep(100)
        assert lists_of(stage) == {}, "there is nothing to compare yet"
        await stage.change(1, metadata.with_ensemble(6, ("b4", "b2", "b3")))
        await asyncio.sleep(33)
        assert await marked(stage) == {1: {"b2": {"missing_copies"}}}


async def test_a_copy_that_arrives_late_is_not_missed(stage: AuditStage) -> None:
    await stage.ledger(1, is_closed=False)
    entry = stage.bookies["b3"].entries[1].pop(9)
    async with checking(stage) as check:
        await close(stage, 1, 9)
        await asyncio.sleep(20)
        assert check.status()["missing_copies"] == 1
        stage.bookies["b3"].entries[1][9] = entry
        await asyncio.sleep(600)
        assert await marked(stage) == {}
        assert check.status()["missing_copies"] == 0


async def test_a_verified_ledger_and_an_open_one_cost_nothing(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2, is_closed=False)
    async with checking(stage) as check:
        await asyncio.sleep(100)
        looks, lists = check.looks, lists_of(stage)
        assert lists == {"b1": 1, "b2": 1, "b3": 1}
        await asyncio.sleep(36_000)
        assert (check.looks, lists_of(stage)) == (looks, lists)
        assert check.status()["open_ledgers"] == 1


async def test_open_ledgers_beyond_the_watched_ones_are_read_again(stage: AuditStage) -> None:
    for ledger_id in (1, 2, 3):
        await stage.ledger(ledger_id, is_closed=False)
    async with checking(stage, max_watched=1) as check:
        await asyncio.sleep(600)
        assert 20 <= check.looks <= 2 * 12 + 3
        stage.drop("b1", 1, 0)
        stage.drop("b1", 3, 0)
        await close(stage, 1, 9)
        await close(stage, 3, 9)
        await asyncio.sleep(80)
        assert sorted(await marked(stage)) == [1, 3]


async def test_unknown_is_not_marked(stage: AuditStage) -> None:
    await stage.ledger(1)
    await stage.ledger(2)
    stage.drop("b1", 2, 3)
    original = stage.bookies["b1"].list_entries

    async def in_limbo(ledger_id: int, from_entry: int = 0) -> EntryList:
        return replace(await original(ledger_id, from_entry), in_limbo=True)

    setattr(stage.bookies["b1"], "list_entries", in_limbo)  # noqa: B010 - a double of one method
    stage.bookies["b2"].go_down()
    async with checking(stage) as check:
        await asyncio.sleep(1000)
        assert await marked(stage) == {}
        assert check.status()["ledgers_to_look_at"] == 0


async def test_a_bookie_that_is_back_is_asked_soon(stage: AuditStage) -> None:
    """It was restarted while a writer went on without it."""
    await stage.ledger(1)
    stage.drop("b1", 1, 7)
    stage.bookies["b1"].fault = lambda request: FencelogError(ErrorCode.REQUEST_TIMEOUT, "away")
    await stage.deregister("b1")
    async with checking(stage):
        await asyncio.sleep(1200)
        assert await marked(stage) == {}
        stage.bookies["b1"].fault = lambda request: None
        await stage.register("b1")
        await asyncio.sleep(33)
        assert await marked(stage) == {1: {"b1": {"missing_copies"}}}


async def test_a_ledger_that_changed_since_the_look_is_not_marked(stage: AuditStage) -> None:
    metadata = await stage.ledger(1)
    stage.drop("b1", 1, 3)
    moved = replace(metadata, fragments=(Fragment(0, ("b4", "b2", "b3")),))
    stage.bookies["b4"].entries[1] = dict(stage.bookies["b2"].entries[1])
    original = stage.bookies["b2"].list_entries
    looks = 0

    async def moving(ledger_id: int, from_entry: int = 0) -> EntryList:
        nonlocal looks
        looks += 1
        if looks == 2:
            await stage.change(1, moved)
        return await original(ledger_id, from_entry)

    setattr(stage.bookies["b2"], "list_entries", moving)  # noqa: B010 - a double of one method
    async with checking(stage):
        await asyncio.sleep(600)
        assert looks == 3
        assert await marked(stage) == {}


async def test_a_ledger_that_was_deleted_is_forgotten(stage: AuditStage) -> None:
    await stage.ledger(1, is_closed=False)
    await stage.ledger(2)
    stage.drop("b1", 2, 3)
    async with checking(stage) as check:
        await asyncio.sleep(2)
        await stage.ledgers.delete(1)
        await stage.ledgers.delete(2)
        await asyncio.sleep(100)
        assert check.status()["open_ledgers"] == check.status()["missing_copies"] == 0
        assert await marked(stage) == {}


async def test_nothing_is_compared_during_a_recovery(stage: AuditStage) -> None:
    """A worker would leave the ledger alone, and remove the mark."""
    metadata = await stage.ledger(1, then=[(5, "b4 b2 b3")], is_closed=False)
    stage.drop("b1", 1, 3)
    await stage.change(1, metadata.in_recovery())
    async with checking(stage):
        await asyncio.sleep(200)
        assert await marked(stage) == {}
        await close(stage, 1, 9)
        await asyncio.sleep(33)
        assert await marked(stage) == {1: {"b1": {"missing_copies"}}}


async def test_a_mark_is_not_renewed_until_it_is_gone(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    async with checking(stage) as check:
        await asyncio.sleep(20)
        mark = await stage.marks.get(1)
        assert mark is not None
        await asyncio.sleep(2000)
        same = await stage.marks.get(1)
        assert same is not None
        assert (same.version, check.marked) == (mark.version, 1)
        await stage.marks.unmark(1, mark.version)  # a worker that has repaired nothing
        await asyncio.sleep(610)
        assert await marked(stage) == {1: {"b1": {"missing_copies"}}}


async def test_a_mark_for_another_reason_is_added_to(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    await stage.marks.mark(1, missing=["b1"], why=Cause.PLACEMENT, now_us=1)
    async with checking(stage):
        await asyncio.sleep(20)
        assert await marked(stage) == {1: {"b1": {"missing_copies", "placement"}}}


async def test_nothing_is_looked_at_while_it_is_off(stage: AuditStage) -> None:
    await stage.ledger(1)
    stage.drop("b1", 1, 3)
    await change_settings(stage.store, is_disabled=True)
    async with checking(stage) as check:
        await asyncio.sleep(300)
        assert check.looks == 0
        await change_settings(stage.store, is_disabled=False)
        await asyncio.sleep(20)
        assert sorted(await marked(stage)) == [1]


async def test_an_interval_of_zero_checks_nothing(stage: AuditStage) -> None:
    await stage.ledger(1)
    async with checking(stage, interval_ms=0) as check:
        await asyncio.sleep(300)
        assert (check.looks, check.status()["is_enabled"]) == (0, False)


async def test_metadata_that_cannot_be_read_waits(stage: AuditStage) -> None:
    await stage.ledger(1)
    overwrite_now(stage.memory, "/ledgers/0/0001", b"{}")
    async with checking(stage) as check:
        await asyncio.sleep(3600)
        assert check.looks < 15


async def test_an_outage_of_the_store_passes(stage: AuditStage) -> None:
    await stage.ledger(1, is_closed=False)
    async with checking(stage):
        stage.store.disconnect()
        await asyncio.sleep(100)
        stage.store.reconnect()
        await asyncio.sleep(70)
        stage.drop("b1", 1, 3)
        await close(stage, 1, 9)
        await asyncio.sleep(33)
        assert sorted(await marked(stage)) == [1]


class CountingStore(MemoryMetadataStore):
    """A session that counts its reads of ledgers in each second."""

    def __init__(self, stage: AuditStage) -> None:
        super().__init__(stage.memory)
        self.reads = Counter[int]()

    async def get(self, path: str) -> Versioned:
        if path.startswith("/ledgers/"):
            self.reads[int(asyncio.get_running_loop().time())] += 1
        return await super().get(path)


async def test_a_successor_looks_only_at_what_is_not_verified(stage: AuditStage) -> None:
    for ledger_id in range(1, 40):
        await stage.ledger(ledger_id, is_closed=ledger_id % 10 > 0)
    async with checking(stage):
        await asyncio.sleep(130)
    async with checking(stage) as successor:
        await asyncio.sleep(130)
        assert successor.looks == 3, "the open ones"
        assert successor.status()["open_ledgers"] == 3


async def test_a_start_without_knowledge_is_spread_over_time(stage: AuditStage) -> None:
    for ledger_id in range(1, 351):
        await stage.ledger(ledger_id, last=1)
    store = CountingStore(stage)
    await store.start()
    check = RecentCheck(store, stage, host=stage.host, config=RecentCheckConfig())
    task = asyncio.create_task(check.run())
    await asyncio.sleep(10)
    assert check.looks == 350
    assert max(store.reads.values()) <= LOOKS_PER_S
    task.cancel()
    await asyncio.wait([task])
    await store.close()


async def test_ids_that_are_used_late_are_found_in_older_directories(stage: AuditStage) -> None:
    """Clients take ids in blocks: one may be used when much higher ones are."""
    for ledger_id in (1, 70_000, 140_000, 210_000):
        await stage.ledger(ledger_id)
    async with checking(stage):
        await asyncio.sleep(300)
        await stage.ledger(5)
        await stage.ledger(70_001)
        for ledger_id in (5, 70_001):
            stage.drop("b1", ledger_id, 2)
        await asyncio.sleep(200)
        assert sorted(await marked(stage)) == [5, 70_001]


async def test_a_bookie_that_hangs_costs_one_time_out_for_many_ledgers(stage: AuditStage) -> None:
    for ledger_id in range(1, 101):
        await stage.ledger(ledger_id, last=1)
    bookie: ScriptedBookie = stage.bookies["b2"]
    bookie.fault = lambda request: FencelogError(ErrorCode.REQUEST_TIMEOUT, "silence")
    async with checking(stage):
        await asyncio.sleep(20)
        assert lists_of(stage)["b2"] <= 16
