"""Partitions on their way from one broker to another: unloaded, drained, placed, rebalanced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fencelog.broker.background.unloading import DrainResult
from fencelog.broker.broker import Broker
from fencelog.broker.cluster.load import BrokerLoad
from fencelog.broker.config import BalancePolicy
from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.metastore.port import NO_VERSION, Change, Delete, Version
from fencelog.ledgers.record_batch import Message
from tests.broker.partition.transfer_stage import NAME, Make, Network, owner_ids, settle
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers


def recorded_commits(broker: Broker) -> list[list[Change]]:
    """Record the commits of a broker from now on."""
    store: Any = broker._store
    commit, commits = store.commit, list[list[Change]]()

    async def recorded(changes: Sequence[Change]) -> list[Version]:
        commits.append(list(changes))
        versions: list[Version] = await commit(changes)
        return versions

    store.commit = recorded
    return commits


async def test_unloading_seals_the_log_and_opens_it_elsewhere(
    make: Make, ledgers: ScriptedLedgers
) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    future = log.append_message(Message(b"x"))
    assert await a.unload(NAME, 0) == "b"
    assert future.result().offset == 0
    taken = b.open_log(NAME, 0)
    assert taken is not None
    assert (taken.tail_offset, taken.epoch) == (1, 2)
    assert "close 1" in ledgers.log  # the next owner found it closed
    with pytest.raises(NotOwner) as raised:
        await a.partition(NAME, 0)
    assert raised.value.url == "http://b"


async def test_appends_in_flight_are_finished_before_the_log_is_closed(
    make: Make, ledgers: ScriptedLedgers
) -> None:
    a, _ = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    await settle()  # nothing else is to be done then
    ledgers.newest.auto_ack = False
    futures = [log.append_message(Message(payload)) for payload in (b"x", b"y")]
    await settle()
    unloading = asyncio.create_task(a.unload(NAME, 0))
    await settle()
    assert not unloading.done()
    assert not any(future.done() for future in futures)
    with pytest.raises(FencelogError) as raised:
        await log.append_message(Message(b"z"))
    assert raised.value.code is ErrorCode.DRAINING
    ledgers.newest.ack(len(ledgers.newest.payloads) - 1)
    assert await unloading == "b"
    assert [future.result().offset for future in futures] == [0, 1]


async def test_a_partition_is_sealed_and_released_in_one_change(make: Make) -> None:
    a = await make("a")
    await make("b")
    info, _ = await a.topics.create(NAME, TopicConfig())
    await (await a.partition(NAME, 0)).append_message(Message(b"x"))
    await settle()  # until the watch has reported the node
    commits = recorded_commits(a)
    assert await a.unload(NAME, 0) == "b"
    owner, log = f"/owners/{info.topic_id}-0", f"/logs/{info.topic_id}/0"
    assert [[change.path for change in changes] for changes in commits] == [[owner, log]]
    assert isinstance(commits[0][0], Delete)


async def test_a_roll_under_way_does_not_release_the_partition(
    make: Make, ledgers: ScriptedLedgers
) -> None:
    """The log is written until it is closed; only then the partition is free."""
    a = await make("a")
    await make("b")
    info, _ = await a.topics.create(NAME, TopicConfig(overrides={"roll_entries": 1}))
    log = await a.partition(NAME, 0)
    await settle()
    ledgers.create_gate.clear()
    await log.append_message(Message(b"x"))
    await settle()  # until the roll waits for its ledger
    commits = recorded_commits(a)
    moving = asyncio.create_task(a.unload(NAME, 0))
    await settle()
    ledgers.create_gate.set()
    assert await moving == "b"
    owner, path = f"/owners/{info.topic_id}-0", f"/logs/{info.topic_id}/0"
    listed, rolled, closed = [[change.path for change in changes] for changes in commits]
    assert (listed, rolled, closed) == ([path], [path], [owner, path])


async def test_a_partition_whose_node_has_vanished_is_released_all_the_same(make: Make) -> None:
    """The change that was to delete it is refused: then the log is sealed alone."""
    a, b = await make("a"), await make("b")
    info, _ = await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    await log.append_message(Message(b"x"))
    await settle()
    slot = a._slots[NAME, 0]
    slot._owner._own = NO_VERSION
    commits = recorded_commits(a)
    assert await a.unload(NAME, 0) == "b"
    sealed = f"/logs/{info.topic_id}/0"
    assert [len(changes) for changes in commits if changes[-1].path == sealed] == [2, 1]
    taken = b.open_log(NAME, 0)
    assert taken is not None
    assert (taken.tail_offset, taken.epoch) == (1, 2)
    assert await owner_ids(a) == ["b"]


async def test_unloading_goes_where_it_is_told_and_back_again(make: Make) -> None:
    """An owner that has gone leaves nothing that could stand in its own way later
    (apache/pulsar#2967)."""
    a, _, c = await make("a"), await make("b"), await make("c")
    await a.topics.create(NAME, TopicConfig())
    await (await a.partition(NAME, 0)).append_message(Message(b"x"))
    assert await a.unload(NAME, 0, to="c") == "c"
    assert await c.unload(NAME, 0, to="a") == "a"
    log = await a.partition(NAME, 0)
    assert (log.tail_offset, log.epoch) == (1, 3)
    assert (await log.append_message(Message(b"y"))).offset == 1


async def test_unloading_names_what_is_wrong(make: Make) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    with pytest.raises(NotOwner):
        await b.unload(NAME, 0)
    with pytest.raises(FencelogError) as raised:
        await a.unload(NAME, 0, to="z")
    assert raised.value.code is ErrorCode.NOT_FOUND
    log = a.open_log(NAME, 0)
    assert log is not None
    assert await a.unload(NAME, 0, to="a") == "a"
    assert a.open_log(NAME, 0) is log


async def test_a_target_that_is_dead_leaves_the_partition_free(
    make: Make, network: Network
) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    network.dead.add("http://b")
    assert await a.unload(NAME, 0) is None
    assert await owner_ids(b) == []
    assert (await a.partition(NAME, 0)).epoch == 2


async def test_requests_wait_for_the_next_owner(make: Make, network: Network) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    network.gate.clear()
    move = asyncio.create_task(a.unload(NAME, 0))
    await settle()
    waiting = [asyncio.create_task(a.partition(NAME, 0)) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in waiting)
    network.gate.set()
    assert await move == "b"
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, NotOwner)
        assert outcome.url == "http://b"
    assert (await b.partition(NAME, 0)).is_serving


