"""A bookie that may have forgotten fences before it serves, wherever it dies in between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.boot import fence_before_serving
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Versioned
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk
from tests.support.metadata_nodes import remove

OPEN, CLOSED, NAMED_EARLIER, IN_RECOVERY, STRANGER, MAY_BE_NAMED = range(1, 7)


def ledger(ledger_id: int, *ensemble: str) -> LedgerMetadata:
    return new_metadata(
        ledger_id, ensemble=ensemble, write_quorum=3, ack_quorum=2, token=f"t{ledger_id}"
    )


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore()
    await store.start()
    await create_instance(store, SystemHost())
    yield store
    await store.close()


@pytest.fixture
def open_bookie(open_bookie: OpenBookie, store: MemoryMetadataStore) -> OpenBookie:
    """Bookies that are registered."""
    return partial(open_bookie, cookies=CookieRegistry(store))


@pytest.fixture
async def ledgers(store: MemoryMetadataStore) -> LedgerStore:
    """Ledgers of which bookie b1 holds all but the last two; the recovery of the last one may have
    written to it, and may name it yet."""
    ledgers = LedgerStore(store)
    changed = ledger(NAMED_EARLIER, "b1", "b2", "b3")
    fragments = (*changed.fragments, Fragment(7, ("b4", "b2", "b3")))
    for metadata in (
        ledger(OPEN, "b1", "b2", "b3"),
        ledger(CLOSED, "b1", "b2", "b3").closed(last_entry_id=5, length=50),
        replace(changed, fragments=fragments),
        ledger(IN_RECOVERY, "b3", "b2", "b1").in_recovery(),
        ledger(STRANGER, "b2", "b3", "b4"),
        ledger(MAY_BE_NAMED, "b2", "b3", "b4").in_recovery(),
    ):
        await ledgers.create(metadata)
    return ledgers


async def code_of(request: Any) -> ErrorCode | None:
    try:
        result = await request
    except FencelogError as error:
        return error.code
    return result.code if isinstance(result, FencelogError) else None


async def expect_fenced(bookie: Bookie, requests: Requests, *, reads: dict[int, ErrorCode]) -> None:
    assert not bookie.may_have_forgotten
    for ledger_id in (OPEN, CLOSED, NAMED_EARLIER, IN_RECOVERY, MAY_BE_NAMED):
        add = requests.add(bookie, requests.run(ledger_id, 3))
        assert await code_of(add) is ErrorCode.LEDGER_FENCED
    assert {i: await code_of(requests.read(bookie, i, 3)) for i in reads} == reads


LIMBO = ErrorCode.LEDGER_IN_LIMBO
FORGOTTEN = {
    OPEN: LIMBO,
    CLOSED: LIMBO,
    NAMED_EARLIER: LIMBO,
    IN_RECOVERY: LIMBO,
    STRANGER: ErrorCode.NO_SUCH_LEDGER,
    MAY_BE_NAMED: LIMBO,
}


async def test_a_new_directory_fences_all_that_names_its_bookie(
    open_bookie: OpenBookie, requests: Requests, ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    bookie = await open_bookie(bookie_id="b1")
    assert bookie.may_have_forgotten
    await fence_before_serving(bookie, store)
    await expect_fenced(bookie, requests, reads=FORGOTTEN)
    assert await requests.add(bookie, requests.run(STRANGER, 0)) is None
    incarnation = bookie.incarnation
    await bookie.close()
    bookie = await open_bookie(bookie_id="b1")
    assert bookie.incarnation == incarnation
    await expect_fenced(bookie, requests, reads=FORGOTTEN | {STRANGER: ErrorCode.NO_SUCH_ENTRY})


async def test_a_bookie_that_remembers_lists_nothing(
    open_bookie: OpenBookie, ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    bookie = await open_bookie(bookie_id="b1")
    await fence_before_serving(bookie, store)
    await bookie.close()
    bookie = await open_bookie(bookie_id="b1")
    store.disconnect()
    await fence_before_serving(bookie, store)
    assert not bookie.may_have_forgotten


@pytest.mark.parametrize("instance", ["ab" * 16, None])
async def test_a_listing_of_another_cluster_counts_for_nothing(
    instance: str | None, open_bookie: OpenBookie, ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    """The store was emptied, and perhaps filled again, since the bookie was let in."""
    bookie = await open_bookie(bookie_id="b1")
    await remove(store, "/instance")
    if instance is not None:
        await store.create("/instance", json.dumps({"instance": instance}).encode())
    assert await code_of(fence_before_serving(bookie, store)) is ErrorCode.BAD_REQUEST
    assert bookie.may_have_forgotten


@pytest.mark.parametrize("listing", [1, 2, 3])
async def test_instance_and_listings_have_to_be_of_one_session(
    listing: int,
    open_bookie: OpenBookie,
    ledgers: LedgerStore,
    store: MemoryMetadataStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session ends before one of the listings: that of marks, or one of ledgers."""
    bookie = await open_bookie(bookie_id="b1")
    children, count = store.children, 0

    async def expire_first(path: str) -> list[str]:
        nonlocal count
        count += 1
        if count == listing:
            store.expire()
            await store.get("/instance")
        return await children(path)

    monkeypatch.setattr(store, "children", expire_first)
    assert await code_of(fence_before_serving(bookie, store)) is ErrorCode.METADATA_UNAVAILABLE
    assert bookie.may_have_forgotten


