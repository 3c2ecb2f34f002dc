"""Cursors follow the registry: opened where they are missing, dropped where they are left over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.subscription_registry import SubscriptionRegistry
from fencelog.broker.subscription_upkeep import SubscriptionUpkeep
from fencelog.ledgers.errors import ErrorCode, FencelogError


class Cursors:
    """The subscriptions of a log, as far as upkeep asks for them."""

    def __init__(self) -> None:
        self.open_at: dict[str, int | None] = {}
        self.failure: FencelogError | None = None

    def all(self) -> list[str]:
        return list(self.open_at)

    async def open(self, info: SubscriptionInfo, *, start_offset: int | None = None) -> None:
        if self.failure is not None:
            raise self.failure
        self.open_at.setdefault(info.subscription_id, start_offset)

    async def drop(self, subscription_id: str) -> None:
        del self.open_at[subscription_id]


class Log:
    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.earliest_offset = 7
        self.subscriptions = Cursors()


class Scene:
    """One topic with two partitions open at one broker."""

    def __init__(self, store: Any, host: Any) -> None:
        self.store = store
        self.registry = SubscriptionRegistry(store, host=host)
        self.logs = [Log(0), Log(1)]
        slots = [
            SimpleNamespace(info=SimpleNamespace(topic_id="t1"), partition=p, open_log=log)
            for p, log in enumerate(self.logs)
        ]
        self.upkeep = SubscriptionUpkeep(self.registry, lambda: slots)  # type: ignore[arg-type, return-value]

    async def create(self, name: str, *, durable: bool = True, partitions: int = 1) -> str:
        config = SubscriptionConfig(durable=durable)
        made, _ = await self.registry.create(
            "t1", name, config, "latest", partitions=partitions, at_most=9
        )
        return made.info.subscription_id

    def cursors(self, partition: int) -> dict[str, int | None]:
        return self.logs[partition].subscriptions.open_at


@pytest.fixture
async def scene(stage: Any) -> Any:
    scene = Scene(await stage.store(), stage.host)
    yield scene
    scene.registry.close()


async def test_cursors_that_are_missing_are_opened(scene: Scene) -> None:
    one = await scene.create("one")
    await scene.create("fleeting", durable=False)
    await scene.upkeep.look()
    assert scene.cursors(0) == {one: None}  # where its start says
    assert scene.cursors(1) == {one: 7}  # the partition came later: from its beginning
    two = await scene.create("two", partitions=2)
    await scene.upkeep.look()
    assert scene.cursors(1) == {one: 7, two: None}


async def test_a_log_without_cursors_is_looked_at_once(scene: Scene) -> None:
    await scene.upkeep.look()
    await scene.create("one")
    await scene.upkeep.look()
    assert scene.cursors(0) == {}


async def test_what_is_missing_twice_is_dropped(scene: Scene) -> None:
    one = await scene.create("one", partitions=2)
    await scene.upkeep.look()
    await scene.registry.delete("t1", "one")
    await scene.upkeep.look()
    assert scene.cursors(0) == {one: None}
    await scene.upkeep.look()
    assert scene.cursors(0) == scene.cursors(1) == {}


async def test_one_that_was_made_anew_is_another(scene: Scene) -> None:
    old = await scene.create("one", partitions=2)
    await scene.upkeep.look()
    await scene.registry.delete("t1", "one")
    new = await scene.create("one", partitions=2)
    await scene.upkeep.look()
    await scene.upkeep.look()
    assert scene.cursors(0) == {new: None}
    assert old != new


async def test_a_look_that_failed_drops_nothing_and_the_next_one_goes_on(scene: Scene) -> None:
    one = await scene.create("one", partitions=2)
    await scene.upkeep.look()
    await scene.registry.delete("t1", "one")
    await scene.upkeep.look()
    scene.store.disconnect()
    await scene.upkeep.look()
    scene.store.reconnect()
    await scene.upkeep.look()
    assert scene.cursors(0) == {one: None}  # two looks in a row, not two of three
    await scene.upkeep.look()
    assert scene.cursors(0) == {}


async def test_a_partition_that_fails_does_not_stop_the_others(scene: Scene) -> None:
    scene.logs[0].subscriptions.failure = FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")
    one = await scene.create("one", partitions=2)
    await scene.upkeep.look()
    assert (scene.cursors(0), scene.cursors(1)) == ({}, {one: None})
    scene.logs[0].subscriptions.failure = None
    await scene.upkeep.look()
    assert scene.cursors(0) == {one: None}
