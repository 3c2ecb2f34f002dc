"""Drains whose time is over before every partition has gone: what they say, and who continues."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.background import unloading
from fencelog.broker.background.unloading import DrainResult
from fencelog.broker.broker import Broker
from fencelog.broker.limits import MAX_OFFERS, OFFER_TIMEOUT_MS
from fencelog.broker.registry.topics import TopicConfig
from tests.broker.partition.transfer_stage import NAME, Make, Network, settle

PARTITIONS = 6


@pytest.fixture(autouse=True)
def _few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unloading, "MAX_MOVING_PARTITIONS", 2)


async def with_partitions(broker: Broker) -> None:
    await broker.topics.create(NAME, TopicConfig(partitions=PARTITIONS))
    for number in range(PARTITIONS):
        await broker.partition(NAME, number)


async def owner_ids(broker: Broker) -> list[str]:
    return [owner["broker_id"] for owner in await broker.owners(NAME)]


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


async def test_sigterm_continues_a_drain_whose_time_was_over(make: Make, network: Network) -> None:
    a, b = await make("a", drain_timeout_s=0.5), await make("b")
    await with_partitions(a)
    network.gate.clear()
    assert (await a.drain()).still_open == PARTITIONS
    network.gate.set()
    assert await a.leave() == DrainResult()
    assert await owner_ids(b) == ["b"] * PARTITIONS


@pytest.mark.parametrize("is_healed", [True, False])
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


async def test_a_stop_does_not_drain_twice(make: Make, network: Network) -> None:
    a, _ = await make("a", drain_timeout_s=0.5), await make("b")
    await with_partitions(a)
    network.gate.clear()
    now = asyncio.get_running_loop().time
    began_s = now()
    assert (await a.leave()).still_open == PARTITIONS
    assert now() - began_s == pytest.approx(0.5, abs=0.2)
    network.gate.set()


async def test_what_nobody_took_is_not_still_open(make: Make, network: Network) -> None:
    a, b = await make("a", drain_timeout_s=60.0), await make("b")
    await with_partitions(a)
    network.dead.add("http://b")
    assert await a.drain() == DrainResult(not_taken=PARTITIONS)
    assert await a.drain() == DrainResult(not_taken=PARTITIONS)
    assert (await b.partition(NAME, 0)).is_serving


async def test_a_drain_that_is_ended_says_what_is_still_there(make: Make, network: Network) -> None:
    a, _ = await make("a"), await make("b")
    await with_partitions(a)
    network.gate.clear()
    draining = asyncio.create_task(a.drain())
    await settle()
    await a.undrain()
    assert (await draining).still_open == PARTITIONS
    network.gate.set()
    await asyncio.sleep(MAX_OFFERS * OFFER_TIMEOUT_MS / 1000)
    assert (await a.drain()) == DrainResult()
