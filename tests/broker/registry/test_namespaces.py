"""Namespaces, and settings that reach open logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from fencelog.broker.names import TopicName
from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import ONE_MESSAGE
from fencelog.broker.registry.namespaces import Namespaces
from fencelog.broker.registry.topics import TopicConfig, TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import Version, Versioned
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import BrokerMaker, Stage, Until
from tests.support.metadata_nodes import overwrite
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName.of("shop", "orders")
DEFAULT = Policy(retention_ms=7, roll_ms=9)


@pytest.fixture
async def registry(stage: Stage, host: Host) -> TopicRegistry:
    return TopicRegistry(await stage.store(), host=host, ledgers=stage.ledgers, policy=DEFAULT)


@pytest.fixture
def namespaces(registry: TopicRegistry) -> Namespaces:
    return registry.namespaces


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await work
    return raised.value.code


async def test_a_namespace_that_nobody_made_has_the_clusters_settings(
    registry: TopicRegistry, namespaces: Namespaces
) -> None:
    assert await code_of(namespaces.get("shop")) is ErrorCode.NAMESPACE_NOT_FOUND
    info, _ = await registry.create(NAME, TopicConfig())
    assert info.policy == DEFAULT
    found = await namespaces.get("shop")
    assert (found.policy, found.overrides, found.created_us) == (DEFAULT, {}, None)
    assert [each.name for each in await namespaces.list()] == ["shop"]


async def test_a_namespace_is_made_once(namespaces: Namespaces) -> None:
    made, created = await namespaces.create("shop", {"retention_ms": 3})
    again, created_again = await namespaces.create("shop", {"retention_ms": 3})
    assert (created, created_again, again) == (True, False, made)
    assert made.policy.retention_ms == 3
    other = namespaces.create("shop", {"retention_ms": 4})
    assert await code_of(other) is ErrorCode.ALREADY_EXISTS
    assert await code_of(namespaces.create("b", {"retention_ms": 0})) is ErrorCode.BAD_REQUEST


async def test_a_create_whose_reply_was_lost_is_recognised(
    stage: Stage, namespaces: Namespaces
) -> None:
    stage.stores[-1].lose_replies(1)
    _, created = await namespaces.create("shop", {"roll_ms": 3})
    assert created


async def test_a_create_that_cannot_be_read_back_is_no_refusal(
    stage: Stage, namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stage.stores[-1]

    async def away(path: str) -> Versioned:
        raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, path)

    monkeypatch.setattr(store, "get", away)
    store.lose_replies(1)
    assert await code_of(namespaces.create("shop", {})) is ErrorCode.METADATA_UNKNOWN
    assert await code_of(namespaces.create("shop", {})) is ErrorCode.METADATA_UNAVAILABLE


async def test_a_create_whose_reply_was_lost_is_read_by_a_server_that_has_caught_up(
    stage: Stage, namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lags behind shows the namespace that had this name before."""
    store = stage.stores[-1]
    await namespaces.create("shop", {"roll_ms": 3})
    get, write = store.get, store.set
    before = await get("/namespaces/shop")
    await namespaces.delete("shop")
    shown = {"/namespaces/shop": before}

    async def lagging(path: str) -> Versioned:
        return shown.get(path) or await get(path)

    async def written(path: str, value: bytes, version: Version) -> Version:
        shown.clear()
        return await write(path, value, version)

    monkeypatch.setattr(store, "get", lagging)
    monkeypatch.setattr(store, "set", written)
    store.lose_replies(1)
    info, created = await namespaces.create("shop", {"roll_ms": 4})
    assert (info.policy.roll_ms, created) == (4, True)


async def test_topics_inherit_and_override(registry: TopicRegistry, namespaces: Namespaces) -> None:
    await namespaces.create("shop", {"retention_ms": 3, "ttl_ms": 4})
    info, _ = await registry.create(NAME, TopicConfig(1, {"ttl_ms": 5, "retention_bytes": None}))
    policy = info.policy
    assert (policy.roll_ms, policy.retention_ms, policy.ttl_ms) == (9, 3, 5)
    await namespaces.update("shop", {"retention_ms": None, "roll_ms": 2})
    policy = (await registry.get(NAME)).policy
    assert (policy.roll_ms, policy.retention_ms, policy.ttl_ms) == (2, 7, 5)
    assert (await registry.list())[0].policy == policy


