"""Locks of replication workers: one holder, lost answers, the end of the session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencelog.bookie.replication.locks import LOCKS_PATH, ReplicationLocks
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
async def store(cluster: MemoryCluster) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(cluster)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
async def other_store(cluster: MemoryCluster) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(cluster)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def locks(store: MemoryMetadataStore) -> ReplicationLocks:
    return ReplicationLocks(store, worker_id="w1", token="1")


async def test_one_worker_holds_a_lock_until_it_releases_it(
    locks: ReplicationLocks, store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    others = [
        ReplicationLocks(other_store, worker_id="w2", token="2"),
        ReplicationLocks(store, worker_id="w3", token="3"),  # in the same session
        locks,
    ]
    lock = await locks.acquire(7)
    assert lock is not None
    assert [await other.acquire(7) for other in others] == [None, None, None]
    assert await others[0].acquire(8) is not None
    await locks.release(lock)
    assert await others[0].acquire(7) is not None


async def test_the_end_of_the_session_gives_up_the_lock(
    locks: ReplicationLocks, store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    lock = await locks.acquire(7)
    assert lock is not None
    locks.check(lock)
    store.expire()
    other = ReplicationLocks(other_store, worker_id="w2", token="2")
    theirs = await other.acquire(7)
    assert theirs is not None
    with pytest.raises(FencelogError, match="lock of ledger 7") as caught:
        locks.check(lock)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    await locks.release(lock)
    assert await locks.acquire(7) is None
    other.check(theirs)


async def test_an_acquisition_whose_answer_is_lost_is_recognised(
    locks: ReplicationLocks, store: MemoryMetadataStore
) -> None:
    store.lose_replies(1)
    lock = await locks.acquire(7)
    assert lock is not None
    await locks.release(lock)
    with pytest.raises(FencelogError):
        await store.get(f"{LOCKS_PATH}/7")


async def test_a_lock_that_could_not_be_released_is_acquired_again(
    locks: ReplicationLocks, store: MemoryMetadataStore
) -> None:
    lock = await locks.acquire(7)
    assert lock is not None
    store.disconnect()
    with pytest.raises(FencelogError):
        await locks.release(lock)
    store.reconnect()
    again = await locks.acquire(7)
    assert again == lock
    store.lose_replies(1)
    await locks.release(lock)
    assert await locks.acquire(7) is not None


async def test_a_failed_acquisition_can_be_repeated(
    locks: ReplicationLocks, store: MemoryMetadataStore
) -> None:
    store.disconnect()
    with pytest.raises(FencelogError):
        await locks.acquire(7)
    store.reconnect()
    assert await locks.acquire(7) is not None


async def test_a_session_that_ends_during_the_acquisition_does_not_hold_the_lock(
    locks: ReplicationLocks, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = store.create

    async def expires(path: str, value: bytes, **options: bool) -> object:
        store.expire()
        return await create(path, value, **options)

    monkeypatch.setattr(store, "create", expires)
    with pytest.raises(FencelogError) as caught:
        await locks.acquire(7)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    monkeypatch.undo()
    lock = await locks.acquire(7)
    assert lock is not None
    locks.check(lock)


async def test_a_lock_that_disappears_while_it_is_examined_is_not_held(
    locks: ReplicationLocks, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = await locks.acquire(7)
    assert lock is not None
    other = ReplicationLocks(store, worker_id="w3", token="3")
    get = store.get

    async def removed(path: str) -> object:
        await locks.release(lock)
        return await get(path)

    monkeypatch.setattr(store, "get", removed)
    assert await other.acquire(7) is None
    monkeypatch.undo()
    assert await other.acquire(7) is not None
