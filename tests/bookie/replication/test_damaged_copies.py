"""Damaged copies over real bookies with real files: they are not copied, and are replaced if their
bookie does not repair them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencelog.bookie.repair import backoff, copies
from fencelog.bookie.replication import repair
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
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
    why,
)
from tests.support.local_cluster import LocalCluster
from tests.support.until import until


async def test_a_copy_with_a_bad_digest_is_not_copied(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    lost, *others = metadata.fragments[0].bookies
    await cluster.stop(lost)

    class Rotten(Hooked):
        async def read(self, *arguments: Any, **options: Any) -> Any:
            reply = await super().read(*arguments, **options)
            return replace(reply, run=damaged(reply.run))

    rotten = Rotten(cluster, others[0])
    await mark(marks, metadata.ledger_id, lost)
    async with running(cluster.worker()):
        await healed(marks)
    cluster.put(others[0], rotten._client)
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_damaged_copies_move_to_another_bookie_if_their_own_does_not_repair_them(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "pause_s", lambda attempts: 0.05)
    metadata = await closed(cluster, *PAYLOADS)
    named, _ = await members(cluster, metadata)

    class Rotten(Hooked):
        async def read(self, *arguments: Any, **options: Any) -> Any:
            reply = await super().read(*arguments, **options)
            return replace(reply, run=damaged(reply.run))

    Rotten(cluster, named[0])
    await mark(marks, metadata.ledger_id, named[0], Cause.DAMAGED)
    await mark(marks, metadata.ledger_id, named[1], Cause.DAMAGED)
    worker = cluster.worker()
    async with running(worker):
        await until(lambda: why(worker) == [(metadata.ledger_id, "self_repair", None)])
        await healed(marks)
    now, _ = await cluster.ledgers.get(metadata.ledger_id)
    assert named[0] not in now.fragments[0].bookies
    assert now.fragments[0].bookies[1:] == metadata.fragments[0].bookies[1:]
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


@pytest.mark.parametrize("first_damaged", [0, 21, 59])
async def test_a_damaged_copy_is_found_wherever_it_is_on_a_striped_bookie(
    cluster: LocalCluster,
    marks: UnderReplicatedLedgers,
    monkeypatch: pytest.MonkeyPatch,
    first_damaged: int,
) -> None:
    """Its entries are many ranges, and each of them is read."""
    monkeypatch.setattr(repair, "SELF_REPAIR_ATTEMPTS", 0)
    metadata = await closed(cluster, *PAYLOADS, ensemble=4, copies=3)
    rotten = metadata.fragments[0].bookies[3]  # has entry 59, as 59 % 4 is 3

    class Rotten(Hooked):
        async def read(self, ledger_id: int, first: int, **options: Any) -> Any:
            reply = await super().read(ledger_id, first, **options)
            is_there = read_run_header(reply.run).last_entry_id >= first_damaged
            return replace(reply, run=damaged(reply.run)) if is_there else reply

    Rotten(cluster, rotten)
    await mark(marks, metadata.ledger_id, rotten, Cause.DAMAGED)
    async with running(cluster.worker()):
        await healed(marks)
    now, _ = await cluster.ledgers.get(metadata.ledger_id)
    assert rotten not in now.fragments[0].bookies
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_bookie_that_cannot_be_read_is_not_damaged(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with lists, and not with entries, however often it is asked."""
    monkeypatch.setattr(backoff, "pause_s", lambda attempts: 0.01)
    monkeypatch.setattr(repair, "SELF_REPAIR_ATTEMPTS", 0)
    metadata = await closed(cluster, *PAYLOADS)
    named, _ = await members(cluster, metadata)

    class Slow(Hooked):
        reads = 0

        async def read(self, *arguments: Any, **options: Any) -> Any:
            self.reads += 1
            raise FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer")

    monkeypatch.setattr(copies, "SOURCE_REST_MS", 1)
    slow = Slow(cluster, named[0])
    await mark(marks, metadata.ledger_id, named[0], Cause.DAMAGED)
    worker = cluster.worker()
    async with running(worker):
        await until(lambda: slow.reads >= 3 or worker.status()["repaired_ledgers"] > 0)
        assert why(worker) == [(metadata.ledger_id, "unreached", None)]
    assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata
