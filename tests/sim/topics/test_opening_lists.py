"""A broker that opens a partition for the first time checks that the topic still exists, and undoes
what it has made if not: never because of a server of the metadata store that lags behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from fencelog.broker.ledger_list.store import ledger_list_path
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig, TopicRegistry
from fencelog.ledgers.errors import FencelogError
from tests.sim.engine.host import SimHost
from tests.sim.metadata.store import SimStore
from tests.sim.metadata.world import World, simulate

NAME = TopicName("sim", "topic")


def registry(world: World, store: SimStore) -> TopicRegistry:
    ledgers: Any = None  # a list that was just made has none
    return TopicRegistry(store, host=SimHost(world.engine, store.machine), ledgers=ledgers)


async def opened_amid_losses(world: World) -> str:
    """One broker makes the topic; another, whose server lags, opens it while it loses its
    connection, or its session, at any moment. What came of that."""
    maker_process, maker = await world.store("k1")
    opener_process, opener = await world.store("k2")
    chance = world.engine.random("test")
    await maker_process.call(registry(world, maker).create(NAME, TopicConfig()))
    topics = registry(world, opener)
    while True:
        try:
            info = await opener_process.call(topics.get(NAME))
            break
        except FencelogError:  # it does not see it yet
            await asyncio.sleep(0.05)

    async def disturb() -> None:
        opener.fall_behind()
        await asyncio.sleep(chance.uniform(0, 0.02))
        if chance.random() < 0.5:
            opener.expire()
        world.network.reset("k2", "zk")
        for _ in range(200):  # its next server lags as far, too
            opener.fall_behind()
            await asyncio.sleep(0.01)

    disturbed = world.engine.world.spawn(disturb())
    try:
        await opener_process.call(topics.open_ledger_list(info, 0))
        result = "opened"
    except FencelogError as error:
        result = error.code.slug
    has = world.has(ledger_list_path(info.topic_id, 0))
    assert result != "topic_not_found"
    assert has or result != "opened"
    await disturbed
    assert has == world.has(ledger_list_path(info.topic_id, 0))
    return result


def test_a_topic_that_is_there_is_not_taken_for_deleted() -> None:
    results = Counter(simulate(opened_amid_losses, seed) for seed in range(1, 121))
    assert results["opened"] > 20
    assert results["metadata_unknown"] > 3  # the losses have met the opening


def test_a_list_of_a_topic_that_was_deleted_meanwhile_does_not_stay() -> None:
    async def main(world: World) -> str:
        maker_process, maker = await world.store("k1")
        opener_process, opener = await world.store("k2")
        made, topics = registry(world, maker), registry(world, opener)
        info, _ = await maker_process.call(made.create(NAME, TopicConfig()))
        deleting = maker_process.spawn(made.delete(NAME))
        opener.fall_behind()
        await asyncio.sleep(world.engine.random("test").uniform(0, 0.02))
        try:
            await opener_process.call(topics.open_ledger_list(info, 0))
            result = "opened"
        except FencelogError as error:
            result = error.code.slug
        await asyncio.wait([deleting])
        assert not world.has(ledger_list_path(info.topic_id, 0))
        return result

    results = Counter(simulate(main, seed) for seed in range(1, 61))
    assert results["topic_not_found"] > 10
    assert results.keys() <= {"topic_not_found", "opened", "metadata_unavailable"}
