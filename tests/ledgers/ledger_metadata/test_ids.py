"""Ledger ids are never given twice, whatever becomes of the writes that reserve them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.ids import (
    BLOCK,
    COUNTER_PATH,
    LedgerIds,
    last_given_id,
    skip_ids,
)
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore()
    await store.start()
    yield store
    await store.close()


async def test_ids_count_from_1(store: MemoryMetadataStore) -> None:
    ids = LedgerIds(store)
    assert [await ids.next() for _ in range(2 * BLOCK + 1)] == list(range(1, 2 * BLOCK + 2))


async def test_many_takers_of_several_processes_never_share_an_id() -> None:
    cluster = MemoryCluster()
    stores = [MemoryMetadataStore(cluster) for _ in range(3)]
    for store in stores:
        await store.start()
    takers = [LedgerIds(store) for store in stores]
    taken = await asyncio.gather(*(takers[i % 3].next() for i in range(200)))
    assert len(set(taken)) == 200
    assert min(taken) == 1


async def test_a_new_process_skips_what_the_former_reserved(store: MemoryMetadataStore) -> None:
    assert await LedgerIds(store).next() == 1
    assert await LedgerIds(store).next() == BLOCK + 1


async def test_ids_that_were_taken_ahead_need_no_store(store: MemoryMetadataStore) -> None:
    ids = LedgerIds(store)
    await ids.take_ahead()
    await ids.take_ahead()  # there are some
    store.disconnect()
    assert [await ids.next() for _ in range(BLOCK)] == list(range(1, BLOCK + 1))
    with pytest.raises(FencelogError) as caught:
        await ids.take_ahead()
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


async def test_the_last_id_that_anybody_may_have_is_known(store: MemoryMetadataStore) -> None:
    assert await last_given_id(store) == 0
    await LedgerIds(store).next()
    assert await last_given_id(store) == BLOCK
    store.disconnect()
    with pytest.raises(FencelogError) as caught:
        await last_given_id(store)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


async def test_no_counter_is_made_in_a_store_of_no_cluster(store: MemoryMetadataStore) -> None:
    with pytest.raises(FencelogError, match="zk://a:1/typo belongs to no cluster") as caught:
        await skip_ids(store, 1000, name="zk://a:1/typo")
    assert caught.value.code is ErrorCode.METADATA_NOT_FOUND
    assert await last_given_id(store) == 0


async def test_ids_that_are_skipped_are_not_given(store: MemoryMetadataStore) -> None:
    await create_instance(store, SystemHost())
    assert await LedgerIds(store).next() == 1
    assert await skip_ids(store, 1000) == BLOCK + 1000
    assert await LedgerIds(store).next() == BLOCK + 1001


async def test_ids_are_skipped_where_none_had_been_given(store: MemoryMetadataStore) -> None:
    await create_instance(store, SystemHost())
    assert await skip_ids(store, 1000) == 1000
    assert await LedgerIds(store).next() == 1001


async def test_what_is_no_counter_is_left_as_it_is(store: MemoryMetadataStore) -> None:
    await create_instance(store, SystemHost())
    await store.create(COUNTER_PATH, b"many")
    with pytest.raises(FencelogError) as caught:
        await skip_ids(store, 1000)
    assert caught.value.code is ErrorCode.CORRUPT
    assert (await store.get(COUNTER_PATH)).value == b"many"


async def test_a_reservation_of_unknown_outcome_is_skipped(store: MemoryMetadataStore) -> None:
    ids = LedgerIds(store)
    first = [await ids.next() for _ in range(BLOCK)]
    store.lose_replies(2)
    assert first[-1] == BLOCK
    assert await ids.next() == 3 * BLOCK + 1


async def test_lost_replies_of_the_first_reservation(store: MemoryMetadataStore) -> None:
    store.lose_replies(2)
    assert await LedgerIds(store).next() == BLOCK + 1


async def test_a_damaged_counter_is_reported_not_reset(store: MemoryMetadataStore) -> None:
    await store.create(COUNTER_PATH, b"-5")
    with pytest.raises(FencelogError, match="no number") as caught:
        await LedgerIds(store).next()
    assert caught.value.code is ErrorCode.CORRUPT


async def test_no_id_without_the_store(store: MemoryMetadataStore) -> None:
    store.disconnect()
    with pytest.raises(FencelogError) as caught:
        await LedgerIds(store).next()
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.reconnect()
