"""The registry of subscriptions: created once, found by all, gone for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

import pytest

from fencelog.broker.registry.subscription_config import Start, SubscriptionConfig
from fencelog.broker.registry.subscription_registry import (
    RegisteredSubscription,
    SubscriptionRegistry,
    decode_registered,
    encode_registered,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Version, Versioned
from tests.support.broker_stage import Stage, Until

SETTINGS = SubscriptionConfig(type="exclusive", max_deliveries=3)


async def create(
    registry: SubscriptionRegistry,
    name: str = "s",
    config: SubscriptionConfig = SETTINGS,
    start: Start = "latest",
    at_most: int = 10,
) -> tuple[RegisteredSubscription, bool]:
    return await registry.create("t1", name, config, start, partitions=2, at_most=at_most)


@pytest.fixture
async def store(stage: Stage) -> MemoryMetadataStore:
    return await stage.store()


@pytest.fixture
def registry(stage: Stage, store: MemoryMetadataStore) -> Iterator[SubscriptionRegistry]:
    registry = SubscriptionRegistry(store, host=stage.host)
    yield registry
    registry.close()


async def refused(awaitable: Awaitable[object], code: ErrorCode) -> None:
    with pytest.raises(FencelogError) as raised:
        await awaitable
    assert raised.value.code is code


async def test_creating_again_with_the_same_settings_finds_it(
    registry: SubscriptionRegistry,
) -> None:
    made, created = await create(registry)
    assert (created, made.partitions, made.info.name) == (True, 2, "s")
    found, created = await create(registry)
    assert (found, created) == (made, False)
    await refused(create(registry, config=SubscriptionConfig()), ErrorCode.ALREADY_EXISTS)
    await refused(create(registry, start={"offset": 3}), ErrorCode.ALREADY_EXISTS)
    await refused(create(registry, name="a:b"), ErrorCode.INVALID_NAME)


async def test_two_who_create_at_once_get_the_same(
    registry: SubscriptionRegistry, stage: Stage
) -> None:
    other = SubscriptionRegistry(await stage.store(), host=stage.host)
    (one, _), (two, _) = await asyncio.gather(create(registry), create(other))
    assert one.info.subscription_id == two.info.subscription_id


async def test_a_create_whose_answer_was_lost_is_known_by_its_id(
    registry: SubscriptionRegistry, store: MemoryMetadataStore, stage: Stage
) -> None:
    store.lose_replies(1)
    made, created = await create(registry)
    assert created
    assert (await registry.get("t1", "s")) == made


async def test_a_topic_has_so_many_and_no_more(registry: SubscriptionRegistry) -> None:
    await create(registry, "b", at_most=2)
    await create(registry, "a", at_most=2)
    await create(registry, "a", at_most=2)
    await refused(create(registry, "c", at_most=2), ErrorCode.LIMIT_REACHED)
    assert [found.info.name for found in await registry.list("t1")] == ["a", "b"]
    assert await registry.list("t2") == []


async def test_one_that_was_deleted_and_made_anew_is_another(
    registry: SubscriptionRegistry, stage: Stage, until: Until
) -> None:
    other = SubscriptionRegistry(await stage.store(), host=stage.host)
    old = (await create(registry))[0]
    assert await other.find("t1", "s") == old
    assert await other.find("t1", "s") == old
    assert await registry.delete("t1", "s") == old
    await refused(registry.delete("t1", "s"), ErrorCode.SUBSCRIPTION_NOT_FOUND)
    await refused(registry.find("t1", "s"), ErrorCode.SUBSCRIPTION_NOT_FOUND)
    await until(lambda: not other._known)
    await refused(other.find("t1", "s"), ErrorCode.SUBSCRIPTION_NOT_FOUND)
    new = (await create(registry))[0]
    assert new.info.subscription_id != old.info.subscription_id
    assert await other.find("t1", "s") == new
    other.close()


async def test_a_name_that_another_has_by_now_is_forgotten(
    registry: SubscriptionRegistry, store: MemoryMetadataStore
) -> None:
    """A watch may tell of the next one without a word of the deletion before."""
    found = (await create(registry))[0]
    await registry.find("t1", "s")
    node = await store.get("/subscriptions/t1/s")
    registry._on_node("t1", "s", found.info.subscription_id, node)
    assert registry._known.keys() == {("t1", "s")}
    registry._on_node("t1", "s", "the one before", node)
    assert not registry._known


async def test_a_delete_whose_answer_was_lost_has_happened(
    registry: SubscriptionRegistry, store: MemoryMetadataStore
) -> None:
    await create(registry)
    store.lose_replies(1)
    await registry.delete("t1", "s")
    await refused(registry.get("t1", "s"), ErrorCode.SUBSCRIPTION_NOT_FOUND)


async def test_a_delete_that_never_arrived_has_not_happened(
    registry: SubscriptionRegistry, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that took it for done would drop the cursors of a subscription that is there."""
    made, _ = await create(registry)

    async def lost(*args: object) -> None:
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

    monkeypatch.setattr(store, "delete", lost)
    await refused(registry.delete("t1", "s"), ErrorCode.METADATA_UNKNOWN)
    assert await registry.get("t1", "s") == made
    assert await registry.find("t1", "s") == made


async def test_a_delete_is_not_taken_for_done_where_nobody_can_look(
    registry: SubscriptionRegistry, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = await create(registry)

    async def cut(*args: object) -> None:
        store.disconnect()
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

    monkeypatch.setattr(store, "delete", cut)
    await refused(registry.delete("t1", "s"), ErrorCode.METADATA_UNKNOWN)
    store.reconnect()
    assert await registry.get("t1", "s") == made


async def test_unknown_outcomes_are_not_resolved_by_a_server_that_lags(
    registry: SubscriptionRegistry, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new session's server shows what was true before, until the session has written."""
    get, write = store.get, store.set
    shown: dict[str, Versioned | None] = {}

    async def lagging(path: str) -> Versioned:
        if path not in shown:
            return await get(path)
        if (found := shown[path]) is None:
            raise FencelogError(ErrorCode.METADATA_NOT_FOUND, "not yet")
        return found

    async def written(path: str, value: bytes, version: Version) -> Version:
        shown.clear()
        return await write(path, value, version)

    path = "/subscriptions/t1/s"
    monkeypatch.setattr(store, "get", lagging)
    monkeypatch.setattr(store, "set", written)

    old, _ = await create(registry)
    before = await get(path)
    await registry.delete("t1", "s")

    async def lost(*args: object) -> None:
        shown[path] = before
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

    with monkeypatch.context() as broken:
        broken.setattr(store, "create", lost)
        await refused(create(registry), ErrorCode.METADATA_UNKNOWN)

    new, created = await create(registry)
    assert created
    assert new != old

    async def lost_too(*args: object) -> None:
        shown[path] = None
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

    monkeypatch.setattr(store, "delete", lost_too)
    await refused(registry.delete("t1", "s"), ErrorCode.METADATA_UNKNOWN)
    assert await registry.get("t1", "s") == new


async def test_a_node_that_is_not_valid_is_said_to_be_so(registry: SubscriptionRegistry) -> None:
    made = (await create(registry))[0]
    assert decode_registered(encode_registered(made)) == made
    for bad in (b"{", b"[]", b'{"v": 9}', encode_registered(made).replace(b"exclusive", b"odd")):
        with pytest.raises(FencelogError) as raised:
            decode_registered(bad)
        assert raised.value.code is ErrorCode.CORRUPT


async def test_a_list_by_two_sessions_is_not_the_latest(
    registry: SubscriptionRegistry, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server of the second may be behind what the first has caught up with."""
    await create(registry)

    async def of_another_session(path: str) -> list[str]:
        store.expire()
        return []

    monkeypatch.setattr(store, "children", of_another_session)
    await refused(registry.list_latest("t1"), ErrorCode.METADATA_UNAVAILABLE)
    monkeypatch.undo()
    assert [found.info.name for found in await registry.list_latest("t1")] == ["s"]


async def test_a_deletion_is_not_certain_by_the_word_of_another_session(
    registry: SubscriptionRegistry, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server does not show the subscription yet, which is there."""
    made, _ = await create(registry)
    get = store.get

    async def of_another_session(path: str) -> Versioned:
        store.expire()
        raise FencelogError(ErrorCode.METADATA_NOT_FOUND, "not yet")

    async def lost(*args: object) -> None:
        monkeypatch.setattr(store, "get", of_another_session)
        raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

    monkeypatch.setattr(store, "delete", lost)
    await refused(registry.delete("t1", "s"), ErrorCode.METADATA_UNKNOWN)
    monkeypatch.setattr(store, "get", get)
    assert await registry.get("t1", "s") == made
