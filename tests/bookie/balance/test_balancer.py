"""The auditor's balancing: when it plans, what it marks, and when it leaves the cluster alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fencelog.bookie.balance.balancer import BalanceConfig, BookieBalancer
from fencelog.bookie.balance.limits import AVOID_MS, INTERVAL_MS, LOOK_MS
from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import Cause, FragmentMove, UnderReplicatedLedger
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.transitions import with_replaced_bookie
from tests.bookie.auditor.audit_stage import AuditStage

RATE = 1 << 20
LOOK_S = LOOK_MS / 1000
INTERVAL_S = INTERVAL_MS / 1000


@contextlib.asynccontextmanager
async def balancing(stage: AuditStage, **config: Any) -> AsyncIterator[BookieBalancer]:
    balancer = BookieBalancer(stage.store, host=stage.host, config=BalanceConfig(**config))
    task = asyncio.create_task(balancer.run())
    try:
        await asyncio.sleep(0.5)
        yield balancer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turn_on(stage: AuditStage, rate: int | None = RATE) -> None:
    await change_settings(stage.store, balance_bytes_per_s=rate)


async def marks(stage: AuditStage) -> list[UnderReplicatedLedger]:
    return [mark async for mark in stage.marks.list()]


async def ledgers(stage: AuditStage, count: int = 6) -> None:
    for ledger_id in range(1, count + 1):
        await stage.ledger(ledger_id)


async def ledgers_of_one(stage: AuditStage, *bookies: str) -> None:
    """Create ledgers with one copy each."""
    for ledger_id, bookie in enumerate(bookies, start=1):
        await stage.ledger(ledger_id, bookie, write_quorum=1, qa=1)


async def repair(stage: AuditStage) -> int:
    """Make all moves that are marked, as a worker does; return how many."""
    found = await marks(stage)
    for mark in found:
        for move in mark.moves:
            metadata, version = await stage.ledgers.get(mark.ledger_id)
            await stage.ledgers.update(after(metadata, move), version)
        await stage.marks.unmark(mark.ledger_id, mark.version)
    return sum(len(mark.moves) for mark in found)


def after(metadata: LedgerMetadata, move: FragmentMove) -> LedgerMetadata:
    changed = with_replaced_bookie(
        metadata,
        first_entry_id=0,
        last_entry_id=metadata.last_entry_id,
        index=metadata.last_fragment.bookies.index(move.bookie_id),
        old=move.bookie_id,
        new=move.target,
    )
    assert changed is not None
    return changed


async def test_nothing_is_marked_unless_balancing_is_on(stage: AuditStage) -> None:
    await ledgers(stage)
    async with balancing(stage) as balancer:
        await asyncio.sleep(10 * INTERVAL_S)
        assert await marks(stage) == []
        assert balancer.status() == {
            "phase": "off",
            "marked": 0,
            "ledger_bytes": {},
            "distance_share": None,
        }
        await change_settings(stage.store, balance_bytes_per_s=RATE, is_disabled=True)
        await asyncio.sleep(INTERVAL_S)
        assert await marks(stage) == []


async def test_the_newest_ledgers_of_the_fullest_bookies_are_marked_with_a_target(
    stage: AuditStage,
) -> None:
    await ledgers(stage)
    async with balancing(stage, max_moves=2) as balancer:
        await turn_on(stage)
        await asyncio.sleep(1)
        found = {mark.ledger_id: mark for mark in await marks(stage)}
        assert found.keys() == {5, 6}
        assert found[6].moves == (FragmentMove(0, "b1", "b4"),)
        assert found[6].missing == {"b1": {Cause.BALANCE}}
        assert found[6].is_for_balance
        assert found[5].moves == (FragmentMove(0, "b2", "b5"),)
        status = balancer.status()
        assert (status["phase"], status["marked"]) == ("moving", 2)
        assert status["ledger_bytes"]["b1"] == status["ledger_bytes"]["b3"] > 0
        assert status["ledger_bytes"]["b4"] == 0
        assert status["distance_share"] == 1.667


async def test_moves_are_planned_in_rounds_until_bookies_are_even(stage: AuditStage) -> None:
    await ledgers(stage, 20)
    made = 0
    async with balancing(stage, max_moves=5) as balancer:
        await turn_on(stage)
        for _ in range(20):
            await asyncio.sleep(1)
            before = await marks(stage)
            assert len(before) <= 5
            await asyncio.sleep(3 * LOOK_S)
            assert await marks(stage) == before, "a round is over before the next one begins"
            made += await repair(stage)
            await asyncio.sleep(LOOK_S)
        assert balancer.phase.value == "even"
        assert 22 <= made <= 24
        assert balancer.status()["distance_share"] <= 0.1
        stored = await named(stage)
        assert max(stored.values()) - min(stored.values()) <= 1


async def named(stage: AuditStage) -> dict[str, int]:
    counts = dict.fromkeys(stage.bookies, 0)
    async for metadata in stage.ledgers.read_all():
        for bookie in metadata.last_fragment.bookies:
            counts[bookie] += 1
    return counts


async def test_a_plan_is_for_some_minutes_at_the_rate(stage: AuditStage) -> None:
    await ledgers(stage, 30)
    async with balancing(stage, round_ms=1_000):
        await turn_on(stage, 1_100)  # a ledger has 400 bytes
        await asyncio.sleep(1)
        assert len(await marks(stage)) == 3


async def test_what_lacks_copies_comes_first(stage: AuditStage) -> None:
    await ledgers(stage)
    await stage.marks.mark(1, missing=["b1"], why=Cause.MISSING_COPIES, now_us=1)
    async with balancing(stage) as balancer:
        await turn_on(stage)
        await asyncio.sleep(10 * LOOK_S)
        assert len(await marks(stage)) == 1
        assert balancer.phase.value == "waiting"
        (mark,) = await marks(stage)
        await stage.marks.unmark(1, mark.version)
        await asyncio.sleep(2 * LOOK_S)
        assert len(await marks(stage)) > 1


async def test_a_mark_that_cannot_be_read_may_be_one_of_lost_copies(stage: AuditStage) -> None:
    await ledgers(stage)
    await stage.store.create(ledger_path(MARKS_PATH, 1), b"no mark")
    async with balancing(stage) as balancer:
        await turn_on(stage)
        await asyncio.sleep(2 * LOOK_S)
        assert balancer.phase.value == "waiting"
        assert [ledger_id async for ledger_id in stage.marks.list_ids()] == [1]


async def test_a_ledger_that_is_marked_while_the_metadata_is_read_comes_first(
    stage: AuditStage,
) -> None:
    await ledgers(stage)
    balancer = BookieBalancer(stage.store, host=stage.host)
    fills = await balancer._read_fills()
    await stage.marks.mark(1, missing=["b1"], why=Cause.MISSING_COPIES, now_us=1)
    assert (await balancer._plan(fills, RATE)).value == "waiting"
    assert [mark.ledger_id for mark in await marks(stage)] == [1]


async def test_nothing_is_moved_while_a_bookie_with_copies_is_away(stage: AuditStage) -> None:
    await ledgers(stage)
    await stage.deregister("b3")
    async with balancing(stage) as balancer:
        await turn_on(stage)
        await asyncio.sleep(2 * INTERVAL_S)
        assert await marks(stage) == []
        assert balancer.phase.value == "waiting"
        await stage.register("b3")
        await asyncio.sleep(2 * INTERVAL_S)
        assert await marks(stage) != []


async def test_a_move_that_was_dropped_comes_back_after_an_hour(stage: AuditStage) -> None:
    await ledgers_of_one(stage, "b1", "b1")
    async with balancing(stage, max_moves=1) as balancer:
        await turn_on(stage)
        await asyncio.sleep(1)
        (mark,) = await marks(stage)
        assert mark.ledger_id == 2
        await stage.marks.unmark(2, mark.version)
        await asyncio.sleep(2 * LOOK_S)
        (mark,) = await marks(stage)
        assert mark.ledger_id == 1
        await stage.marks.unmark(1, mark.version)
        await asyncio.sleep(2 * LOOK_S)
        assert (await marks(stage), balancer.phase.value) == ([], "stuck")
        await asyncio.sleep(AVOID_MS / 1000 + INTERVAL_S)
        assert [mark.ledger_id for mark in await marks(stage)] == [2]


async def test_it_begins_at_a_larger_distance_than_it_ends(stage: AuditStage) -> None:
    await ledgers_of_one(stage, *(f"b{1 + n % 5}" for n in range(11)))
    async with balancing(stage, begin_share=0.5) as balancer:
        await turn_on(stage)
        await asyncio.sleep(1)
        assert (await marks(stage), balancer.phase.value) == ([], "even")
        assert balancer.status()["distance_share"] > 0.1


async def test_ledgers_whose_copies_cannot_be_verified_stay(stage: AuditStage) -> None:
    for ledger_id in (1, 2, 3):
        metadata = new_metadata(
            ledger_id,
            ensemble=("b1",),
            write_quorum=1,
            ack_quorum=1,
            token="t",
            digest_type=DigestType.HMAC_SHA256,
        )
        await stage.ledgers.create(metadata.closed(last_entry_id=9, length=1_000))
    async with balancing(stage) as balancer:
        await turn_on(stage)
        await asyncio.sleep(1)
        assert (await marks(stage), balancer.phase.value) == ([], "stuck")
    keyed = BookieBalancer(stage.store, host=stage.host, key=b"key")
    assert (await keyed._plan(await keyed._read_fills(), RATE)).value == "moving"


async def test_an_outage_of_the_metadata_store_passes(stage: AuditStage) -> None:
    await ledgers(stage)
    await turn_on(stage)
    stage.store.disconnect()
    async with balancing(stage) as balancer:
        await asyncio.sleep(LOOK_S)
        assert balancer.phase.value == "off"
        stage.store.reconnect()
        await asyncio.sleep(3 * LOOK_S)
        assert balancer.phase.value == "moving"
