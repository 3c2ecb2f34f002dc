"""A change that is based on what bore a name before never touches what bears it now.

Somebody reads a node; then it is deleted and made anew, with as many changes as before; and only
then the reader writes. ZooKeeper's own versions would be equal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencelog.broker.background.sweep import Sweep
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore, ledger_list_path
from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import Ownership
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.broker.registry.subscription_registry import SubscriptionRegistry
from fencelog.broker.registry.topics import TopicConfig, TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore, Versioned
from fencelog.ledgers.metastore.registration import Registration
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName("default", "t")
OWNER = "/owners/t1-0"


def after_read(store: Any, path: str, act: Callable[[], Awaitable[object]]) -> None:
    """Have ``act`` happen between the first read of a node and whatever its reader does then."""
    get = store.get
    done: list[str] = []

    async def read(asked: str) -> Versioned:
        node: Versioned = await get(asked)
        if asked == path and not done:
            done.append(asked)
            await act()
        return node

    store.get = read


MakeRegistry = Callable[[MetadataStore], TopicRegistry]
Recreate = Callable[[], Awaitable[None]]


@pytest.fixture
def registry(stage: Stage) -> MakeRegistry:
    return lambda store: TopicRegistry(store, host=stage.host, ledgers=stage.ledgers)


@pytest.fixture
def recreated(stage: Stage, registry: MakeRegistry) -> Recreate:
    """Delete the topic and make it anew."""

    async def recreate() -> None:
        other = registry(await stage.store())
        await other.delete(NAME)
        await other.create(NAME, TopicConfig())

    return recreate


async def test_settings_of_a_deleted_topic_do_not_bring_its_id_back(
    stage: Stage, ledgers: ScriptedLedgers, registry: MakeRegistry, recreated: Recreate
) -> None:
    """Else the sweep took the new topic's messages for those of a topic that is gone."""
    slow, other = await stage.store(), registry(await stage.store())
    old, _ = await other.create(NAME, TopicConfig())
    broker = Broker(
        await stage.store(), ledgers, host=stage.host, config=BrokerConfig("a", "http://a")
    )
    await broker.start()
    try:

        async def recreate_and_append() -> None:
            await recreated()
            await (await broker.partition(NAME, 0)).append_message(Message(b"acknowledged"))

        after_read(slow, "/topics/default/t", recreate_and_append)
        changed = await registry(slow).update(NAME, {"retention_ms": 1000})
        found = await other.get(NAME)
        assert changed.topic_id == found.topic_id != old.topic_id
        assert found.policy.retention_ms == 1000
        sweep = Sweep(slow, other, ledgers, LedgerStore(slow), host=stage.host, grace_s=0)
        assert (await sweep.find()).topics == []
    finally:
        await broker.close()


async def test_deleting_a_topic_twice_deletes_its_successor_only_if_that_was_read(
    stage: Stage, registry: MakeRegistry, recreated: Recreate
) -> None:
    slow, other = await stage.store(), registry(await stage.store())
    await other.create(NAME, TopicConfig())
    after_read(slow, "/topics/default/t", recreated)
    await registry(slow).delete(NAME)
    found = await other.get(NAME)
    assert found.version.number == 0


async def test_an_owner_that_slept_cannot_change_the_ledger_list_of_a_later_incarnation(
    stage: Stage,
) -> None:
    path = ledger_list_path("t1", 0)
    sleeper = LedgerListStore(await stage.store(), path, host=stage.host)
    deleter = LedgerListStore(await stage.store(), path, host=stage.host)
    assert await sleeper.create()
    await deleter.load()
    await deleter.delete()
    assert await deleter.create()
    with pytest.raises(LedgerListLost):
        await sleeper.change(
            lambda ledger_list: ledger_list.taken_over({}, ledger_id=1, created_us=0, owner="a")
        )
    with pytest.raises(FencelogError) as caught:
        await sleeper.delete()
    assert caught.value.code is ErrorCode.METADATA_CONFLICT
    await deleter.load()
    assert deleter.ledger_list == LedgerList()


async def ownership(stage: Stage, name: str) -> tuple[Any, Ownership]:
    store = await stage.store()
    return store, Ownership(store, broker_id=name, url=f"http://{name}")


async def test_giving_a_partition_up_leaves_it_to_who_has_claimed_it_since(stage: Stage) -> None:
    store, a = await ownership(stage, "a")
    _, b = await ownership(stage, "b")
    assert await a.claim("t1", 0) is None

    async def taken_for_dead() -> None:
        await b.remove_dead("t1", 0, "http://a")
        assert await b.claim("t1", 0) is None

    after_read(store, OWNER, taken_for_dead)
    await a.release("t1", 0)
    found = await b.get("t1", 0)
    assert found is not None
    assert found.broker_id == "b"


async def test_nobody_gives_up_what_another_owns(stage: Stage) -> None:
    _, a = await ownership(stage, "a")
    _, b = await ownership(stage, "b")
    assert await a.claim("t1", 0) is None
    await b.release("t1", 0)
    found = await b.get("t1", 0)
    assert found is not None
    assert found.broker_id == "a"


async def test_who_takes_an_owner_for_dead_leaves_its_successor_there(stage: Stage) -> None:
    _, a = await ownership(stage, "a")
    _, b = await ownership(stage, "b")
    store, c = await ownership(stage, "c")
    assert await a.claim("t1", 0) is None

    async def handed_over() -> None:
        await a.release("t1", 0)
        assert await b.claim("t1", 0) is None

    after_read(store, OWNER, handed_over)
    await c.remove_dead("t1", 0, "http://a")
    found = await c.get("t1", 0)
    assert found is not None
    assert found.broker_id == "b"


async def test_deleting_a_subscription_leaves_the_one_that_has_its_name_since(stage: Stage) -> None:
    store = await stage.store()
    slow = SubscriptionRegistry(store, host=stage.host)
    other = SubscriptionRegistry(await stage.store(), host=stage.host)

    async def create() -> str:
        made, _ = await other.create(
            "t1", "s", SubscriptionConfig(), "latest", partitions=1, at_most=9
        )
        return made.info.subscription_id

    async def recreate() -> None:
        await other.delete("t1", "s")
        await create()

    old = await create()
    after_read(store, "/subscriptions/t1/s", recreate)
    with pytest.raises(FencelogError) as caught:
        await slow.delete("t1", "s")
    assert caught.value.code is ErrorCode.METADATA_CONFLICT
    assert (await other.get("t1", "s")).info.subscription_id != old


async def test_a_registration_that_ends_leaves_its_successor_there(stage: Stage) -> None:
    path = "/brokers/a"
    store, successor = await stage.store(), await stage.store()
    previous = await Registration.start(store, path, b"former")
    later: list[Registration] = []

    async def succeeded() -> None:
        later.append(await Registration.start(successor, path, b"later"))

    after_read(store, path, succeeded)
    await previous.close()
    assert (await successor.get(path)).value == b"later"
    await later[0].close()
