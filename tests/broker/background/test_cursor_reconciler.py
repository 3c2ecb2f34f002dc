"""Cursors follow the registry: opened where they are missing, dropped where they are left over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.background.cursor_reconciler import CursorReconciler
from fencelog.broker.limits import SUBSCRIPTION_LOOK_MS
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.broker.registry.subscription_registry import (
    RegisteredSubscription,
    SubscriptionRegistry,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from tests.support.broker_stage import Stage


class Cursors:
    """The subscriptions of a log, as far as the reconciler asks for them."""

    def __init__(self) -> None:
        self.begun: dict[str, RegisteredSubscription] = {}
        self.failure: FencelogError | None = None
        self.at_most = 9
        self.unopened: set[str] = set()

    def all(self) -> list[str]:
        return list(self.begun)

    async def begin(self, registered: RegisteredSubscription) -> None:
        if self.failure is not None:
            raise self.failure
        if registered.info.name in self.unopened:
            raise FencelogError(ErrorCode.CORRUPT, "its start cannot be looked up")
        if len(self.begun) >= self.at_most:
            raise FencelogError(ErrorCode.LIMIT_REACHED, "too many cursors")
        self.begun.setdefault(registered.info.subscription_id, registered)

    async def drop(self, subscription_id: str) -> None:
        if self.failure is not None:
            raise self.failure
        del self.begun[subscription_id]


class Log:
    def __init__(self, partition: int) -> None:
        self.name = f"t1/{partition}"
        self.partition = partition
        self.subscriptions = Cursors()


class Scene:
    """One topic with two partitions open at one broker."""

    def __init__(self, store: MemoryMetadataStore, host: Host) -> None:
        self.store = store
        self.host = host
        self.registry = SubscriptionRegistry(store, host=host)
        self.logs = [Log(0), Log(1)]
        slots: list[Any] = [
            SimpleNamespace(info=SimpleNamespace(topic_id="t1"), partition=p, open_log=log)
            for p, log in enumerate(self.logs)
        ]
        self.reconciler = CursorReconciler(self.registry, lambda: slots)

    async def create(self, name: str, *, durable: bool = True, partitions: int = 1) -> str:
        config = SubscriptionConfig(durable=durable)
        made, _ = await self.registry.create(
            "t1", name, config, "latest", partitions=partitions, at_most=9
        )
        return made.info.subscription_id

    def cursors(self, partition: int) -> list[str]:
        return self.logs[partition].subscriptions.all()


@pytest.fixture
async def scene(stage: Stage) -> AsyncIterator[Scene]:
    scene = Scene(await stage.store(), stage.host)
    yield scene
    scene.registry.close()


async def test_cursors_that_are_missing_are_opened(scene: Scene) -> None:
    one = await scene.create("one")
    await scene.create("fleeting", durable=False)
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == [one]
    two = await scene.create("two", partitions=2)
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == [one, two]


async def test_a_cursor_is_opened_in_a_log_that_was_seen_without_any(scene: Scene) -> None:
    """The creator of the subscription died before it had told the owner."""
    await scene.reconciler.reconcile()
    one = await scene.create("one")
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == [one]


async def test_topics_that_never_had_a_subscription_are_not_asked_about(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    children = scene.store.children

    async def noted(path: str) -> list[str]:
        listed.append(path)
        return list(await children(path))

    monkeypatch.setattr(scene.store, "children", noted)
    await scene.reconciler.reconcile()
    assert listed == ["/subscriptions"]
    one = await scene.create("one")
    listed.clear()
    await scene.reconciler.reconcile()
    assert listed == ["/subscriptions", "/subscriptions/t1"]
    assert scene.cursors(0) == [one]


async def test_cursors_are_completed_from_a_registry_that_no_lagging_server_shows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's server shows nothing newer than its last write did."""
    one = await scene.create("one")
    store, caught_up = scene.store, False
    children, write = store.children, store.set

    async def lagging(path: str) -> list[str]:
        return list(await children(path)) if caught_up else []

    async def written(*args: Any) -> Any:
        nonlocal caught_up
        caught_up = True
        return await write(*args)

    monkeypatch.setattr(store, "children", lagging)
    monkeypatch.setattr(store, "set", written)
    cursors: Any = scene.logs[0].subscriptions
    await scene.reconciler.complete("t1", cursors)
    assert scene.cursors(0) == [one]


async def test_who_completes_cursors_is_told_when_that_cannot_be_done(scene: Scene) -> None:
    one = await scene.create("one")
    await scene.create("fleeting", durable=False)
    cursors: Any = scene.logs[0].subscriptions
    scene.logs[0].subscriptions.failure = FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")
    with pytest.raises(FencelogError, match="no answer"):
        await scene.reconciler.complete("t1", cursors)
    scene.logs[0].subscriptions.failure = None
    scene.store.disconnect()
    with pytest.raises(FencelogError, match="not connected"):
        await scene.reconciler.complete("t1", cursors)
    scene.store.reconnect()
    await scene.reconciler.complete("t1", cursors)
    assert scene.cursors(0) == [one]


