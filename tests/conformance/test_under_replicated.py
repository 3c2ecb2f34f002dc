"""Every store: marks and locks of re-replication, of sessions that come and go."""

from __future__ import annotations

from collections.abc import Callable

from fencelog.bookie.replication.locks import ReplicationLocks
from fencelog.bookie.replication.settings import change_settings, read_settings
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.metastore.port import MetadataStore


async def test_a_mark_is_removed_at_the_version_that_was_read(store: MetadataStore) -> None:
    marks = UnderReplicatedLedgers(store)
    for ledger_id in (70_000, 1):
        await marks.mark(ledger_id, missing=["b"], why=Cause.LOST_BOOKIE, now_us=3)
    listed = [mark async for mark in marks.list()]
    assert [(mark.ledger_id, mark.since_us) for mark in listed] == [(1, 3), (70_000, 3)]
    assert await marks.unmark(1, listed[0].version)
    await marks.mark(1, missing=["b"], why=Cause.LOST_BOOKIE, now_us=9)
    assert not await marks.unmark(1, listed[0].version)
    await marks.mark(70_000, missing=["c"], why=Cause.DAMAGED, now_us=9)
    assert not await marks.unmark(70_000, listed[1].version)
    assert [mark.since_us async for mark in marks.list()] == [9, 3]


async def test_the_end_of_a_session_frees_its_locks(
    store: MetadataStore, new_store: Callable[[], MetadataStore]
) -> None:
    theirs = ReplicationLocks(store, worker_id="w1", token="1")
    ours = ReplicationLocks(store, worker_id="w2", token="2")
    for ledger_id in (1, 2):
        assert await theirs.acquire(ledger_id) is not None
        assert await ours.acquire(ledger_id) is None
    await store.close()
    later = new_store()
    await later.start()
    ours = ReplicationLocks(later, worker_id="w2", token="2")
    lock = await ours.acquire(1)
    assert lock is not None
    ours.check(lock)
    await ours.release(lock)
    assert await ours.acquire(1) is not None
    await later.close()


async def test_settings_are_shared(store: MetadataStore) -> None:
    await change_settings(store, is_disabled=True)
    await change_settings(store, lost_bookie_grace_ms=5)
    settings = await read_settings(store)
    assert (settings.is_disabled, settings.lost_bookie_grace_ms) == (True, 5)