async def test_a_change_that_meets_a_closing_log_is_for_the_next_owner(
    make: Make, ledgers: ScriptedLedgers, until: Until
) -> None:
    """The log refuses the change, of which nothing was done, and says that it does not serve any
    more: so the request waits for the next owner and is not answered with the refusal."""
    a = await make("a")
    await make("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    await log.access.fence("one")
    state = ledgers.newest
    written, state.auto_ack = len(state.payloads), False
    recorded = log._state_log.recorded(["fencing_token", "two"])
    await until(lambda: len(state.payloads) > written)
    moving = asyncio.create_task(a.unload(NAME, 0))
    await settle()
    with pytest.raises(FencelogError) as raised:
        log._state_log.admit()
    assert raised.value.code is ErrorCode.DRAINING
    assert not log.is_serving
    assert not recorded.done()
    state.ack(written)
    assert await moving == "b"


async def test_who_waits_is_sent_to_any_owner_that_is_seen(make: Make, network: Network) -> None:
    """A third broker was asked meanwhile: nobody waits for the one that was to have it."""
    a, _, c = await make("a"), await make("b"), await make("c")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    network.gate.clear()
    move = asyncio.create_task(a.unload(NAME, 0, to="b"))
    await settle()
    waiting = asyncio.create_task(a.partition(NAME, 0))
    await settle()
    await c.partition(NAME, 0)
    with pytest.raises(NotOwner) as raised:
        await waiting
    assert raised.value.url == "http://c"
    network.gate.set()
    assert await move == "c"


async def test_a_drained_broker_has_nothing_and_takes_nothing(make: Make, stage: Stage) -> None:
    a, b, c = await make("a"), await make("b"), await make("c")
    store = await stage.store()
    await store.create("/bookies/b1", b'{"address": "127.0.0.1:1"}', ephemeral=True)
    await a.topics.create(NAME, TopicConfig(partitions=40))
    logs = [await a.partition(NAME, number) for number in range(40)]
    futures = [log.append_message(Message(b"x")) for log in logs]
    assert await a.drain() == DrainResult()
    assert [future.result().offset for future in futures] == [0] * 40
    owners = await owner_ids(b)
    assert (owners.count("b"), owners.count("c")) == (20, 20)
    await settle()
    assert [entry["draining"] for entry in c.brokers()] == [True, False, False]
    with pytest.raises(FencelogError) as raised:
        await a.check_ready()
    assert raised.value.code is ErrorCode.DRAINING
    # It sends on what it is asked for, also what nobody owns.
    with pytest.raises(NotOwner):
        await a.partition(NAME, 0)
    other = TopicName.of("shop", "returns")
    await a.topics.create(other, TopicConfig())
    with pytest.raises(NotOwner):
        await a.partition(other, 0)
    with pytest.raises(FencelogError) as raised:
        await a.take(TopicName.of("shop", "orders"), 0)
    assert raised.value.code in (ErrorCode.NOT_OWNER, ErrorCode.DRAINING)
    assert await a.drain() == DrainResult()


async def test_nobody_hands_over_to_a_broker_that_drains(make: Make) -> None:
    a, b, c = await make("a"), await make("b"), await make("c")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    await b.drain()
    await settle()
    assert await a.unload(NAME, 0) == "c"
    assert await c.unload(NAME, 0, to="b") is None


async def test_the_last_broker_seals_and_gives_up(make: Make, ledgers: ScriptedLedgers) -> None:
    a = await make("a")
    await a.topics.create(NAME, TopicConfig(partitions=2))
    for number in range(2):
        await (await a.partition(NAME, number)).append_message(Message(b"x"))
    assert await a.drain() == DrainResult(not_taken=2)
    assert {"close 1", "close 2"} <= set(ledgers.log)
    assert await owner_ids(a) == []
    with pytest.raises(FencelogError) as raised:
        await a.partition(NAME, 0)
    assert raised.value.code is ErrorCode.DRAINING


async def test_draining_ends_when_its_time_is_over(make: Make, network: Network) -> None:
    a, b = await make("a", drain_timeout_s=0.05), await make("b")
    await a.topics.create(NAME, TopicConfig(partitions=3))
    for number in range(3):
        await a.partition(NAME, number)
    network.gate.clear()
    async with asyncio.timeout(10):
        await a.drain()
        await a.close()
    network.gate.set()
    assert await owner_ids(b) == []
    assert (await b.partition(NAME, 0)).epoch == 2


async def test_what_is_being_opened_is_drained_too(make: Make, ledgers: ScriptedLedgers) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_gate.clear()
    opening = asyncio.create_task(a.partition(NAME, 0))
    await settle()
    draining = asyncio.create_task(a.drain())
    await settle()
    ledgers.create_gate.set()
    await asyncio.wait((opening,))
    assert await draining == DrainResult()
    assert await owner_ids(b) == ["b"]


async def test_a_new_partition_goes_to_a_clearly_less_loaded_broker(make: Make) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig(partitions=2))
    a.directory.measured(BrokerLoad(partitions=1, in_bytes_per_s=10 * MIB))
    await settle()
    with pytest.raises(NotOwner) as raised:
        await a.partition(NAME, 0)
    assert raised.value.url == "http://b"
    assert (await b.partition(NAME, 1)).is_serving  # the one that is asked, if it may