async def test_what_is_left_over_is_dropped(scene: Scene) -> None:
    one = await scene.create("one", partitions=2)
    two = await scene.create("two", partitions=2)
    await scene.reconciler.reconcile()
    await scene.registry.delete("t1", "one")
    assert scene.cursors(0) == [one, two]
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == [two]


async def test_what_is_left_over_makes_room_for_what_is_missing(scene: Scene) -> None:
    await scene.create("one")
    await scene.reconciler.reconcile()
    cursors: Any = scene.logs[0].subscriptions
    cursors.at_most = 1
    await scene.registry.delete("t1", "one")
    again = await scene.create("one")
    for _ in range(2):
        await scene.reconciler.reconcile()
    await scene.reconciler.complete("t1", cursors)
    assert scene.cursors(0) == [again]


async def test_a_cursor_that_cannot_be_opened_holds_up_no_other(scene: Scene) -> None:
    gone, _ = await scene.create("gone"), await scene.create("damaged")
    last = await scene.create("last")
    cursors: Any = scene.logs[0].subscriptions
    cursors.unopened = {"damaged"}
    await scene.reconciler.reconcile()
    assert sorted(scene.cursors(0)) == sorted([gone, last])
    await scene.registry.delete("t1", "gone")
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == [last]
    newest = await scene.create("newest")
    with pytest.raises(FencelogError, match="cannot be looked up"):
        await scene.reconciler.complete("t1", cursors)
    assert scene.cursors(0) == [last, newest]


async def test_one_that_was_made_anew_is_another(scene: Scene) -> None:
    old = await scene.create("one", partitions=2)
    await scene.reconciler.reconcile()
    await scene.registry.delete("t1", "one")
    new = await scene.create("one", partitions=2)
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == [new]
    assert old != new


async def test_what_is_remembered_of_a_name_drops_no_cursor(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch that says that another subscription has the name now is late."""
    monkeypatch.setattr(scene.registry, "_on_node", lambda *args: None)
    old = await scene.create("one", partitions=2)
    await scene.reconciler.reconcile()
    creator = SubscriptionRegistry(scene.store, host=scene.host)
    await creator.delete("t1", "one")
    made, _ = await creator.create(
        "t1", "one", SubscriptionConfig(), "latest", partitions=2, at_most=9
    )
    for log in scene.logs:
        await log.subscriptions.begin(made)
    for _ in range(3):
        await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == [old, made.info.subscription_id]
    scene.registry._forget("t1", "one")
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == [made.info.subscription_id]


async def test_what_a_lagging_server_does_not_show_is_not_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks follow each other, and before each the session comes to another server that lags."""
    one = await scene.create("one", partitions=2)
    await scene.reconciler.reconcile()
    children, write = scene.store.children, scene.store.set
    writes = 0

    async def lagging(path: str) -> list[str]:
        return list(await children(path)) if writes else []

    async def written(*args: Any) -> Any:
        nonlocal writes
        writes += 1
        return await write(*args)

    monkeypatch.setattr(scene.store, "children", lagging)
    monkeypatch.setattr(scene.store, "set", written)
    for _ in range(3):
        writes = 0
        await scene.reconciler.reconcile()
        assert writes == 1  # for both partitions
    assert scene.cursors(0) == scene.cursors(1) == [one]


async def test_nothing_is_dropped_while_nobody_knows_what_is_registered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await scene.create("one", partitions=2)
    await scene.reconciler.reconcile()
    await scene.registry.delete("t1", "one")
    scene.store.disconnect()
    await scene.reconciler.reconcile()
    scene.store.reconnect()
    with monkeypatch.context() as broken:

        async def unknown(*args: Any) -> Any:
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")

        broken.setattr(scene.store, "set", unknown)
        await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == [one]
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == scene.cursors(1) == []


async def test_a_partition_that_fails_does_not_stop_the_others(scene: Scene) -> None:
    scene.logs[0].subscriptions.failure = FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")
    one = await scene.create("one", partitions=2)
    await scene.reconciler.reconcile()
    assert (scene.cursors(0), scene.cursors(1)) == ([], [one])
    scene.logs[0].subscriptions.failure = None
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == [one]
    scene.logs[0].subscriptions.failure = FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")
    await scene.registry.delete("t1", "one")
    await scene.reconciler.reconcile()
    assert (scene.cursors(0), scene.cursors(1)) == ([one], [])
    scene.logs[0].subscriptions.failure = None
    await scene.reconciler.reconcile()
    assert scene.cursors(0) == []


async def test_a_bug_does_not_end_the_looks_that_follow(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await scene.create("one")
    topic_ids, bugs = scene.registry.topic_ids, [RuntimeError("a bug")]

    async def fails_once() -> set[str]:
        if bugs:
            raise bugs.pop()
        return set(await topic_ids())

    monkeypatch.setattr(scene.registry, "topic_ids", fails_once)
    scene.reconciler.start()
    await asyncio.sleep(2.5 * SUBSCRIPTION_LOOK_MS / 1000)
    await scene.reconciler.close()
    assert (bugs, scene.cursors(0)) == ([], [one])
