"""The troubles of partitions, as their broker tells them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import Owner, Ownership
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.stats import troubles
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.broker_stage import BrokerMaker

NAME = TopicName.of("shop", "orders")


async def test_a_broker_without_trouble_says_so(make_broker: BrokerMaker) -> None:
    broker = await make_broker("a")
    await broker.topics.create(NAME, TopicConfig(partitions=2))
    for partition in range(2):
        await broker.partition(NAME, partition)
    found = await broker.troubles()
    assert found.partitions == 2
    assert (found.more_openings, found.more_steps, found.more_subscriptions) == (0, 0, 0)
    assert [*found.openings, *found.steps, *found.subscriptions] == []


async def test_an_opening_is_told_from_its_first_failure_until_it_succeeds(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await make_broker("a")
    await broker.topics.create(NAME, TopicConfig(partitions=3))
    take_over = PartitionLog.open

    async def refuse(*given: Any, **options: Any) -> PartitionLog:
        raise FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "2 of 3 bookies")

    monkeypatch.setattr(PartitionLog, "open", refuse)
    monkeypatch.setattr(troubles, "MAX_SHOWN_TROUBLES", 2)
    for _ in range(2):
        with pytest.raises(FencelogError):
            await broker.partition(NAME, 0)
    (opening,) = (await broker.troubles()).openings
    assert (opening.topic, opening.partition, opening.error) == (str(NAME), 0, "2 of 3 bookies")
    with pytest.raises(FencelogError):
        await broker.partition(NAME, 0)
    (again,) = (await broker.troubles()).openings
    assert again.since_us == opening.since_us
    for partition in (1, 2):
        with pytest.raises(FencelogError):
            await broker.partition(NAME, partition)
    found = await broker.troubles()
    assert [each.partition for each in found.openings] == [0, 1]
    assert (found.more_openings, found.more_steps) == (1, 0)
    monkeypatch.setattr(PartitionLog, "open", take_over)
    for partition in range(3):
        await broker.partition(NAME, partition)
    assert (await broker.troubles()).openings == []


async def test_only_the_owners_of_openings_that_are_named_are_read_and_at_once(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await make_broker("a")
    await broker.topics.create(NAME, TopicConfig(partitions=6))

    async def refuse(*given: Any, **options: Any) -> PartitionLog:
        raise FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "2 of 3 bookies")

    monkeypatch.setattr(PartitionLog, "open", refuse)
    for partition in range(6):
        with pytest.raises(FencelogError):
            await broker.partition(NAME, partition)
    monkeypatch.setattr(troubles, "MAX_SHOWN_TROUBLES", 3)
    get, reads, at_once = Ownership.get, 0, [0]

    async def counted(self: Ownership, topic_id: str, partition: int) -> Owner | None:
        nonlocal reads
        reads += 1
        at_once.append(at_once[-1] + 1)
        await asyncio.sleep(0.01)
        at_once.append(at_once[-1] - 1)
        return await get(self, topic_id, partition)

    monkeypatch.setattr(Ownership, "get", counted)
    found = await broker.troubles()
    assert [each.partition for each in found.openings] == [0, 1, 2]
    assert (found.more_openings, reads, max(at_once)) == (3, 3, 3)


async def test_a_partition_that_another_broker_has_opened_is_no_trouble(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await make_broker("a"), await make_broker("b")
    await first.topics.create(NAME, TopicConfig())
    with monkeypatch.context() as patched:

        async def refuse(*given: Any, **options: Any) -> PartitionLog:
            raise FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "2 of 3 bookies")

        patched.setattr(PartitionLog, "open", refuse)
        with pytest.raises(FencelogError):
            await first.partition(NAME, 0)
    assert len((await first.troubles()).openings) == 1
    await second.take(NAME, 0)
    assert (await first.troubles()).openings == []