async def test_a_change_meets_a_change(
    stage: Stage,
    host: Host,
    registry: TopicRegistry,
    namespaces: Namespaces,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two settings that are changed at once are both changed."""
    await namespaces.create("shop", {})
    await registry.create(NAME, TopicConfig())
    cases: list[tuple[Any, str, Any]] = [
        (lambda fields: namespaces.update("shop", fields), "/namespaces/shop", namespaces),
        (lambda fields: registry.update(NAME, fields), "/topics/shop/orders", registry),
    ]
    for change, path, read in cases:
        store: Any = stage.stores[-1]
        met: list[str] = []
        get = store.get

        async def get_and_be_late(
            where: str,
            *,
            path: str = path,
            change: Any = change,
            get: Any = get,
            met: list[str] = met,
        ) -> Any:
            found = await get(where)
            if where == path and not met:
                met.append(where)
                await change({"ttl_ms": 4})
            return found

        monkeypatch.setattr(store, "get", get_and_be_late)
        await change({"roll_ms": 5})
        monkeypatch.setattr(store, "get", get)
        policy = (await read.get("shop" if read is namespaces else NAME)).policy
        assert (policy.ttl_ms, policy.roll_ms) == (4, 5)


async def test_a_namespace_with_topics_stays(
    registry: TopicRegistry, namespaces: Namespaces
) -> None:
    await namespaces.create("shop", {})
    await registry.create(NAME, TopicConfig())
    assert await code_of(namespaces.delete("shop")) is ErrorCode.NAMESPACE_NOT_EMPTY
    await registry.delete(NAME)
    await namespaces.delete("shop")
    assert await code_of(namespaces.delete("shop")) is ErrorCode.NAMESPACE_NOT_FOUND
    assert await namespaces.list() == []


async def test_a_topic_that_a_lagging_server_does_not_list_yet_keeps_its_namespace(
    stage: Stage, registry: TopicRegistry, namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic would have other settings from one moment to the next."""
    await namespaces.create("shop", {"retention_ms": 3})
    await registry.create(NAME, TopicConfig())

    async def nothing_yet(_path: str) -> list[str]:
        return []

    with monkeypatch.context() as patched:
        patched.setattr(stage.stores[-1], "children", nothing_yet)
        assert await code_of(namespaces.delete("shop")) is ErrorCode.NAMESPACE_NOT_EMPTY
    assert (await registry.get(NAME)).policy.retention_ms == 3


async def test_a_namespace_of_topics_alone_gets_its_node_with_its_first_setting(
    registry: TopicRegistry, namespaces: Namespaces
) -> None:
    await registry.create(NAME, TopicConfig())
    changed = await namespaces.update("shop", {"roll_ms": 5})
    assert (changed.overrides, changed.created_us is None) == ({"roll_ms": 5}, False)
    assert await code_of(namespaces.update("none", {})) is ErrorCode.NAMESPACE_NOT_FOUND


async def test_a_first_setting_meets_another_one(
    stage: Stage,
    registry: TopicRegistry,
    namespaces: Namespaces,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are set, though only one of the two requests has found no node."""
    await registry.create(NAME, TopicConfig())
    store: Any = stage.stores[-1]
    children = store.children

    async def children_and_be_late(path: str) -> list[str]:
        monkeypatch.setattr(store, "children", children)
        await namespaces.update("shop", {"ttl_ms": 4})
        found: list[str] = await children(path)
        return found

    monkeypatch.setattr(store, "children", children_and_be_late)
    await namespaces.update("shop", {"roll_ms": 5})
    assert (await namespaces.get("shop")).overrides == {"ttl_ms": 4, "roll_ms": 5}


async def test_watches_of_a_topic_see_its_own_and_inherited_settings(
    registry: TopicRegistry, namespaces: Namespaces, until: Until
) -> None:
    await registry.create(NAME, TopicConfig())
    seen: list[Any] = []
    others: list[Any] = []
    watch, other = registry.watch(NAME, seen.append), registry.watch(NAME, others.append)
    await until(lambda: len(seen) == 1 and len(others) == 1)
    await namespaces.create("shop", {"ttl_ms": 3})
    await until(lambda: seen[-1].policy.ttl_ms == 3)
    await registry.update(NAME, {"ttl_ms": 4}, partitions=2)
    await until(lambda: (seen[-1].policy.ttl_ms, seen[-1].config.partitions) == (4, 2))
    other.close()
    await namespaces.update("shop", {"roll_ms": 3})
    await until(lambda: seen[-1].policy.roll_ms == 3)
    assert others[-1].policy.roll_ms == 9
    await registry.delete(NAME)
    await until(lambda: seen[-1] is None)
    watch.close()
    watch.close()
    assert namespaces._shared == {}


async def test_a_topic_whose_namespace_is_known_before_it_is_not_taken_for_deleted(
    registry: TopicRegistry, until: Until
) -> None:
    await registry.create(NAME, TopicConfig())
    others: list[Any] = []
    seen: list[Any] = []
    first = registry.watch(NAME, others.append)
    await until(lambda: others != [])
    second = registry.watch(NAME, seen.append)
    await until(lambda: seen != [])
    for watch in (first, second):
        watch.close()
    assert None not in seen


async def test_watches_do_not_take_what_cannot_be_read_for_other_settings_or_for_a_deletion(
    stage: Stage, registry: TopicRegistry, namespaces: Namespaces, until: Until
) -> None:
    """They may be the settings by which messages are removed."""
    await namespaces.create("shop", {"retention_ms": 3})
    await registry.create(NAME, TopicConfig())
    seen: list[Any] = []
    watch = registry.watch(NAME, seen.append)
    await until(lambda: len(seen) == 1)
    for path in ("/namespaces/shop", "/topics/shop/orders"):
        await overwrite(stage.stores[-1], path, b"{}")
        await asyncio.sleep(0.05)
    watch.close()
    assert [info and info.policy.retention_ms for info in seen] == [3]


async def test_partitions_are_added_and_never_taken_away(registry: TopicRegistry) -> None:
    await registry.create(NAME, TopicConfig(partitions=2))
    assert (await registry.update(NAME, {}, partitions=5)).config.partitions == 5
    assert await code_of(registry.update(NAME, {}, partitions=4)) is ErrorCode.BAD_REQUEST
    assert await code_of(registry.update(NAME, {}, partitions=1025)) is ErrorCode.BAD_REQUEST
    assert await code_of(registry.update(NAME, {"roll_ms": 0})) is ErrorCode.BAD_REQUEST
    assert (await registry.get(NAME)).config.partitions == 5


async def test_settings_reach_open_logs_of_other_brokers(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers, until: Until
) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    before = log.policy
    assert before.retention_ms is None
    await b.topics.namespaces.create("shop", {"retention_ms": 5, "ensemble_size": 5})
    await until(lambda: log.policy.retention_ms == 5)
    changed = await a.topics.update(NAME, {"roll_entries": 1, "retention_ms": 6})
    a.topic_changed(changed)
    assert log.policy.retention_ms == 6
    assert ledgers.newest.metadata.ensemble_size == 3
    await log.append_message(Message(b"x"))
    await until(lambda: ledgers.newest.metadata.ensemble_size == 5)


async def test_a_partition_that_was_added_elsewhere_is_found(make_broker: BrokerMaker) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    await log.append_message(Message(b"old"))
    await b.topics.update(NAME, {}, partitions=3)
    added = await a.partition(NAME, 2)
    assert (await added.append_message(Message(b"new"))).offset == 0
    assert (await a.topic(NAME)).config.partitions == 3
    assert (await log.read(0, ONE_MESSAGE)).next_offset == 1
    assert await code_of(a.partition(NAME, 3)) is ErrorCode.NOT_FOUND


async def test_the_retention_scheduler_trims_every_open_log(
    stage: Stage,
    make_broker: BrokerMaker,
    ledgers: ScriptedLedgers,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await make_broker("a")
    broker._retention._period_s = 0.05
    await broker.topics.create(NAME, TopicConfig(3, {"retention_ms": 1_000}))
    logs = [await broker.partition(NAME, number) for number in range(3)]
    for log in logs:
        await log.append_message(Message(b"x"))
    stage.host.clock_us += 5_000_000
    await until(lambda: all(log.earliest_offset == 1 for log in logs))
    await until(lambda: ledgers.deleted == {1, 2, 3})
