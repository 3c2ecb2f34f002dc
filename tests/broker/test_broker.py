"""Brokers among each other: owning, forwarding, losing sessions, taking over, handing over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.read.stored import ReadLimits
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import BrokerMaker, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName.of("shop", "orders")


async def settle() -> None:
    await asyncio.sleep(0.03)


async def test_the_first_to_ask_owns_the_partition(make_broker: BrokerMaker) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig(partitions=2))
    log = await a.partition(NAME, 0)
    assert (await log.append_message(Message(b"x"))).partition == 0
    for _ in range(2):
        with pytest.raises(NotOwner) as raised:
            await b.partition(NAME, 0)
        assert raised.value.url == "http://a"
    await b.partition(NAME, 1)
    owners = await a.owners(NAME)
    assert [(o["partition"], o["broker_id"], o["url"], o["epoch"]) for o in owners] == [
        (0, "a", "http://a", 1),
        (1, "b", "http://b", 1),
    ]
    assert [entry["broker_id"] for entry in b.brokers()] == ["a", "b"]


async def test_topics_and_partitions_that_are_not_there(make_broker: BrokerMaker) -> None:
    a = await make_broker("a")
    with pytest.raises(FencelogError) as raised:
        await a.partition(NAME, 0)
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    await a.topics.create(NAME, TopicConfig(partitions=2))
    for partition in (-1, 2):
        with pytest.raises(FencelogError) as raised:
            await a.partition(NAME, partition)
        assert raised.value.code is ErrorCode.NOT_FOUND


async def test_a_partition_is_opened_once_for_all_who_ask(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers
) -> None:
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    logs = await asyncio.gather(*(a.partition(NAME, 0) for _ in range(20)))
    assert len({id(log) for log in logs}) == 1
    assert len(ledgers.writers) == 1


async def test_a_caller_that_goes_away_does_not_stop_the_opening(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers
) -> None:
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_gate.clear()
    impatient = asyncio.create_task(a.partition(NAME, 0))
    patient = asyncio.create_task(a.partition(NAME, 0))
    await settle()
    impatient.cancel()
    ledgers.create_gate.set()
    assert (await patient).is_serving


async def test_a_failed_opening_is_forgotten(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers
) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_errors = [FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "none")]
    with pytest.raises(FencelogError) as raised:
        await a.partition(NAME, 0)
    assert raised.value.code is ErrorCode.NOT_ENOUGH_BOOKIES
    # It gave the partition up, so that another may do better.
    assert (await b.partition(NAME, 0)).is_serving


async def test_the_partition_of_a_dead_broker_is_taken_over_at_once(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    zombie = await a.partition(NAME, 0)
    await zombie.append_message(Message(b"x"))
    with pytest.raises(NotOwner):
        await b.partition(NAME, 0)
    store.disconnect()  # a is cut off from the metadata; its session still lives
    await b.report_dead_owner(NAME, 0, "http://other")
    await settle()
    with pytest.raises(NotOwner):
        await b.partition(NAME, 0)
    await b.report_dead_owner(NAME, 0, "http://a")
    log = await b.partition(NAME, 0)
    assert (log.tail_offset, log.epoch) == (1, 2)
    # Two brokers believe that they own it: only one gets acks.
    doomed = zombie.append_message(Message(b"zombie"))
    assert (await log.append_message(Message(b"owner"))).offset == 1
    await asyncio.sleep(0.4)
    assert not doomed.done()  # nothing is certain while the metadata cannot be read
    store.reconnect()
    with pytest.raises(FencelogError) as raised:
        await doomed
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    with pytest.raises(NotOwner):
        await a.partition(NAME, 0)


async def test_an_expired_session_is_no_reason_to_stop(
    make_broker: BrokerMaker, stage: Stage, until: Until
) -> None:
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    store.expire()
    assert (await log.append_message(Message(b"x"))).offset == 0
    await settle()
    assert await a.partition(NAME, 0) is log
    with pytest.raises(NotOwner):
        await b.partition(NAME, 0)
    assert log.epoch == 1


async def test_a_session_that_expired_unseen_loses_to_a_new_owner(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    old = await a.partition(NAME, 0)
    await old.append_message(Message(b"x"))
    store.disconnect()
    store.expire()
    new = await b.partition(NAME, 0)
    assert new.tail_offset == 1
    store.reconnect()
    await settle()
    assert not old.is_serving
    with pytest.raises(NotOwner) as raised:
        await a.partition(NAME, 0)
    assert raised.value.url == "http://b"
    assert (await new.append_message(Message(b"y"))).offset == 1


async def test_a_living_owner_that_was_reported_dead_puts_its_node_back(
    make_broker: BrokerMaker,
) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    await b.report_dead_owner(NAME, 0, "http://a")
    await settle()
    assert [owner["broker_id"] for owner in await b.owners(NAME)] == ["a"]
    assert (await log.append_message(Message(b"x"))).offset == 0


async def test_a_restarted_broker_replaces_its_former_self(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    """Its previous session has not expired yet; the new one must not forward to itself."""
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    await (await a.partition(NAME, 0)).append_message(Message(b"x"))
    again = await make_broker("a")
    log = await again.partition(NAME, 0)
    assert (log.tail_offset, log.epoch) == (1, 2)


async def test_closing_hands_everything_over(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers, stage: Stage
) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig(partitions=3))
    logs = [await a.partition(NAME, number) for number in range(3)]
    futures = [log.append_message(Message(b"x")) for log in logs]
    await a.close()
    assert [future.result().offset for future in futures] == [0, 0, 0]
    assert await b.owners(NAME) == []
    with pytest.raises(FencelogError) as raised:
        await a.partition(NAME, 0)
    assert raised.value.code is ErrorCode.DRAINING
    before = len(ledgers.log)
    for number in range(3):
        assert (await b.partition(NAME, number)).tail_offset == 1
    assert not any(step.startswith("close") for step in ledgers.log[before:])
    assert [entry["broker_id"] for entry in b.brokers()] == ["b"]


async def test_a_deleted_topic_is_gone_everywhere(make_broker: BrokerMaker) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    waiting = asyncio.create_task(
        log.read(0, ReadLimits(max_messages=1, max_bytes=1, wait_ms=5_000))
    )
    await settle()
    await b.topics.delete(NAME)
    with pytest.raises(FencelogError) as raised:
        await waiting
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    await settle()
    with pytest.raises(FencelogError) as raised:
        await a.partition(NAME, 0)
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    await b.topics.create(NAME, TopicConfig())
    fresh = await a.partition(NAME, 0)
    assert (fresh.tail_offset, fresh.epoch) == (0, 1)


async def test_readiness_says_what_is_missing(
    make_broker: BrokerMaker, stage: Stage, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    a = await make_broker("a", store=store)
    ledgers.placement_error = FencelogError(ErrorCode.OUT_OF_SPACE, "no disk has space")
    with pytest.raises(FencelogError) as raised:
        await a.check_ready()
    assert raised.value is ledgers.placement_error
    ledgers.placement_error = None
    await store.create("/bookies/b1", b'{"address": "127.0.0.1:1"}', ephemeral=True)
    await settle()
    await a.check_ready()
    assert a.bookie_addresses() == {"b1": "127.0.0.1:1"}
    store.disconnect()
    with pytest.raises(FencelogError) as raised:
        await a.check_ready()
    assert raised.value.code is ErrorCode.METADATA_UNAVAILABLE
    store.reconnect()


async def test_an_open_partition_keeps_a_broker_ready_without_metadata(
    make_broker: BrokerMaker, stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """It serves on with as many bookies as acknowledge; a new ledger would take all of them."""
    store = await stage.store()
    a = await make_broker("a", store=store)
    await a.check_ready()
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    await a.check_ready()
    assert ledgers.checked_placements == [3, 2]
    store.disconnect()
    await a.check_ready()
    ledgers.placement_error = FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "one is left")
    with pytest.raises(FencelogError) as raised:
        await a.check_ready()
    assert raised.value is ledgers.placement_error
    store.reconnect()


async def test_a_broker_that_is_not_registered_is_not_ready(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    store = await stage.store()
    a = await make_broker("a", store=store)
    node = await store.get("/brokers/a")
    await store.delete("/brokers/a", node.version)
    with pytest.raises(FencelogError, match="not registered") as raised:
        await a.check_ready()
    assert raised.value.code is ErrorCode.METADATA_UNAVAILABLE
    await settle()
    await a.check_ready()


async def test_a_list_that_changes_during_a_takeover_is_read_again(
    make_broker: BrokerMaker, stage: Stage, ledgers: ScriptedLedgers
) -> None:
    """The previous owner was rolling just then. The leadership is not its any more: start again."""
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    info, _ = await a.topics.create(NAME, TopicConfig())
    await (await a.partition(NAME, 0)).append_message(Message(b"x"))
    store.disconnect()
    store.expire()
    rolling = await b.topics.open_ledger_list(info, 0)
    changes: list[asyncio.Task[Any]] = []

    def roll() -> None:
        if not changes:
            changes.append(asyncio.create_task(rolling.change(lambda ledger_list: ledger_list)))

    ledgers.before_recover = roll
    log = await b.partition(NAME, 0)
    assert (log.tail_offset, len(changes)) == (1, 1)
    assert (await log.append_message(Message(b"y"))).offset == 1
    store.reconnect()
