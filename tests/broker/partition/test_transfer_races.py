"""Partitions on their way from one broker to another, and requests that meet them there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencelog.broker.background import unloading
from fencelog.broker.background.unloading import DrainResult
from fencelog.broker.broker import Broker
from fencelog.broker.limits import OFFER_TIMEOUT_MS
from fencelog.broker.partition.owner_node import OwnerNode
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.metastore.port import Change
from tests.broker.partition.transfer_stage import NAME, Make, Network, owner_ids, settle
from tests.support.until import until


async def outcome(broker: Broker) -> PartitionLog | FencelogError:
    try:
        return await broker.partition(NAME, 0)
    except FencelogError as error:
        return error


async def test_two_loaded_brokers_do_not_wait_for_each_other(make: Make) -> None:
    """Each of them finds the other less loaded, and offers it the same partition."""
    brokers = [await make("a"), await make("b")]
    await brokers[0].topics.create(NAME, TopicConfig())
    await settle()
    for broker in brokers:  # since the loads were published
        broker.directory.took(broker.config.broker_id, 2 * MIB)
    now = asyncio.get_running_loop().time
    began_s = now()
    found = await asyncio.gather(*map(outcome, brokers))
    assert now() - began_s < OFFER_TIMEOUT_MS / 2000
    assert sum(isinstance(each, PartitionLog) for each in found) == 1
    assert sum(isinstance(each, NotOwner) for each in found) == 1


async def test_a_drain_ends_and_counts_although_requests_go_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes the partitions; each request finds its own free, and is refused."""
    broker = await make("a", drain_timeout_s=30.0)
    await broker.topics.create(NAME, TopicConfig(partitions=3))
    for partition in range(3):
        await broker.partition(NAME, partition)
    check_free, refused = OwnerNode.check_free, list[ErrorCode]()

    async def slow(self: OwnerNode) -> None:
        await asyncio.sleep(0.005)
        await check_free(self)

    async def ask(partition: int) -> None:
        while True:
            try:
                await broker.partition(NAME, partition)
            except FencelogError as error:
                refused.append(error.code)
            await asyncio.sleep(0.001)

    monkeypatch.setattr(OwnerNode, "check_free", slow)
    asking = [asyncio.create_task(ask(partition)) for partition in range(3)]
    now = asyncio.get_running_loop().time
    began_s = now()
    assert await broker.drain() == DrainResult(not_taken=3)
    assert now() - began_s < 15
    await until(lambda: ErrorCode.DRAINING in refused)
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)


