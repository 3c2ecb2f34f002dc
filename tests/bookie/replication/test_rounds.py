"""The rounds of a worker: a repair that takes long holds up neither the others nor new marks."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.replication import worker as worker_module
from fencelog.bookie.replication.repair import LedgerRepair
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedger, UnderReplicatedLedgers
from tests.bookie.replication.stage import closed, healed, mark, running
from tests.support.local_cluster import LocalCluster
from tests.support.until import until


async def test_others_are_repaired_while_one_takes_long(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "REPLICATION_ROUND_MS", 50)
    one = await closed(cluster, b"x")
    first, lost = one.ledger_id, one.fragments[0].bookies[0]
    found = list[int]()
    while len(found) < 4:
        other = await closed(cluster, b"x")
        if lost in other.fragments[0].bookies:
            found.append(other.ledger_id)
    *others, late = found
    await cluster.stop(lost)
    goes_on, run, done = asyncio.Event(), LedgerRepair.run, list[int]()

    async def held(self: LedgerRepair) -> None:
        if self._id == first:
            await goes_on.wait()
        else:
            await asyncio.sleep(0.04)
        await run(self)
        done.append(self._id)

    monkeypatch.setattr(LedgerRepair, "run", held)
    for ledger_id in (first, *others):
        await mark(marks, ledger_id, lost)
    worker = cluster.worker(ledgers_at_once=2)
    async with running(worker):
        await until(lambda: sorted(done) == sorted(others))
        await mark(marks, late, lost)
        await until(lambda: late in done)
        await until(lambda: worker.status()["at_ledgers"] == [first])
        await until(lambda: worker.status()["underreplicated_ledgers"] == 1)
        goes_on.set()
        await healed(marks)
    assert done.count(first) == 1
    assert worker._repairing == []


async def test_a_repair_that_ends_as_the_marks_are_listed_is_made_once(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "REPLICATION_ROUND_MS", 10)
    metadata = await closed(cluster, b"x")
    worker = cluster.worker()
    listing, goes_on = asyncio.Event(), asyncio.Event()
    attempt, read_marks, run = worker._attempt, worker._read_marks, LedgerRepair.run
    tried: list[int] = []

    async def noted(ledger_id: int) -> None:
        tried.append(ledger_id)
        await attempt(ledger_id)

    async def held(self: LedgerRepair) -> None:
        await goes_on.wait()
        await run(self)

    async def stale() -> list[UnderReplicatedLedger]:
        found = await read_marks()
        if tried and not listing.is_set():
            assert [each.ledger_id for each in found] == [metadata.ledger_id]
            listing.set()
            goes_on.set()
            await until(lambda: worker.status()["at_ledgers"] == [])
        return found

    monkeypatch.setattr(LedgerRepair, "run", held)
    monkeypatch.setattr(worker, "_attempt", noted)
    monkeypatch.setattr(worker, "_read_marks", stale)
    await mark(marks, metadata.ledger_id, metadata.fragments[0].bookies[0])
    async with running(worker):
        await listing.wait()
        await healed(marks)
        await until(lambda: worker.status()["underreplicated_ledgers"] == 0)
    assert tried == [metadata.ledger_id]


async def test_a_worker_that_ends_leaves_no_repair_behind(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "REPLICATION_ROUND_MS", 10)
    metadata = await closed(cluster, b"x")
    began, ended = asyncio.Event(), asyncio.Event()

    async def held(self: LedgerRepair) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    monkeypatch.setattr(LedgerRepair, "run", held)
    await mark(marks, metadata.ledger_id, metadata.fragments[0].bookies[0])
    async with running(cluster.worker()):
        await began.wait()
        await asyncio.sleep(0.1)
        assert not ended.is_set()
    assert ended.is_set()


@pytest.mark.parametrize("hurries", [False, True])
async def test_a_ledger_that_has_lost_more_meanwhile_comes_next(
    cluster: LocalCluster,
    marks: UnderReplicatedLedgers,
    monkeypatch: pytest.MonkeyPatch,
    hurries: bool,
) -> None:
    if not hurries:
        monkeypatch.setattr(worker_module, "REPLICATION_ROUND_MS", 0)
    *others, worst = [await closed(cluster, b"x") for _ in range(5)]
    for metadata in others:
        bookie = metadata.fragments[0].bookies[0]
        await mark(marks, metadata.ledger_id, bookie, Cause.MISSING_COPIES)
    worker = cluster.worker(ledgers_at_once=1)
    attempt, order = worker._attempt, list[int]()

    async def noted(ledger_id: int) -> None:
        order.append(ledger_id)
        if len(order) == 1:
            for bookie in worst.fragments[0].bookies[:2]:
                await mark(marks, worst.ledger_id, bookie, Cause.MISSING_COPIES)
            if hurries:
                worker.hurry()
        await attempt(ledger_id)

    monkeypatch.setattr(worker, "_attempt", noted)
    async with running(worker):
        await healed(marks)
    assert order[1] == worst.ledger_id
    assert len(order) == 5
