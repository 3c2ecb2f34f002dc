"""Moves for a better balance over real bookies: made after everything else, at a rate of their own,
or dropped without harm."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fencelog.bookie.replication.settings import AutorecoverySettings, change_settings
from fencelog.bookie.replication.store import Cause, FragmentMove, UnderReplicatedLedgers
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from tests.bookie.replication.stage import (
    PAYLOADS,
    Hooked,
    check_copies,
    closed,
    damaged,
    healed,
    mark,
    members,
    running,
)
from tests.support.local_cluster import LocalCluster
from tests.support.until import until

RATE = 1 << 24


class Rotten(Hooked):
    """A client of a bookie all of whose copies are damaged."""

    async def read(self, *arguments: Any, **options: Any) -> Any:
        reply = await super().read(*arguments, **options)
        return replace(reply, run=damaged(bytes(reply.run)))


async def mark_move(marks: UnderReplicatedLedgers, ledger_id: int, *moves: FragmentMove) -> None:
    assert await marks.mark_moves(ledger_id, moves, now_us=1)


async def bookies_of(cluster: LocalCluster, metadata: LedgerMetadata) -> tuple[str, ...]:
    return (await cluster.ledgers.get(metadata.ledger_id))[0].fragments[0].bookies


async def test_the_target_takes_the_place_with_all_copies(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, (target, _) = await members(cluster, metadata)
    await change_settings(cluster.store, balance_bytes_per_s=RATE)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[1], target))
    async with running(cluster.worker()) as worker:
        await healed(marks)
        await until(lambda: worker.status()["moved_fragments"] == 1)
        status = worker.status()
    assert await bookies_of(cluster, metadata) == (named[0], target, named[2])
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)
    assert status["moved_bytes"] > sum(map(len, PAYLOADS))
    assert (status["dropped_moves"], status["repaired_ledgers"], status["copied_bytes"]) == (
        0,
        0,
        0,
    )


async def test_the_source_is_named_until_the_target_has_everything(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, (target, _) = await members(cluster, metadata)
    seen: list[tuple[int, bool]] = []
    hooked = Hooked(cluster, target)

    async def before(request: str) -> None:
        seen.append((hooked.adds, target in await bookies_of(cluster, metadata)))

    hooked.before = before
    await change_settings(cluster.store, balance_bytes_per_s=RATE)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    async with running(cluster.worker()):
        await healed(marks)
    assert seen[0] == (0, False)
    assert [is_named for adds, is_named in seen] == [False, False, True]
    assert seen[1][0] > 0


async def test_nothing_is_moved_while_balancing_is_off(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, (target, _) = await members(cluster, metadata)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    async with running(cluster.worker()) as worker:
        await healed(marks)
        await until(lambda: worker.status()["dropped_moves"] == 1)
    assert await bookies_of(cluster, metadata) == tuple(named)


async def test_moves_wait_for_what_lacks_copies(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata, other = await closed(cluster, *PAYLOADS), await closed(cluster, *PAYLOADS)
    named, (target, _) = await members(cluster, metadata)
    away = (await members(cluster, other))[0][0]
    reads = Hooked(cluster, away)

    async def never(request: str) -> None:
        await asyncio.sleep(3600)

    reads.before = never
    await change_settings(cluster.store, balance_bytes_per_s=RATE)
    await mark(marks, other.ledger_id, away, Cause.MISSING_COPIES)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    async with running(cluster.worker()) as worker:
        await until(lambda: worker.status()["ledgers_to_move"] == 1)
        await asyncio.sleep(0.5)
        assert worker.status()["underreplicated_ledgers"] == 1
        assert await bookies_of(cluster, metadata) == tuple(named)
        reads.before = None
        mark_of_other = await marks.get(other.ledger_id)
        assert mark_of_other is not None
        await marks.unmark(other.ledger_id, mark_of_other.version)


async def test_a_move_in_progress_stops_for_what_lacks_copies_and_goes_on_after_it(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    """It would take two hundred seconds at the rate: a lost copy does not wait for that."""
    metadata = await closed(cluster, *(b"x" * 20_000 for _ in range(10)))
    other = await closed(cluster, *PAYLOADS)
    named, (target, _) = await members(cluster, metadata)
    asked = next(b for b in (await members(cluster, other))[0] if b != target)
    hooked, may_answer = Hooked(cluster, asked), asyncio.Event()

    async def wait(request: str) -> None:
        await may_answer.wait()

    await change_settings(cluster.store, balance_bytes_per_s=1_000)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    async with running(cluster.worker()) as worker:
        await until(lambda: worker.status()["at_ledgers"] == [metadata.ledger_id])
        hooked.before = wait
        await mark(marks, other.ledger_id, asked, Cause.MISSING_COPIES)
        await until(lambda: worker.status()["at_ledgers"] == [other.ledger_id])
        await change_settings(cluster.store, balance_bytes_per_s=RATE)
        await asyncio.sleep(0.2)
        assert worker.status()["at_ledgers"] == [other.ledger_id]
        may_answer.set()
        await healed(marks)
        await until(lambda: worker.status()["moved_fragments"] == 1)
    assert await bookies_of(cluster, metadata) == (target, *named[1:])


async def test_turning_it_off_drops_a_move_in_progress(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *(b"x" * 20_000 for _ in range(10)))
    named, (target, _) = await members(cluster, metadata)
    await change_settings(cluster.store, balance_bytes_per_s=1_000)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    async with running(cluster.worker()) as worker:
        await until(lambda: worker.status()["at_ledgers"] == [metadata.ledger_id])
        await change_settings(cluster.store, balance_bytes_per_s=None)
        await healed(marks)
    assert await bookies_of(cluster, metadata) == tuple(named)


async def test_the_rate_of_moves_is_kept(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *(b"x" * 20_000 for _ in range(10)))
    named, (target, _) = await members(cluster, metadata)
    await change_settings(cluster.store, balance_bytes_per_s=200_000)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    started = asyncio.get_running_loop().time()
    async with running(cluster.worker()):
        await healed(marks)
    assert asyncio.get_running_loop().time() - started > 0.9
    assert target in await bookies_of(cluster, metadata)


@pytest.mark.parametrize("change", ["member", "gone", "unknown fragment", "no member"])
async def test_a_move_that_is_not_possible_any_more_is_dropped(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, change: str
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, (target, other) = await members(cluster, metadata)
    move = {
        "member": FragmentMove(0, named[0], named[1]),
        "gone": FragmentMove(0, named[0], target),
        "unknown fragment": FragmentMove(3, named[0], target),
        "no member": FragmentMove(0, other, target),
    }[change]
    if change == "gone":
        await cluster.stop(target)
    await change_settings(cluster.store, balance_bytes_per_s=RATE)
    await mark_move(marks, metadata.ledger_id, move)
    async with running(cluster.worker()) as worker:
        await healed(marks)
        await until(lambda: worker.status()["dropped_moves"] == 1)
        assert worker.status()["ledgers_waiting"] == 0
    assert await bookies_of(cluster, metadata) == tuple(named)


async def test_a_move_that_fails_is_dropped(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, (target, _) = await members(cluster, metadata)
    for bookie in named:
        Rotten(cluster, bookie)
    await change_settings(cluster.store, balance_bytes_per_s=RATE)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    async with running(cluster.worker()) as worker:
        await healed(marks)
        await until(lambda: worker.status()["dropped_moves"] == 1)
    assert await bookies_of(cluster, metadata) == tuple(named)


async def test_a_mark_stays_while_the_metadata_store_is_away(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, (target, _) = await members(cluster, metadata)
    hooked = Hooked(cluster, target)

    async def cut(request: str) -> None:
        hooked.before = None
        cluster.store.disconnect()

    hooked.before = cut
    await change_settings(cluster.store, balance_bytes_per_s=RATE)
    await mark_move(marks, metadata.ledger_id, FragmentMove(0, named[0], target))
    async with running(cluster.worker()) as worker:
        await until(lambda: worker.status()["ledgers_waiting"] == 1)
        cluster.store.reconnect()
        worker.hurry()
        await healed(marks)
        assert worker.status()["dropped_moves"] == 0
    assert await bookies_of(cluster, metadata) == (target, *named[1:])


@pytest.mark.parametrize(
    ("rate", "of_repairs", "expected"), [(5, 3, 3), (3, 5, 3), (3, None, 3), (None, 3, 3)]
)
async def test_moves_are_never_faster_than_repairs(
    cluster: LocalCluster, rate: int | None, of_repairs: int | None, expected: int
) -> None:
    moves = cluster.worker()._moves
    moves.set_rate(AutorecoverySettings(balance_bytes_per_s=rate), of_repairs)
    assert (moves._pace.bytes_per_s, moves.is_on) == (expected, rate is not None)
