"""One ledger over real bookies with real files: what is lost is copied, and what may not be is
not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.gc.ledgers import ClusterMetadata, LedgerGarbage
from fencelog.bookie.repair.other_copies import OtherCopies
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.ledger_metadata.update import update_metadata
from fencelog.ledgers.metastore.instance import read_instance
from fencelog.ledgers.metastore.port import Version
from tests.bookie.replication.stage import (
    PAYLOADS,
    Hooked,
    check_copies,
    closed,
    healed,
    mark,
    members,
    running,
    why,
)
from tests.support.local_cluster import LocalCluster
from tests.support.until import until


@pytest.mark.parametrize(("ensemble", "copies"), [(3, 3), (4, 3), (4, 2), (3, 1)])
async def test_a_lost_bookie_is_replaced_and_every_entry_has_all_its_copies(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, ensemble: int, copies: int
) -> None:
    """With one copy of each entry, those of a bookie that leaves come from itself."""
    closed: list[LedgerMetadata] = []
    for _ in range(4):
        writer = await cluster.write(
            *PAYLOADS, ensemble=ensemble, copies=copies, acks=min(copies, 2)
        )
        closed.append(await writer.close())
    empty = await (await cluster.create(ensemble, copies, min(copies, 2))).close()
    lost = closed[0].fragments[0].bookies[0]
    named = [m for m in [*closed, empty] if lost in m.fragments[0].bookies]
    why = Cause.LOST_BOOKIE if copies > 1 else Cause.DECOMMISSION
    if copies > 1:
        await cluster.stop(lost)
    for metadata in named:
        await mark(marks, metadata.ledger_id, lost, why)
    async with running(cluster.worker()) as worker:
        await healed(marks)
        status = worker.status()
    assert (status["repaired_ledgers"], status["ledgers_waiting"]) == (len(named), 0)
    for metadata in (*closed, empty):
        now, _ = await cluster.ledgers.get(metadata.ledger_id)
        assert lost not in now.fragments[0].bookies
        if lost in metadata.fragments[0].bookies:
            assert now == replace(metadata, fragments=now.fragments)
            changed = [
                (old, new)
                for old, new in zip(
                    metadata.fragments[0].bookies, now.fragments[0].bookies, strict=True
                )
                if old != new
            ]
            assert [old for old, _ in changed] == [lost]
        else:
            assert now == metadata
        await check_copies(cluster, metadata.ledger_id, [] if metadata is empty else PAYLOADS)


async def test_a_lost_bookie_that_does_not_answer_is_replaced_where_it_has_no_entries(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    """It is registered again, and nobody reaches it: the next entries must not wait for it."""
    empty = await (await cluster.create(3, 3, 2)).close()
    named, _ = await members(cluster, empty)
    cluster.cut(named[0])
    await mark(marks, empty.ledger_id, named[0])
    async with running(cluster.worker()):
        await healed(marks)
    now, _ = await cluster.ledgers.get(empty.ledger_id)
    assert named[0] not in now.fragments[0].bookies


async def test_the_only_other_bookie_is_taken_although_it_lacked_entries(tmp_path: Path) -> None:
    """It is marked itself, of other fragments; unless it is to leave, there is no better one."""
    async with LocalCluster(tmp_path, size=4) as cluster:
        marks = UnderReplicatedLedgers(cluster.store)
        metadata = await closed(cluster, *PAYLOADS)
        named, spares = await members(cluster, metadata)
        await cluster.stop(named[0])
        await mark(marks, metadata.ledger_id, named[0])
        await mark(marks, metadata.ledger_id, spares[0], Cause.DECOMMISSION)
        worker = cluster.worker()
        async with running(worker):
            waits = [(metadata.ledger_id, "not_enough_bookies", None)]
            await until(lambda: why(worker) == waits)
            found = await marks.get(metadata.ledger_id)
            assert found is not None
            await marks.unmark(metadata.ledger_id, found.version)
            await mark(marks, metadata.ledger_id, named[0])
            await mark(marks, metadata.ledger_id, spares[0], Cause.MISSING_COPIES)
            worker.hurry()
            await healed(marks)
        now, _ = await cluster.ledgers.get(metadata.ledger_id)
        assert now.fragments[0].bookies == (spares[0], *named[1:])
        await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_bookie_that_is_back_with_everything_costs_no_copy(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    await mark(marks, metadata.ledger_id, metadata.fragments[0].bookies[0])
    async with running(cluster.worker()) as worker:
        await healed(marks)
    assert worker.status()["copied_entries"] == 0
    assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata


async def test_entries_that_a_bookie_lacks_are_copied_to_it(tmp_path: Path) -> None:
    """It was cut off while they were written, and says truly that it does not have them."""
    async with LocalCluster(tmp_path, size=3) as cluster:
        marks = UnderReplicatedLedgers(cluster.store)
        writer = await cluster.write(*PAYLOADS[:20])
        cluster.cut("b1")
        for payload in PAYLOADS[20:]:
            writer.append(payload)
        await until(lambda: writer.last_add_confirmed == len(PAYLOADS) - 1)
        cluster.cut()
        metadata = await writer.close()
        await mark(marks, metadata.ledger_id, "b1", Cause.MISSING_COPIES)
        async with running(cluster.worker()) as worker:
            await healed(marks)
        assert worker.status()["copied_entries"] == 40
        assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata
        await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_ledger_whose_mark_is_gone_stays_as_it_is(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    """The garbage collector of the target may take its copies from then on."""
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    await cluster.stop(named[0])
    await mark(marks, metadata.ledger_id, named[0])

    async def unmark(request: str) -> None:
        found = await marks.get(metadata.ledger_id)
        if found is not None:
            await marks.unmark(metadata.ledger_id, found.version)

    targets = [Hooked(cluster, bookie) for bookie in spares]
    for target in targets:
        target.before = unmark
    worker = cluster.worker()
    async with running(worker):
        await until(lambda: any(target.adds for target in targets))
        await until(lambda: worker.status()["at_ledgers"] == [])
    assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata


async def test_a_repair_begins_with_metadata_that_is_not_older_than_the_mark(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an outdated value the ledger would lack nothing, and lose its mark."""
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    await cluster.stop(named[0])
    (first,) = metadata.fragments
    outdated = replace(
        metadata, fragments=(replace(first, bookies=(spares[0], *first.bookies[1:])),)
    )
    get, get_latest, is_behind = LedgerStore.get, LedgerStore.get_latest, True

    async def get_behind(self: LedgerStore, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        found, version = await get(self, ledger_id)
        return (outdated if is_behind else found), version

    async def caught_up(self: LedgerStore, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        nonlocal is_behind
        is_behind = False
        return await get_latest(self, ledger_id)

    monkeypatch.setattr(LedgerStore, "get", get_behind)
    monkeypatch.setattr(LedgerStore, "get_latest", caught_up)
    await mark(marks, metadata.ledger_id, named[0])
    async with running(cluster.worker()):
        await healed(marks)
    is_behind = False
    assert named[0] not in (await cluster.ledgers.get(metadata.ledger_id))[0].fragments[0].bookies
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_lost_bookie_that_answers_is_replaced_while_it_is_not_registered(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off from the metadata store alone, and is a source like any other."""
    metadata = await closed(cluster, *PAYLOADS, ensemble=3, copies=1, acks=1)
    named, spares = await members(cluster, metadata)
    monkeypatch.setattr(cluster, "available", lambda: sorted([*named[1:], *spares]))
    await mark(marks, metadata.ledger_id, named[0])
    async with running(cluster.worker()):
        await healed(marks)
    now, _ = await cluster.ledgers.get(metadata.ledger_id)
    assert named[0] not in now.fragments[0].bookies
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_bookie_that_cannot_be_asked_lacks_nothing(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    bookie = metadata.fragments[0].bookies[0]
    cluster.cut(bookie)
    await mark(marks, metadata.ledger_id, bookie, Cause.MISSING_COPIES)
    async with running(cluster.worker()) as worker:
        await until(lambda: why(worker) == [(metadata.ledger_id, "unreached", None)])
    assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata
    assert worker.status()["copied_entries"] == 0


async def test_an_entry_that_no_bookie_has_is_told_and_nothing_denies_it(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    """Qa = 2 were asked for, and by the metadata an ensemble of others has it: all are intact."""
    metadata = await closed(cluster, *PAYLOADS)
    beyond = replace(metadata, last_entry_id=61)
    base, version = await cluster.ledgers.get(metadata.ledger_id)
    await update_metadata(cluster.ledgers, base, version, lambda now: beyond)
    bookie = metadata.fragments[0].bookies[0]
    await mark(marks, metadata.ledger_id, bookie, Cause.DECOMMISSION)
    worker = cluster.worker()
    async with running(worker):
        await until(lambda: why(worker) == [(metadata.ledger_id, "lost", 60)])
    assert (await cluster.ledgers.get(metadata.ledger_id))[0].fragments == metadata.fragments
    status = worker.status()
    assert (status["ledgers_lost"], status["copied_entries"]) == (1, 60)  # the others are copied


async def losing_target(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, *, at_list: int
) -> tuple[LedgerMetadata, str]:
    """Mark a ledger whose target loses its disk before it answers so many lists."""
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    await cluster.stop(named[0])
    await cluster.stop(spares[1])
    target, lists = Hooked(cluster, spares[0]), 0

    async def lose_disk(request: str) -> None:
        nonlocal lists
        lists += request == "list"
        if lists == at_list and request == "list":
            await cluster.lose_disk(spares[0])
            target.use_current()
            target.before = None

    target.before = lose_disk
    await mark(marks, metadata.ledger_id, named[0])
    return metadata, spares[0]


async def lost_target(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, *, at_list: int
) -> tuple[LedgerMetadata, str]:
    """Repair a ledger while its target loses its disk before it answers so many lists."""
    metadata, target = await losing_target(cluster, marks, at_list=at_list)
    async with running(cluster.worker()) as worker:
        await until(lambda: bool(worker.status()["waiting"]))
        assert [waiting[1] for waiting in why(worker)] == ["wrong_incarnation"]
    return metadata, target


async def test_a_target_that_loses_its_disk_before_the_change_is_not_named(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata, target = await lost_target(cluster, marks, at_list=2)
    assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata
    with pytest.raises(FencelogError) as caught:  # and it denies nothing until it is known
        await cluster.bookies[target].read(metadata.ledger_id, 0, max_entries=1, max_bytes=100)
    assert caught.value.code is ErrorCode.LEDGER_IN_LIMBO
    async with running(cluster.worker()):
        await healed(marks)
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_target_that_loses_its_disk_at_the_change_denies_nothing_and_gets_copies_again(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata, target = await lost_target(cluster, marks, at_list=3)
    now, _ = await cluster.ledgers.get(metadata.ledger_id)
    assert target in now.fragments[0].bookies
    marked = await marks.get(metadata.ledger_id)
    assert marked is not None
    assert marked.missing[target] == frozenset({Cause.MISSING_COPIES})
    with pytest.raises(FencelogError) as caught:
        await cluster.bookies[target].read(metadata.ledger_id, 0, max_entries=1, max_bytes=100)
    assert caught.value.code is ErrorCode.LEDGER_IN_LIMBO
    worker = cluster.worker()
    async with running(worker):
        await until(lambda: why(worker) == [(metadata.ledger_id, "self_repair", None)])
        await cluster.integrity(target).check()
        worker.hurry()
        await healed(marks)
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_target_that_cannot_be_marked_is_marked_before_anything_is_repaired(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has lost its disk at the change, and the metadata is away when that is found. The mark
    that is there names only the bookie that was replaced, which lacks nothing any more."""
    metadata, target = await losing_target(cluster, marks, at_list=3)
    worker = cluster.worker()
    write, refused = worker._marks.mark, list[int]()

    async def mark_late(ledger_id: int, **options: Any) -> None:
        if not refused:
            refused.append(ledger_id)
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away")
        await write(ledger_id, **options)

    monkeypatch.setattr(worker._marks, "mark", mark_late)
    async with running(worker):
        await until(lambda: bool(refused and worker.status()["waiting"]))
        worker.hurry()
        await until(lambda: why(worker) == [(metadata.ledger_id, "self_repair", None)])
        await cluster.integrity(target).check()
        worker.hurry()
        await healed(marks)
    assert refused == [metadata.ledger_id]
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_move_that_is_given_up_at_the_change_leaves_its_target_to_be_marked(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the metadata names it nobody knows."""
    metadata = await closed(cluster, *PAYLOADS)
    named, _ = await members(cluster, metadata)
    await cluster.stop(named[0])
    await mark(marks, metadata.ledger_id, named[0])
    worker = cluster.worker()
    changing = asyncio.Event()

    async def never(*change: object) -> Any:
        changing.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(worker._tools.ledgers, "update", never)
    async with running(worker):
        await changing.wait()
    ((ledger_id, target),) = worker._tools.unproven
    assert ledger_id == metadata.ledger_id
    assert target not in named
    await worker._tools.mark_unproven()
    marked = await marks.get(ledger_id)
    assert marked is not None
    assert marked.missing[target] == frozenset({Cause.MISSING_COPIES})
    assert worker._tools.unproven == set()


async def test_garbage_collection_leaves_marked_ledgers_alone(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    target, source = cluster.bookies[spares[0]], cluster.client(named[1])
    reply = await source.read(metadata.ledger_id, 0, max_entries=60, max_bytes=1 << 20)
    answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    target.add(bytes(reply.run), recovery=True, on_reply=answer.set_result)
    assert await answer is None
    await mark(marks, metadata.ledger_id, named[0])
    instance = target.instance
    garbage = LedgerGarbage(
        target,
        ClusterMetadata(cluster.store, lambda: read_instance(cluster.store), instance),
        OtherCopies(target, cluster).doubt,
        grace_ms=0,
    )
    assert await garbage.collect() == []
    marked = await marks.get(metadata.ledger_id)
    assert marked is not None
    await marks.unmark(metadata.ledger_id, marked.version)
    assert await garbage.collect() == [metadata.ledger_id]


async def test_a_ledger_deleted_while_it_is_copied_stays_deleted(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    await cluster.stop(named[0])
    hooks = [Hooked(cluster, spare) for spare in spares]
    for hook in hooks:
        hook.after_add = lambda: deletions.append(
            asyncio.create_task(cluster.ledger_client.delete(metadata.ledger_id))
        )
    deletions: list[asyncio.Task[None]] = []
    await mark(marks, metadata.ledger_id, named[0])
    async with running(cluster.worker()) as worker:
        await until(lambda: bool(deletions))
        await asyncio.gather(*deletions)
        worker.hurry()
        await healed(marks)
    with pytest.raises(FencelogError) as caught:
        await cluster.ledgers.get_latest(metadata.ledger_id)
    assert caught.value.code is ErrorCode.LEDGER_NOT_FOUND


async def test_a_bookie_moves_to_another_rack_only_where_that_is_safer(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    racks = {named[0]: "r1", named[1]: "r1", named[2]: "r2", spares[0]: "r3", spares[1]: "r1"}
    describe = cluster.describe
    monkeypatch.setattr(
        cluster, "describe", lambda bookie: replace(describe(bookie), rack=racks[bookie])
    )
    await mark(marks, metadata.ledger_id, named[0], Cause.PLACEMENT)
    async with running(cluster.worker()):
        await healed(marks)
        now, _ = await cluster.ledgers.get(metadata.ledger_id)
        assert now.fragments[0].bookies == (spares[0], *named[1:])
        await mark(marks, metadata.ledger_id, named[1], Cause.PLACEMENT)
        await healed(marks)
    assert (await cluster.ledgers.get(metadata.ledger_id))[0] == now
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)