async def test_an_owner_that_an_opening_has_found_is_watched_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partition is to be handed over here at the same time, and cannot be looked up then."""
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    await b.partition(NAME, 0)
    claiming = OwnerNode.claiming

    async def slow(self: OwnerNode) -> Sequence[Change]:
        await asyncio.sleep(0.2)
        return await claiming(self)

    async def unreadable(self: OwnerNode) -> None:
        """``find_other`` while the metadata store is away."""

    monkeypatch.setattr(OwnerNode, "claiming", slow)
    monkeypatch.setattr(OwnerNode, "find_other", unreadable)
    opening = asyncio.create_task(outcome(a))
    await until(lambda: any(slot.is_here for slot in a._slots.values()))
    (slot,) = a._slots.values()
    moving = asyncio.create_task(slot.transfer())
    assert isinstance(await opening, NotOwner)
    assert await moving is None
    appends = slot.forwarded_appends
    assert appends is not None
    assert appends.url == "http://b"
    await b.close()
    await until(lambda: slot.forwarded_appends is None)
    assert isinstance(await outcome(a), PartitionLog)


async def test_a_bug_in_a_round_of_the_balancer_ends_no_other(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await make("a")
    rounds, measure = list[float](), broker._balancer._measure

    async def fails_once(elapsed_s: float) -> None:
        rounds.append(elapsed_s)
        if len(rounds) == 1:
            raise ZeroDivisionError("a bug")
        await measure(elapsed_s)

    monkeypatch.setattr(broker._balancer, "_measure", fails_once)
    await until(lambda: len(rounds) >= 3)


PARTITIONS = 6


@pytest.fixture
def _few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unloading, "MAX_MOVING_PARTITIONS", 2)


async def with_partitions(broker: Broker) -> None:
    await broker.topics.create(NAME, TopicConfig(partitions=PARTITIONS))
    for number in range(PARTITIONS):
        await broker.partition(NAME, number)


@pytest.mark.usefixtures("_few_at_a_time")
async def test_a_drain_without_time_left_says_what_is_still_there(
    make: Make, network: Network
) -> None:
    a, b = await make("a", drain_timeout_s=0.5), await make("b")
    await with_partitions(a)
    network.gate.clear()
    assert await a.drain() == DrainResult(still_open=PARTITIONS)
    assert len(a.open_slots()) == PARTITIONS - 2  # two are on their way
    network.gate.set()
    assert await a.drain() == DrainResult()
    assert await owner_ids(b) == ["b"] * PARTITIONS
    assert await a.drain() == DrainResult()


@pytest.mark.usefixtures("_few_at_a_time")
async def test_what_is_on_its_way_is_waited_for_by_the_next_drain(
    make: Make, network: Network
) -> None:
    a, b = await make("a", drain_timeout_s=0.5), await make("b")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    network.gate.clear()
    assert await a.drain() == DrainResult(still_open=1)
    assert a.open_slots() == []
    again = asyncio.create_task(a.drain())
    await settle()
    assert not again.done()
    network.gate.set()
    assert await again == DrainResult()
    assert await owner_ids(b) == ["b"]


@pytest.mark.usefixtures("_few_at_a_time")
async def test_sigterm_continues_a_drain_whose_time_was_over(make: Make, network: Network) -> None:
    a, b = await make("a", drain_timeout_s=0.5), await make("b")
    await with_partitions(a)
    network.gate.clear()
    assert (await a.drain()).still_open == PARTITIONS
    network.gate.set()
    assert await a.leave() == DrainResult()
    assert await owner_ids(b) == ["b"] * PARTITIONS


@pytest.mark.parametrize("is_healed", [True, False])
@pytest.mark.usefixtures("_few_at_a_time")
async def test_sigterm_in_a_drain_has_its_own_time_and_no_more(
    make: Make, network: Network, is_healed: bool
) -> None:
    timeout_s = 2.0
    a, _ = await make("a", drain_timeout_s=timeout_s), await make("b")
    await with_partitions(a)
    network.gate.clear()
    now = asyncio.get_running_loop().time
    draining = asyncio.create_task(a.drain())
    await asyncio.sleep(0.75 * timeout_s)
    began_s = now()
    leaving = asyncio.create_task(a.leave())
    assert (await draining).still_open == PARTITIONS
    if is_healed:
        network.gate.set()
    result = await leaving
    assert result.still_open == (0 if is_healed else PARTITIONS)
    assert now() - began_s == pytest.approx(0.25 * timeout_s if is_healed else timeout_s, abs=0.2)
    network.gate.set()


@pytest.mark.usefixtures("_few_at_a_time")
async def test_a_stop_does_not_drain_twice(make: Make, network: Network) -> None:
    a, _ = await make("a", drain_timeout_s=0.5), await make("b")
    await with_partitions(a)
    network.gate.clear()
    now = asyncio.get_running_loop().time
    began_s = now()
    assert (await a.leave()).still_open == PARTITIONS
    assert now() - began_s == pytest.approx(0.5, abs=0.2)
    network.gate.set()


@pytest.mark.usefixtures("_few_at_a_time")
async def test_what_nobody_took_is_not_still_open(make: Make, network: Network) -> None:
    a, b = await make("a", drain_timeout_s=60.0), await make("b")
    await with_partitions(a)
    network.dead.add("http://b")
    assert await a.drain() == DrainResult(not_taken=PARTITIONS)
    assert await a.drain() == DrainResult(not_taken=PARTITIONS)
    assert (await b.partition(NAME, 0)).is_serving


def balancers() -> int:
    """Return how many balancers there are, of all brokers."""
    return sum(task.get_name() == "balancer" for task in asyncio.all_tasks())


async def test_a_drain_that_two_end_at_the_same_time_is_ended_once(make: Make) -> None:
    """A second balancer would run for ever: only the last one that was started is stopped."""
    a, _ = await make("a"), await make("b")
    await a.drain()
    await asyncio.gather(a.undrain(), a.undrain())
    await a.drain()
    assert balancers() == 1  # that of the other broker


async def test_a_drain_that_is_ended_before_it_has_begun_leaves_one_balancer(make: Make) -> None:
    a, _ = await make("a"), await make("b")
    await asyncio.gather(a.drain(), a.undrain())
    assert balancers() == 2
    await a.drain()
    assert balancers() == 1


@pytest.mark.usefixtures("_few_at_a_time")
async def test_a_drain_that_is_ended_says_what_is_still_there(make: Make, network: Network) -> None:
    a, _ = await make("a"), await make("b")
    await with_partitions(a)
    network.gate.clear()
    draining = asyncio.create_task(a.drain())
    await settle()
    await a.undrain()
    assert (await draining).still_open == PARTITIONS
    again = asyncio.create_task(a.drain())
    await settle()
    assert not again.done()  # what was on its way still is
    network.gate.set()
    assert await again == DrainResult()
