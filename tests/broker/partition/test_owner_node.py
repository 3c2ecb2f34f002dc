"""One partition's owner node, and a broker whose session and watch do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencelog.broker.partition.owner_node import OwnerNode
from fencelog.broker.partition.ownership import NotOwner, Owner, Ownership
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Change, Version
from tests.support.broker_stage import Stage
from tests.support.metadata_nodes import remove_now

PATH = "/owners/t1-0"


class Partition:
    """The partition that the node is of."""

    def __init__(self) -> None:
        self.is_serving = False
        self.checks = 0

    def owner_seen(self) -> None: ...

    def lost_to(self, error: NotOwner) -> None:
        self.is_serving = False

    async def check_log(self) -> None:
        self.checks += 1


class Side:
    """A broker, its session, and its view of the node."""

    def __init__(self, name: str, store: MemoryMetadataStore) -> None:
        self.store = store
        self.partition = Partition()
        self.ownership = Ownership(store, broker_id=name, url=f"http://{name}")
        self.node = self.new_node()

    def new_node(self) -> OwnerNode:
        return OwnerNode(
            self.ownership, "t1", 0, holder=self.partition, is_registered=lambda url: True
        )

    async def take(self) -> None:
        """Own the partition, as by the commit that takes its log over."""
        await self.store.commit(await self.node.claiming())
        self.node.claimed()
        await settle()

    async def owner(self) -> Owner | None:
        return await self.ownership.get("t1", 0)


async def side(stage: Stage, name: str) -> Side:
    return Side(name, await stage.store())


async def settle() -> None:
    await asyncio.sleep(0.01)


async def test_a_node_that_vanishes_while_the_log_is_opened_is_restored_with_it(
    stage: Stage,
) -> None:
    a = await side(stage, "a")
    await a.take()
    remove_now(stage.cluster, PATH)
    await settle()
    assert await a.owner() is None  # there is no log yet
    a.partition.is_serving = True
    a.node.keep()
    await settle()
    owner = await a.owner()
    assert owner is not None
    assert (owner.session_id, a.partition.checks) == (a.store.session_id, 1)
    a.node.close()


async def test_a_node_that_cannot_be_restored_at_once_is_restored_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await side(stage, "a")
    await a.take()
    a.partition.is_serving = True
    claim, failures = a.ownership.claim, 2

    async def failing(topic_id: str, partition: int) -> Owner | None:
        nonlocal failures
        if failures:
            failures -= 1
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away")
        return await claim(topic_id, partition)

    monkeypatch.setattr(a.ownership, "claim", failing)
    remove_now(stage.cluster, PATH)
    await asyncio.sleep(10.0)
    assert failures == 0
    owner = await a.owner()
    assert owner is not None
    assert owner.session_id == a.store.session_id
    a.node.close()


async def test_a_restored_node_that_vanishes_before_the_watch_has_seen_it_is_restored_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the watch it was absent all the time."""
    a = await side(stage, "a")
    await a.take()
    a.partition.is_serving = True
    commit, losses = a.store.commit, 1

    async def commits_and_is_cut_off(changes: Sequence[Change]) -> list[Version]:
        nonlocal losses
        versions = await commit(changes)
        if losses:
            losses -= 1
            a.store.disconnect()
            a.store.expire()  # before the next connection
        return versions

    monkeypatch.setattr(a.store, "commit", commits_and_is_cut_off)
    remove_now(stage.cluster, PATH)
    await settle()
    assert losses == 0
    assert await Ownership(await stage.store(), broker_id="b", url="").get("t1", 0) is None
    a.store.reconnect()
    await asyncio.sleep(10.0)
    owner = await a.owner()
    assert owner is not None
    assert owner.session_id == a.store.session_id
    a.node.close()


async def test_a_claimed_node_whose_session_has_ended_by_then_is_restored(stage: Stage) -> None:
    """The takeover was made, its answer was lost, and so was the session."""
    a = await side(stage, "a")
    await a.node.check_free()
    await settle()  # the watch: nobody owns it
    a.store.lose_replies(1)
    with pytest.raises(FencelogError):
        await a.store.commit(await a.node.claiming())
    a.store.expire()
    await settle()
    a.node.claimed()  # as the list of ledgers says
    a.partition.is_serving = True
    a.node.keep()
    await asyncio.sleep(10.0)
    owner = await a.owner()
    assert owner is not None
    assert owner.session_id == a.store.session_id
    a.node.close()


async def test_who_takes_the_log_sends_nobody_to_its_former_owner(stage: Stage) -> None:
    """The watch need not say that the other one is gone: the node may look as it did."""
    a, b = await side(stage, "a"), await side(stage, "b")
    await b.take()
    with pytest.raises(NotOwner) as refused:
        await a.node.check_free()
    assert refused.value.url == "http://b"
    a.node.close()
    await b.node.release()
    await a.store.commit(await a.node.claiming())
    a.node.claimed()
    assert a.node.other_url is None
    a.node.close()
    b.node.close()


async def test_an_owner_is_one_until_another_is_certainly_there(stage: Stage) -> None:
    a, b = await side(stage, "a"), await side(stage, "b")
    await a.take()
    a.store.disconnect()
    assert await a.node.is_ours_as_far_as_known()
    a.store.reconnect()
    assert await a.node.is_ours_as_far_as_known()
    remove_now(stage.cluster, PATH)
    assert await a.node.is_ours_as_far_as_known()
    await b.take()
    assert not await a.node.is_ours_as_far_as_known()
    assert await a.node.find_other() == "b"
    a.node.close()
    b.node.close()


async def test_a_node_that_went_with_its_log_is_not_removed_once_more(stage: Stage) -> None:
    """The same broker may own the partition again by then."""
    a = await side(stage, "a")
    await a.take()
    previous = a.node
    await a.store.commit(previous.releasing())
    assert await a.owner() is None
    a.node = a.new_node()
    await a.take()
    await previous.release(is_done=True)
    owner = await a.owner()
    assert owner is not None
    assert owner.session_id == a.store.session_id
    for node in (previous, a.node):
        node.close()
