"""The instance id: created once, never replaced, never believed of a server that is behind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import (
    INSTANCE_PATH,
    create_instance,
    read_instance,
    require_instance,
)
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import NO_VERSION, Version, Versioned

HOST = SystemHost()


class Store(MemoryMetadataStore):
    """Writes whose fate is unknown, and a session that may end during a read."""

    unknown = 0
    lands = True
    expires = False
    expires_before = False

    async def create(self, path: str, value: bytes, **options: bool) -> Version:
        version = NO_VERSION
        if not self.unknown or self.lands:
            version = await super().create(path, value, **options)
        self._answer()
        return version

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        self._answer()
        try:
            return await super().set(path, value, version)
        finally:
            if self.expires_before:
                self.expire()

    async def get(self, path: str) -> Versioned:
        if self.expires:
            self.expire()
        return await super().get(path)

    def _answer(self) -> None:
        if self.unknown:
            self.unknown -= 1
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "made to fail")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = Store()
    await store.start()
    yield store
    await store.close()


async def code_of_read(store: Store) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        await read_instance(store)
    return caught.value.code


async def test_it_is_created_once_and_stays(store: Store) -> None:
    assert await read_instance(store) is None
    instance, is_new = await create_instance(store, HOST)
    assert (is_new, len(instance)) == (True, 32)
    assert await create_instance(store, HOST) == (instance, False)
    assert await read_instance(store) == instance
    node = await store.get(INSTANCE_PATH)
    assert node.version.number == 0
    assert json.loads(node.value)["created_us"] > 0


async def test_a_store_that_belongs_to_no_cluster_is_named(store: Store) -> None:
    with pytest.raises(FencelogError, match="zk://a:1/typo belongs to no cluster yet") as caught:
        await require_instance(store, "zk://a:1/typo")
    assert caught.value.code is ErrorCode.METADATA_NOT_FOUND
    instance, _ = await create_instance(store, HOST)
    assert await require_instance(store) == instance


async def test_a_lost_reply_is_resolved_by_reading_back(store: Store) -> None:
    store.unknown = 1
    instance, is_new = await create_instance(store, HOST)
    assert is_new
    assert await read_instance(store) == instance


async def test_what_cannot_be_found_stays_unknown(store: Store) -> None:
    store.unknown, store.lands = 1, False
    with pytest.raises(FencelogError) as caught:
        await create_instance(store, HOST)
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    store.lands = True
    assert (await create_instance(store, HOST))[1]


async def test_reading_goes_on_after_a_lost_reply_and_changes_nothing(store: Store) -> None:
    instance, _ = await create_instance(store, HOST)
    store.unknown = 2
    assert await read_instance(store) == instance
    store.unknown = 3
    assert await code_of_read(store) is ErrorCode.METADATA_UNKNOWN
    assert (await store.get(INSTANCE_PATH)).version.number == 0


@pytest.mark.parametrize("is_there", [True, False])
async def test_what_another_session_reads_is_not_believed(store: Store, is_there: bool) -> None:
    if is_there:
        await create_instance(store, HOST)
    store.expires = True
    assert await code_of_read(store) is ErrorCode.METADATA_UNAVAILABLE


async def test_a_session_that_ends_when_it_has_caught_up_says_nothing_of_the_next(
    store: Store,
) -> None:
    """That may be at a server which lags."""
    await create_instance(store, HOST)
    store.expires_before = True
    assert await code_of_read(store) is ErrorCode.METADATA_UNAVAILABLE


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"instance": 7}', b'{"instance": "ab"}'])
async def test_nonsense_is_corrupt(store: Store, value: bytes) -> None:
    await store.create(INSTANCE_PATH, value)
    assert await code_of_read(store) is ErrorCode.CORRUPT


async def test_what_cannot_be_read_back_stays_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(path: str) -> Versioned:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away")

    monkeypatch.setattr(store, "get", away)
    store.unknown = 1
    with pytest.raises(FencelogError) as caught:
        await create_instance(store, HOST)
    assert caught.value.code is ErrorCode.METADATA_UNKNOWN
    with pytest.raises(FencelogError, match="away"):  # it is there
        await create_instance(store, HOST)