async def test_a_listing_that_is_not_whole_counts_for_nothing(
    open_bookie: OpenBookie,
    requests: Requests,
    ledgers: LedgerStore,
    store: MemoryMetadataStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bookie = await open_bookie(bookie_id="b1")
    reads = 0
    get = store.get

    async def lost_after_three(path: str) -> Versioned:
        nonlocal reads
        reads += 1
        if reads > 3:
            store.disconnect()
        return await get(path)

    monkeypatch.setattr(store, "get", lost_after_three)
    assert await code_of(fence_before_serving(bookie, store)) is ErrorCode.METADATA_UNAVAILABLE
    assert bookie.may_have_forgotten
    await bookie.close()
    monkeypatch.setattr(store, "get", get)
    store.reconnect()
    bookie = await open_bookie(bookie_id="b1")
    assert bookie.may_have_forgotten
    await fence_before_serving(bookie, store)
    await expect_fenced(bookie, requests, reads=FORGOTTEN)


async def test_damaged_metadata_may_be_that_of_ones_own_ledger(
    open_bookie: OpenBookie, ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    await store.create("/ledgers/0/0009", b"?")
    bookie = await open_bookie(bookie_id="b1")
    assert await code_of(fence_before_serving(bookie, store)) is ErrorCode.CORRUPT
    assert bookie.may_have_forgotten


async def test_fences_that_cannot_be_synced_are_no_fences(
    open_bookie: OpenBookie,
    ledgers: LedgerStore,
    store: MemoryMetadataStore,
    faulty_disk: FaultyDisk,
) -> None:
    bookie = await open_bookie(bookie_id="b1", disk=faulty_disk)
    faulty_disk.fails.add("sync .journal")
    assert await code_of(fence_before_serving(bookie, store)) is ErrorCode.STORAGE_FAILED
    await bookie.close()
    bookie = await open_bookie(bookie_id="b1")
    assert bookie.may_have_forgotten


async def test_wherever_it_dies_the_next_start_fences_or_it_was_done(
    open_bookie: OpenBookie,
    requests: Requests,
    ledgers: LedgerStore,
    store: MemoryMetadataStore,
    faulty_disk: FaultyDisk,
    tmp_path: Path,
) -> None:
    """The disk is gone after 0, 1, 2, … calls, from the making of the directory on."""
    finished = died_before = 0
    calls = 0
    while finished < 3:
        data_dir = tmp_path / f"data-{calls}"
        faulty_disk.calls_left = calls
        bookie = error = None
        try:
            bookie = await open_bookie(bookie_id="b1", data_dir=data_dir, disk=faulty_disk)
            await fence_before_serving(bookie, store)
        except FencelogError as failure:
            error = failure
        assert error is None or (error.code is ErrorCode.STORAGE_FAILED and not finished)
        finished += error is None
        incarnation = bookie.incarnation if bookie else None
        is_done = bookie is not None and not bookie.may_have_forgotten
        if bookie is not None:
            await bookie.close()
        again = await open_bookie(bookie_id="b1", data_dir=data_dir)
        assert incarnation in (None, again.incarnation)
        if again.may_have_forgotten:
            assert not is_done
            died_before += 1
            await fence_before_serving(again, store)
        await expect_fenced(again, requests, reads=FORGOTTEN)
        await again.close()
        await remove(store, "/cookies/b1")  # the next directory is that of another life
        calls += 1
        assert calls < 200
    assert died_before > 10


async def test_without_ledgers_there_is_nothing_to_fence(
    open_bookie: OpenBookie, requests: Requests, store: MemoryMetadataStore
) -> None:
    bookie = await open_bookie(bookie_id="b1")
    await fence_before_serving(bookie, store)
    assert not bookie.may_have_forgotten
    assert await requests.add(bookie, requests.run(OPEN, 0)) is None
