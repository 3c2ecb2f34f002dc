"""The worker over real bookies: which ledgers it repairs, when, and when it stops."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from fencelog.bookie.repair.copies import NoCopy
from fencelog.bookie.replication.core import Step
from fencelog.bookie.replication.locks import ReplicationLock, ReplicationLocks
from fencelog.bookie.replication.repair import LedgerRepair
from fencelog.bookie.replication.settings import change_settings
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.metastore.port import NO_VERSION
from tests.bookie.replication.stage import (
    PAYLOADS,
    Clock,
    Hooked,
    check_copies,
    closed,
    healed,
    knows_lac,
    mark,
    members,
    running,
    why,
)
from tests.support.local_cluster import LocalCluster
from tests.support.until import until


async def test_closed_fragments_of_an_open_ledger_are_copied_while_its_writer_goes_on(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    writer = await cluster.write(*PAYLOADS[:20])
    lost = writer.metadata.fragments[0].bookies[0]
    await cluster.stop(lost)
    for payload in PAYLOADS[20:40]:
        writer.append(payload)
    await until(lambda: writer.last_add_confirmed == 39)
    assert len(writer.metadata.fragments) == 2
    last = writer.metadata.last_fragment
    await mark(marks, writer.ledger_id, lost)
    async with running(cluster.worker()):
        await healed(marks)
    metadata, _ = await cluster.ledgers.get(writer.ledger_id)
    assert metadata.state is LedgerState.OPEN
    assert lost not in metadata.fragments[0].bookies
    assert metadata.last_fragment == last
    other = last.bookies[0]
    await cluster.stop(other)
    for payload in PAYLOADS[40:]:
        writer.append(payload)
    await until(lambda: writer.last_add_confirmed == 59)
    changed = (await cluster.ledgers.get(writer.ledger_id))[0]
    assert changed.fragments[0] == metadata.fragments[0]  # the writer has kept it
    await writer.close()
    for bookie in (lost, other):
        await cluster.start(bookie)
    await check_copies(cluster, writer.ledger_id, PAYLOADS)


async def test_what_a_writer_changes_during_the_copying_stays(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    writer = await cluster.write(*PAYLOADS[:20])
    lost, *others = writer.metadata.fragments[0].bookies
    await cluster.stop(lost)
    for payload in PAYLOADS[20:40]:
        writer.append(payload)
    await until(lambda: writer.last_add_confirmed == 39)
    targets = [Hooked(cluster, bookie) for bookie in sorted(set(cluster.bookies) - set(others))]

    async def change_ensemble(request: str) -> None:
        if not any(target.adds for target in targets):
            return
        for target in targets:
            target.before = None
        cluster.cut(others[0])
        for payload in PAYLOADS[40:]:
            writer.append(payload)
        await until(lambda: writer.last_add_confirmed == 59)
        cluster.cut()

    for target in targets:
        target.before = change_ensemble
    await mark(marks, writer.ledger_id, lost)
    async with running(cluster.worker()):
        await healed(marks)
    assert len(writer.metadata.fragments) == 3
    metadata, _ = await cluster.ledgers.get(writer.ledger_id)
    assert lost not in metadata.fragments[0].bookies
    assert metadata.fragments[1:] == writer.metadata.fragments[1:]
    await writer.close()
    await cluster.start(lost)
    await check_copies(cluster, writer.ledger_id, PAYLOADS)


async def test_an_open_last_fragment_is_closed_by_recovery_after_the_grace_time(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    writer = await cluster.write(*PAYLOADS)
    lost = writer.metadata.fragments[0].bookies[0]
    await cluster.stop(lost)
    await mark(marks, writer.ledger_id, lost)
    worker = cluster.worker(open_ledger_grace_ms=600)
    async with running(worker):
        await until(lambda: why(worker) == [(writer.ledger_id, "open", None)])
        metadata, _ = await cluster.ledgers.get(writer.ledger_id)
        assert metadata.state is LedgerState.OPEN
        await healed(marks)
    await check_copies(cluster, writer.ledger_id, PAYLOADS)
    writer.append(b"late")
    with pytest.raises(FencelogError):
        await writer.close()


@pytest.mark.parametrize("is_lost", [False, True])
async def test_an_old_fragment_that_waits_does_not_keep_the_last_one_open(
    cluster: LocalCluster,
    marks: UnderReplicatedLedgers,
    monkeypatch: pytest.MonkeyPatch,
    is_lost: bool,
) -> None:
    """Its bookie cannot be asked, or no bookie has some of its entries."""
    writer = await cluster.write(*PAYLOADS[:20])
    away = writer.metadata.fragments[0].bookies[0]
    await cluster.stop(away)
    for payload in PAYLOADS[20:]:
        writer.append(payload)
    await until(lambda: writer.last_add_confirmed == len(PAYLOADS) - 1)
    _, last = writer.metadata.fragments
    lost = last.bookies[2]
    await writer.abandon()
    await cluster.stop(lost)
    if is_lost:
        step = LedgerRepair._step

        async def fails_in_the_first(
            self: LedgerRepair, metadata: LedgerMetadata, todo: Step
        ) -> bool:
            if todo.fragment.first == 0:
                raise NoCopy(writer.ledger_id, 5, {})
            return await step(self, metadata, todo)

        monkeypatch.setattr(LedgerRepair, "_step", fails_in_the_first)
    else:
        await mark(marks, writer.ledger_id, away, Cause.MISSING_COPIES)
    await mark(marks, writer.ledger_id, lost)
    worker = cluster.worker(open_ledger_grace_ms=200)
    expected = (writer.ledger_id, "lost", 5) if is_lost else (writer.ledger_id, "unreached", None)
    async with running(worker):
        async with asyncio.timeout(20):
            while True:
                now, _ = await cluster.ledgers.get(writer.ledger_id)
                if now.is_closed and lost not in now.last_fragment.bookies:
                    break
                await asyncio.sleep(0.02)
        await until(lambda: why(worker) == [expected])
    assert away in now.fragments[0].bookies
    assert await marks.get(writer.ledger_id) is not None


async def test_a_recovery_that_was_left_is_finished_before_its_mark_goes(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    """The writer died before a copy arrived, and whoever began to recover its ledger has too."""
    hooks = [Hooked(cluster, bookie) for bookie in cluster.bookies]
    writer = await cluster.write(*PAYLOADS[:20])
    (behind, *_), _ = await members(cluster, writer.metadata)
    deaf = next(hook for hook in hooks if hook.bookie == behind)
    deaf.is_deaf = True
    for payload in PAYLOADS[20:]:
        writer.append(payload)
    await until(lambda: writer.last_add_confirmed == 59)
    await writer.abandon()
    deaf.is_deaf = False
    metadata, version = await cluster.ledgers.get(writer.ledger_id)
    await cluster.ledgers.update(metadata.in_recovery(), version)
    await mark(marks, writer.ledger_id, behind, Cause.MISSING_COPIES)
    async with running(cluster.worker(open_ledger_grace_ms=0)):
        await healed(marks)
    await check_copies(cluster, writer.ledger_id, PAYLOADS)


async def test_a_writer_that_makes_progress_is_not_ended(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than the grace time is between two of its signs. Attempts come on request alone."""
    monkeypatch.setattr("fencelog.bookie.repair.backoff.pause_s", lambda attempts: 1e9)
    writer = await cluster.write(b"0")
    (_, lost, _), _ = await members(cluster, writer.metadata)
    await mark(marks, writer.ledger_id, lost, Cause.DECOMMISSION)
    worker = cluster.worker(open_ledger_grace_ms=900)
    clock, attempts, attempt = Clock(), list[int](), worker._attempt
    monkeypatch.setattr(worker._open, "_loop", clock)

    async def noted(ledger_id: int) -> None:
        await attempt(ledger_id)
        attempts.append(ledger_id)

    monkeypatch.setattr(worker, "_attempt", noted)
    async with running(worker):
        await until(lambda: len(attempts) == 1)
        for number in range(1, 15):
            await knows_lac(cluster, writer, writer.append(b"%d" % number))
            clock.now_s += 0.8
            worker.hurry()
            await until(partial(lambda before: len(attempts) > before, number))
            assert (await cluster.ledgers.get(writer.ledger_id))[0].state is LedgerState.OPEN
            assert [waiting[1] for waiting in why(worker)] == ["open"]
    await writer.abandon()


