"""The shared settings of self-healing: changes by compare-and-set, the watch, values of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fencelog.bookie.replication.settings import (
    DEFAULTS,
    SETTINGS_PATH,
    AutorecoverySettings,
    change_settings,
    read_settings,
    watch_settings,
)
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version, Versioned
from tests.bookie.replication.stage import PAYLOADS, closed, mark
from tests.support.local_cluster import LocalCluster
from tests.support.metadata_nodes import overwrite


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore()
    await store.start()
    yield store
    await store.close()


async def test_a_change_keeps_the_other_fields(store: MemoryMetadataStore) -> None:
    assert await read_settings(store) == DEFAULTS
    await change_settings(store, lost_bookie_grace_ms=60_000)
    changed = await change_settings(store, is_disabled=True)
    assert changed == AutorecoverySettings(True, 60_000, None) == await read_settings(store)
    await change_settings(store, lost_bookie_grace_ms=None, copy_bytes_per_s=5)
    assert await read_settings(store) == AutorecoverySettings(True, None, 5)


async def test_lost_answers_and_faster_processes_cost_no_change(
    store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.lose_replies(1)
    await change_settings(store, lost_bookie_grace_ms=1)
    set_ = store.set

    async def overtaken(path: str, value: bytes, version: Version) -> Version:
        monkeypatch.setattr(store, "set", set_)
        await change_settings(store, copy_bytes_per_s=7)
        return await set_(path, value, version)

    monkeypatch.setattr(store, "set", overtaken)
    await change_settings(store, is_disabled=True)
    assert await read_settings(store) == AutorecoverySettings(True, 1, 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"lost_bookie_grace_ms": -1},
        {"copy_bytes_per_s": 0},
        {"copy_bytes_per_s": -5},
        {"balance_bytes_per_s": 0},
    ],
)
async def test_impossible_values_are_refused(
    store: MemoryMetadataStore, changes: dict[str, int]
) -> None:
    with pytest.raises(FencelogError, match=next(iter(changes))) as caught:
        await change_settings(store, **changes)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert await read_settings(store) == DEFAULTS


async def test_a_watch_tells_every_process(store: MemoryMetadataStore) -> None:
    seen: list[AutorecoverySettings] = []
    watch = watch_settings(store, seen.append)
    await asyncio.sleep(0.01)
    await change_settings(store, is_disabled=True)
    await asyncio.sleep(0.01)
    await change_settings(store, is_disabled=False)
    await asyncio.sleep(0.01)
    assert [settings.is_disabled for settings in seen] == [False, True, False]
    watch.close()


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b'{"v":2}', b'{"v":1,"unknown":1}', b'{"v":1,"copy_bytes_per_s":"fast"}', b"{}"],
)
async def test_settings_that_cannot_be_read_turn_self_healing_off(
    store: MemoryMetadataStore, value: bytes
) -> None:
    await change_settings(store, is_disabled=False)
    await overwrite(store, SETTINGS_PATH, value)
    with pytest.raises(FencelogError, match=SETTINGS_PATH) as caught:
        await read_settings(store)
    assert caught.value.code is ErrorCode.CORRUPT
    seen: list[AutorecoverySettings] = []
    watch = watch_settings(store, seen.append)
    await asyncio.sleep(0.01)
    assert [settings.is_disabled for settings in seen] == [True]
    watch.close()


async def test_an_error_of_the_store_is_passed_on(
    store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(path: str) -> Versioned:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, path)

    monkeypatch.setattr(store, "get", fails)
    with pytest.raises(FencelogError) as caught:
        await change_settings(store, is_disabled=True)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    monkeypatch.undo()
    store.lose_replies(99)
    with pytest.raises(FencelogError) as caught:
        await change_settings(store, is_disabled=True)
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN


async def test_nothing_is_repaired_before_the_settings_are_known(
    cluster: LocalCluster, marks: UnderReplicatedLedgers
) -> None:
    metadata = await closed(cluster, *PAYLOADS)
    await mark(marks, metadata.ledger_id, metadata.fragments[0].bookies[0])
    await cluster.worker().check()
    assert await marks.get(metadata.ledger_id) is not None
