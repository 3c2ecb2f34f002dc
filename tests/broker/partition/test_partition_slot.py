"""The opening of a partition starts again if another client interferes, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencelog.broker.ledger_list.store import LedgerChanged
from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.partition.partition_slot import TAKEOVER_ATTEMPTS
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.broker_stage import BrokerMaker, Until

NAME = TopicName.of("shop", "orders")


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, FencelogError], list[str]]:
    """Have the first takeovers of every log fail; the list tells of all of them."""

    def refused(count: int, error: FencelogError) -> list[str]:
        attempts: list[str] = []
        take_over = PartitionLog.open

        async def interfered(*given: Any, **options: Any) -> PartitionLog:
            attempts.append("refused" if len(attempts) < count else "taken")
            if attempts[-1] == "refused":
                raise error
            return await take_over(*given, **options)

        monkeypatch.setattr(PartitionLog, "open", interfered)
        return attempts

    return refused


async def test_a_ledger_that_was_changed_meanwhile_costs_another_attempt(
    make_broker: BrokerMaker, refuse: Callable[[int, FencelogError], list[str]]
) -> None:
    """The writer of a ledger may begin a fragment while its end is searched."""
    broker = await make_broker("a")
    await broker.topics.create(NAME, TopicConfig())
    attempts = refuse(TAKEOVER_ATTEMPTS - 1, LedgerChanged("/logs/1/0", "ledger 1 has changed"))
    assert (await broker.partition(NAME, 0)).is_serving
    assert attempts == ["refused"] * (TAKEOVER_ATTEMPTS - 1) + ["taken"]


async def test_attempts_have_an_end(
    make_broker: BrokerMaker, refuse: Callable[[int, FencelogError], list[str]]
) -> None:
    broker = await make_broker("a")
    await broker.topics.create(NAME, TopicConfig())
    attempts = refuse(TAKEOVER_ATTEMPTS, LedgerChanged("/logs/1/0", "ledger 1 has changed"))
    with pytest.raises(FencelogError, match="ledger 1 has changed") as raised:
        await broker.partition(NAME, 0)
    assert raised.value.code is ErrorCode.NO_OWNER
    assert attempts == ["refused"] * TAKEOVER_ATTEMPTS
    assert (await broker.partition(NAME, 0)).is_serving


async def test_a_broker_that_finds_another_owner_does_not_start_again(
    make_broker: BrokerMaker, refuse: Callable[[int, FencelogError], list[str]]
) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    attempts = refuse(1, LedgerChanged("/logs/1/0", "ledger 1 has changed"))
    ownership: Any = a._ownership
    claiming = ownership.claiming

    async def claiming_while_b_is_faster(*given: Any) -> Any:
        if attempts:
            await b.partition(NAME, 0)
        return await claiming(*given)

    ownership.claiming = claiming_while_b_is_faster
    with pytest.raises(NotOwner) as raised:
        await a.partition(NAME, 0)
    assert raised.value.broker_id == "b"
    assert attempts == ["refused", "taken"]  # the other broker's


async def test_another_failure_is_no_reason_to_start_again(
    make_broker: BrokerMaker, refuse: Callable[[int, FencelogError], list[str]]
) -> None:
    broker = await make_broker("a")
    await broker.topics.create(NAME, TopicConfig())
    attempts = refuse(1, FencelogError(ErrorCode.RECOVERY_INCOMPLETE, "too few bookies"))
    with pytest.raises(FencelogError, match="too few bookies"):
        await broker.partition(NAME, 0)
    assert attempts == ["refused"]


async def test_settings_that_change_during_an_opening_hold_in_the_log(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await make_broker("a")
    await broker.topics.create(NAME, TopicConfig())
    take_over = PartitionLog.open

    async def changed_meanwhile(*given: Any, **options: Any) -> PartitionLog:
        broker.topic_changed(await broker.topics.update(NAME, {"retention_ms": 5}))
        return await take_over(*given, **options)

    monkeypatch.setattr(PartitionLog, "open", changed_meanwhile)
    assert (await broker.partition(NAME, 0)).policy.retention_ms == 5


async def test_a_broker_that_cannot_go_on_with_a_log_gives_its_partition_up(
    make_broker: BrokerMaker, until: Until
) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    log._writer.finish(FencelogError(ErrorCode.INTERNAL, "the log has stopped"))
    await until(lambda: a.open_log(NAME, 0) is None)
    await asyncio.sleep(0.05)
    assert await b.owners(NAME) == []
    assert (await b.partition(NAME, 0)).epoch == 2
