"""Topics that a broker remembers: what is told late must not undo what was told before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fencelog.broker.names import TopicName
from fencelog.broker.registry.topic_cache import TopicCache
from fencelog.broker.registry.topic_node import encode_topic, topic_path
from fencelog.broker.registry.topics import TopicConfig, TopicInfo, TopicRegistry
from fencelog.ledgers.host import Host
from tests.support.broker_stage import Stage, Until
from tests.support.metadata_nodes import remove_now

NAME = TopicName.of("shop", "orders")


@pytest.fixture
async def registry(stage: Stage, host: Host) -> TopicRegistry:
    return TopicRegistry(await stage.store(), host=host, ledgers=stage.ledgers)


@pytest.fixture
async def changes() -> list[TopicInfo]:
    """Return what the broker was told of."""
    return []


@pytest.fixture
def known(registry: TopicRegistry, changes: list[TopicInfo]) -> Iterator[TopicCache]:
    found = TopicCache(registry, on_change=changes.append, on_gone=lambda info: None)
    yield found
    found.close()


def roll_entries(known: TopicCache) -> int:
    info = known.get(NAME)
    assert info is not None
    return info.policy.roll_entries


async def test_an_answer_that_was_overtaken_by_the_watch_changes_nothing(
    registry: TopicRegistry, known: TopicCache, changes: list[TopicInfo], until: Until
) -> None:
    """Two changes of settings at the same time: the first one's answer comes after the news of the
    second one."""
    await registry.create(NAME, TopicConfig())
    await known.find(NAME)
    first = await registry.update(NAME, {"roll_entries": 7}, partitions=2)
    second = await registry.update(NAME, {"roll_entries": 8}, partitions=4)
    await until(lambda: known.get(NAME) == second)
    changes.clear()
    known.changed(first)
    assert known.get(NAME) == second
    assert changes == []


async def test_a_look_that_began_before_a_change_does_not_undo_it(
    registry: TopicRegistry, known: TopicCache, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.create(NAME, TopicConfig())
    look_up, may_answer = registry.look_up, asyncio.Event()

    async def slowly(name: TopicName) -> TopicInfo:
        info: TopicInfo = await look_up(name)
        await may_answer.wait()
        return info

    monkeypatch.setattr(registry, "look_up", slowly)
    slow = asyncio.create_task(known.find(NAME))
    await asyncio.sleep(0)
    monkeypatch.setattr(registry, "look_up", look_up)
    await known.find(NAME)
    changed = await registry.update(NAME, {"retention_ms": 5}, partitions=3)
    await until(lambda: known.get(NAME) == changed)
    may_answer.set()
    assert await slow == changed
    assert known.get(NAME) == changed


async def test_the_namespaces_news_count_for_a_topic_that_did_not_change(
    registry: TopicRegistry, known: TopicCache, until: Until
) -> None:
    await registry.create(NAME, TopicConfig())
    await known.find(NAME)
    await registry.namespaces.create("shop", {"roll_entries": 7})
    await until(lambda: roll_entries(known) == 7)
    await registry.namespaces.update("shop", {"roll_entries": None})
    await until(lambda: roll_entries(known) != 7)


async def test_a_topic_with_more_partitions_is_found_before_the_watch_tells(
    registry: TopicRegistry, known: TopicCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.create(NAME, TopicConfig())
    assert (await known.find(NAME)).config.partitions == 1
    monkeypatch.setattr(known, "_seen", lambda *_: None)
    await registry.update(NAME, {}, partitions=2)
    assert (await known.find(NAME, 1)).config.partitions == 2


async def test_a_topic_that_was_made_anew_is_not_the_one_that_is_known(
    stage: Stage, registry: TopicRegistry, known: TopicCache, changes: list[TopicInfo], until: Until
) -> None:
    """Nobody sees the moment in between."""
    before, _ = await registry.create(NAME, TopicConfig())
    await known.find(NAME)
    path = topic_path(NAME)
    remove_now(stage.cluster, path)
    stage.cluster.create(path, encode_topic(replace(before, topic_id="another")))
    await until(lambda: known.get(NAME) != before)
    assert (known.get(NAME), changes) == (None, [])
    assert (await known.find(NAME)).topic_id == "another"