async def test_without_a_spare_bookie_nothing_is_done_and_no_writer_is_ended(
    tmp_path: Path,
) -> None:
    async with LocalCluster(tmp_path, size=3) as cluster:
        marks = UnderReplicatedLedgers(cluster.store)
        writer = await cluster.write(*PAYLOADS)
        metadata = await closed(cluster, *PAYLOADS)
        await cluster.stop("b1")
        for ledger_id in (writer.ledger_id, metadata.ledger_id):
            await mark(marks, ledger_id, "b1")
        worker = cluster.worker(open_ledger_grace_ms=0)
        async with running(worker):
            await until(
                lambda: [waiting[1] for waiting in why(worker)] == ["not_enough_bookies"] * 2
            )
        assert (await cluster.ledgers.get(writer.ledger_id))[0].state is LedgerState.OPEN
        await writer.abandon()


async def test_a_deleted_ledger_is_not_marked_any_more(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    lost = metadata.fragments[0].bookies[0]
    await cluster.stop(lost)
    await mark(marks, metadata.ledger_id, lost)
    await cluster.ledger_client.delete(metadata.ledger_id)
    await mark(marks, 99_999, lost)
    async with running(cluster.worker()):
        await healed(marks)


async def test_turning_it_off_stops_between_copies(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS, ensemble=4, copies=3)
    named, spares = await members(cluster, metadata)
    await cluster.stop(named[0])
    target = Hooked(cluster, spares[0])
    worker = cluster.worker()

    async def turn_off(request: str) -> None:
        if target.adds:
            return
        await change_settings(cluster.store, is_disabled=True)
        await until(lambda: bool(worker.status()["is_disabled"]))

    target.before = turn_off
    await mark(marks, metadata.ledger_id, named[0])
    async with running(worker):
        await until(lambda: why(worker) == [(metadata.ledger_id, "disabled", None)])
        await asyncio.sleep(0.2)
        assert target.adds == 0
        assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata
        target.before = None
        await change_settings(cluster.store, is_disabled=False)
        await healed(marks)
    cluster.put(spares[0], target._client)
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_worker_that_has_lost_its_lock_changes_nothing(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    await cluster.stop(named[0])
    await cluster.stop(spares[1])
    target = Hooked(cluster, spares[0])

    async def expire(request: str) -> None:
        target.before = None
        cluster.store.expire()

    target.before = expire
    await mark(marks, metadata.ledger_id, named[0])
    worker = cluster.worker()
    async with running(worker):
        await until(lambda: why(worker) == [(metadata.ledger_id, "lock_lost", None)])
        assert target.adds == 0
        await healed(marks)
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_locked_ledger_is_left_to_its_worker(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    lost = metadata.fragments[0].bookies[0]
    await cluster.stop(lost)
    locks = ReplicationLocks(cluster.store, worker_id="w2", token="2")
    lock = await locks.acquire(metadata.ledger_id)
    assert lock is not None
    await mark(marks, metadata.ledger_id, lost)
    async with running(cluster.worker()) as worker:
        await asyncio.sleep(0.3)
        assert (await cluster.ledgers.get(metadata.ledger_id))[0] == metadata
        assert worker.status()["ledgers_waiting"] == 0
        await locks.release(lock)
        await healed(marks)


async def test_two_workers_without_locks_leave_one_of_their_targets(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both copy; the compare-and-set lets one of them in."""
    metadatas = [await closed(cluster, *PAYLOADS) for _ in range(4)]

    async def anybody(locks: ReplicationLocks, ledger_id: int) -> ReplicationLock:
        return ReplicationLock(ledger_id, NO_VERSION, cluster.store.session_id)

    monkeypatch.setattr(ReplicationLocks, "acquire", anybody)
    await cluster.stop("b1")
    for metadata in metadatas:
        await mark(marks, metadata.ledger_id, "b1")
    async with running(cluster.worker()) as one, running(cluster.worker()) as other:
        async with asyncio.timeout(30):
            while [ledger_id async for ledger_id in marks.list_ids()]:
                one.hurry()
                other.hurry()
                await asyncio.sleep(0.05)
    for metadata in metadatas:
        await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_mark_made_during_the_repair_stays_until_it_is_looked_at(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    """The second bookie was lost after the worker had found that it has everything."""
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    await cluster.stop(named[0])
    hooks = [Hooked(cluster, spare) for spare in spares]

    def lose_another() -> None:
        for hook in hooks:
            hook.after_add = lambda: None
        tasks.append(asyncio.create_task(mark(marks, metadata.ledger_id, named[1])))
        cluster.cut(named[1])

    tasks: list[asyncio.Task[None]] = []
    for hook in hooks:
        hook.after_add = lose_another
    await mark(marks, metadata.ledger_id, named[0])
    async with running(cluster.worker()) as worker:
        await until(lambda: bool(tasks))
        await asyncio.gather(*tasks)
        worker.hurry()
        await healed(marks)
    now, _ = await cluster.ledgers.get(metadata.ledger_id)
    assert set(now.fragments[0].bookies) == {named[2], *spares}
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_ledger_that_waits_is_tried_when_a_bookie_registers(
    cluster: LocalCluster, marks: UnderReplicatedLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.bookie.repair.backoff.pause_s", lambda attempts: 1e9)
    metadata = await closed(cluster, *PAYLOADS)
    named, spares = await members(cluster, metadata)
    for bookie in (named[0], *spares):
        await cluster.stop(bookie)
    await mark(marks, metadata.ledger_id, named[0])
    async with running(cluster.worker()) as worker:
        await until(lambda: why(worker) == [(metadata.ledger_id, "not_enough_bookies", None)])
        await asyncio.sleep(0.1)
        assert [item["attempts"] for item in worker.status()["waiting"]] == [1]
        await cluster.start(spares[0])
        await healed(marks)
    now, _ = await cluster.ledgers.get(metadata.ledger_id)
    assert now.fragments[0].bookies == (spares[0], *named[1:])
    await check_copies(cluster, metadata.ledger_id, PAYLOADS)


async def test_a_mark_that_cannot_be_read_stops_no_repair_but_its_own(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    """A process of a later version may know a cause that this one does not."""
    first, second = [await closed(cluster, b"x") for _ in range(2)]
    for metadata in (first, second):
        bookie = metadata.fragments[0].bookies[0]
        await mark(marks, metadata.ledger_id, bookie, Cause.MISSING_COPIES)
    path = ledger_path(MARKS_PATH, first.ledger_id)
    node = await cluster.store.get(path)
    await cluster.store.set(path, node.value.replace(b"missing_copies", b"moonlight"), node.version)
    async with running(cluster.worker()) as worker:
        await until(lambda: worker.status()["repaired_ledgers"] == 1)
        await until(lambda: worker.status()["underreplicated_ledgers"] == 1)
        assert "'moonlight'" in worker.status()["last_error"]
    assert [ledger_id async for ledger_id in marks.list_ids()] == [first.ledger_id]
    with pytest.raises(FencelogError, match="moonlight"):
        _ = [each async for each in marks.list()]


async def test_a_slow_rate_of_the_cluster_is_kept(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *(b"x" * 20_000 for _ in range(10)))
    await cluster.stop(metadata.fragments[0].bookies[0])
    await change_settings(cluster.store, copy_bytes_per_s=200_000)
    await mark(marks, metadata.ledger_id, metadata.fragments[0].bookies[0])
    started = asyncio.get_running_loop().time()
    async with running(cluster.worker()):
        await healed(marks)
    assert asyncio.get_running_loop().time() - started > 0.9


async def test_marks_that_cannot_be_listed_are_told_and_listed_again(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    lost = metadata.fragments[0].bookies[0]
    async with running(cluster.worker()) as worker:
        await until(lambda: not worker.status()["is_disabled"])
        cluster.store.disconnect()
        await until(lambda: worker.status()["last_error"] is not None)
        cluster.store.reconnect()
        await cluster.stop(lost)
        await mark(marks, metadata.ledger_id, lost)
        await healed(marks)
        assert worker.status()["last_error"] is None