async def test_a_partition_that_another_broker_refuses_is_taken_here(
    make: Make, network: Network
) -> None:
    a, _ = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig())
    a.directory.measured(BrokerLoad(partitions=1, in_bytes_per_s=10 * MIB))
    await settle()
    network.dead.add("http://b")
    assert (await a.partition(NAME, 0)).is_serving
    assert network.asked == ["http://b"]


async def test_an_overloaded_broker_sheds_until_it_is_none(make: Make) -> None:
    policy = BalancePolicy(interval_s=3600, rounds=2, rest_s=0, min_margin=1000, margin=0.1)
    a, b = await make("a", balance=policy), await make("b", balance=policy)
    await a.topics.create(NAME, TopicConfig(partitions=8))
    for number in range(8):
        log = await a.take(NAME, number)
        await log.append_message(Message(b"x" * 100_000))
    await a._balancer.round(1.0)
    assert await owner_ids(b) == ["a"] * 8  # not at the first sight of it
    await settle()
    await a._balancer.round(1.0)
    owners = await owner_ids(b)
    assert 3 <= owners.count("b") <= 4
    await settle()
    assert next(entry["partitions"] for entry in b.brokers()) == 8
    await a._balancer.round(1.0)
    await a._balancer.round(1.0)
    assert await owner_ids(b) == owners


async def test_what_a_broker_was_sent_is_not_held_against_it_for_ever(make: Make) -> None:
    """The broker may have refused the partition, or lost it again: its load, which it publishes,
    never shows it."""
    a, _ = await make("a"), await make("b")
    await settle()
    a.directory.took("b", 10.0 * MIB)
    for _ in range(BalancePolicy().rounds):
        assert {view.broker_id: view.score for view in a.directory.views()}["b"] == 10 * MIB
        a.directory.measured(BrokerLoad())
    assert {view.broker_id: view.score for view in a.directory.views()}["b"] == 0


async def test_the_only_broker_is_drained_by_force_only_and_takes_partitions_again(
    make: Make, stage: Stage
) -> None:
    a = await make("a")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    with pytest.raises(FencelogError, match="no other broker takes partitions") as raised:
        await a.drain(force=False)
    assert raised.value.code is ErrorCode.PRECONDITION_FAILED
    assert (await log.append_message(Message(b"x"))).offset == 0
    await a.undrain()
    assert await a.drain(force=True) == DrainResult(not_taken=1)
    for _ in range(2):
        await a.undrain()
        assert (await a.partition(NAME, 0)).tail_offset == 1
    b = await make("b")
    await settle()
    await b.drain(force=False)
    await settle()
    with pytest.raises(FencelogError):
        await a.drain(force=False)
    await b.undrain()
    await settle()
    assert await a.drain(force=False) == DrainResult()
    assert await owner_ids(a) == ["b"]


async def test_a_drain_in_progress_can_be_ended_but_not_the_last_one(
    make: Make, network: Network
) -> None:
    a, b = await make("a"), await make("b")
    await a.topics.create(NAME, TopicConfig(partitions=3))
    for number in range(3):
        await a.partition(NAME, number)
    network.gate.clear()
    draining = asyncio.create_task(a.drain())
    await settle()
    await a.undrain()
    await draining
    network.gate.set()
    await settle()
    assert [entry["draining"] for entry in b.brokers()] == [False, False]
    await a.leave()
    with pytest.raises(FencelogError) as raised:
        await a.undrain()
    assert raised.value.code is ErrorCode.DRAINING
