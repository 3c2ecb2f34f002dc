"""Owners that were replaced, and do not know it yet: they refuse no consumer and no cursor for the
reason that others take the place, as those are others at their successors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencelog.broker.dispatch import consumers as dispatch_consumers
from fencelog.broker.partition import ownership_check
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import Stage
from tests.support.scripted_ledgers import ScriptedLedgers

EXCLUSIVE = SubscriptionInfo("s", "id-s", SubscriptionConfig(type="exclusive"), "earliest")
SHARED = SubscriptionInfo("t", "id-t", SubscriptionConfig(type="shared"), "earliest")
ONE_CURSOR = Policy(max_subscriptions=1)

Request = Callable[[PartitionLog, str], Awaitable[object]]
"""A request of consumer b; the text is the ack id of a message that a got."""

BUSY: dict[str, Request] = {
    "pull": lambda log, _: pulled(log, EXCLUSIVE, "b"),
    "wait": lambda log, _: log.subscriptions.wait(EXCLUSIVE, "b", 1),
    "hold": lambda log, _: log.subscriptions.hold(EXCLUSIVE, "b", lease_ms=None),
    "ack through": lambda log, ack_id: log.subscriptions.ack_through(EXCLUSIVE, ack_id, "b"),
}

CROWDED: dict[str, Request] = {
    "pull": lambda log, _: pulled(log, SHARED, "b"),
    "hold": lambda log, _: log.subscriptions.hold(SHARED, "b", lease_ms=None),
}


async def pulled(log: PartitionLog, info: SubscriptionInfo, consumer: str) -> list[str]:
    found = await log.subscriptions.pull(info, consumer, max_messages=9, max_bytes=1 << 20)
    return [message.ack_id for message in found]


async def used(stage: Stage, info: SubscriptionInfo) -> tuple[PartitionLog, str]:
    """Return an owner of which consumer a has got the only message, and the id of that."""
    log = await stage.open()
    await log.subscriptions.open(info)
    await log.append_message(Message(b"0"))
    (ack_id,) = await pulled(log, info, "a")
    return log, ack_id


async def code_of(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await request
    return raised.value.code


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with each look at a ledger list."""
    found: list[str] = []
    check = ownership_check.OwnershipCheck._is_ours

    async def counted(self: ownership_check.OwnershipCheck) -> bool:
        found.append(self._node.path)
        return await check(self)

    monkeypatch.setattr(ownership_check.OwnershipCheck, "_is_ours", counted)
    return found


@pytest.mark.parametrize("request_", BUSY)
async def test_who_was_replaced_calls_no_subscription_busy_that_its_successor_gives(
    stage: Stage, ledgers: ScriptedLedgers, request_: str
) -> None:
    previous, ack_id = await used(stage, EXCLUSIVE)
    new = await stage.open()
    assert await code_of(BUSY[request_](previous, ack_id)) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    await BUSY[request_](new, ack_id)


@pytest.mark.parametrize("request_", BUSY)
async def test_an_owner_that_is_one_says_that_another_consumer_holds_the_subscription(
    stage: Stage, ledgers: ScriptedLedgers, looks: list[str], request_: str
) -> None:
    log, ack_id = await used(stage, EXCLUSIVE)
    assert await code_of(BUSY[request_](log, ack_id)) is ErrorCode.SUBSCRIPTION_BUSY
    assert len(looks) == 1
    assert log.is_serving


@pytest.mark.parametrize("request_", CROWDED)
async def test_who_was_replaced_counts_no_consumers_that_its_successor_does_not_have(
    stage: Stage, ledgers: ScriptedLedgers, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    monkeypatch.setattr(dispatch_consumers, "MAX_CONSUMERS", 1)
    previous, ack_id = await used(stage, SHARED)
    assert await code_of(CROWDED[request_](previous, ack_id)) is ErrorCode.LIMIT_REACHED
    new = await stage.open()
    assert await code_of(CROWDED[request_](previous, ack_id)) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    await CROWDED[request_](new, ack_id)


async def test_who_was_replaced_counts_no_cursors_that_its_successor_has_dropped(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    previous = await stage.open(policy=ONE_CURSOR)
    await previous.subscriptions.open(EXCLUSIVE)
    assert await code_of(previous.subscriptions.open(SHARED)) is ErrorCode.LIMIT_REACHED
    new = await stage.open(policy=ONE_CURSOR)
    await new.subscriptions.drop(EXCLUSIVE.subscription_id)
    assert await code_of(previous.subscriptions.open(SHARED)) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    await new.subscriptions.open(SHARED)
    assert new.subscriptions.all() == [SHARED.subscription_id]


async def test_who_was_replaced_does_not_say_that_its_successors_leases_were_given_back(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    previous, _ = await used(stage, EXCLUSIVE)
    await previous.subscriptions.release(EXCLUSIVE, "a")
    new = await stage.open()
    await BUSY["pull"](new, "")
    assert await code_of(previous.subscriptions.release(EXCLUSIVE, "b")) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    await new.subscriptions.release(EXCLUSIVE, "b")


async def test_who_was_replaced_does_not_say_so_though_it_has_leases_of_the_consumer_as_well(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    previous, _ = await used(stage, EXCLUSIVE)
    new = await stage.open()
    await new.append_message(Message(b"1"))
    assert len(await pulled(new, EXCLUSIVE, "a")) == 2
    assert await code_of(previous.subscriptions.release(EXCLUSIVE, "a")) is ErrorCode.NO_OWNER
    assert not previous.is_serving
    await new.subscriptions.release(EXCLUSIVE, "a")
    assert len(await pulled(new, EXCLUSIVE, "a")) == 2


async def test_refusals_share_a_look_and_what_is_granted_costs_none(
    stage: Stage, ledgers: ScriptedLedgers, looks: list[str]
) -> None:
    log, ack_id = await used(stage, EXCLUSIVE)
    await pulled(log, EXCLUSIVE, "a")
    await log.subscriptions.hold(EXCLUSIVE, "a", lease_ms=None)
    await log.subscriptions.ack_through(EXCLUSIVE, ack_id, "a")
    assert looks == []
    refusals = await asyncio.gather(*(code_of(pulled(log, EXCLUSIVE, "b")) for _ in range(5)))
    assert refusals == [ErrorCode.SUBSCRIPTION_BUSY] * 5
    assert len(looks) == 1


async def test_an_owner_that_cannot_tell_does_not_refuse_for_good(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    log = await stage.open(store=store, timeout_s=0.02, policy=ONE_CURSOR)
    await log.subscriptions.open(EXCLUSIVE)
    await log.append_message(Message(b"0"))
    await pulled(log, EXCLUSIVE, "a")
    store.disconnect()
    assert await code_of(pulled(log, EXCLUSIVE, "b")) is ErrorCode.NO_OWNER
    assert await code_of(log.subscriptions.open(SHARED)) is ErrorCode.NO_OWNER
    store.reconnect()
    assert await code_of(pulled(log, EXCLUSIVE, "b")) is ErrorCode.SUBSCRIPTION_BUSY
    assert await code_of(log.subscriptions.open(SHARED)) is ErrorCode.LIMIT_REACHED
    assert log.is_serving
