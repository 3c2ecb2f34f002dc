"""Owner nodes when sessions end, watches are late and brokers are wrong about each other.

Each is a bug that others had: two brokers that loaded one topic (apache/pulsar#24478, #24901), a
failed or timed-out load that was remembered for ever (#7443, #26457), expired sessions (#23011).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.codec import decode_ledger_list, encode_ledger_list
from fencelog.broker.names import TopicName
from fencelog.broker.partition.owner_node import OwnerNode
from fencelog.broker.partition.ownership import NotOwner, Owner
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import NO_VERSION, Change, Version
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import BrokerMaker, Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName.of("shop", "orders")


async def settle() -> None:
    await asyncio.sleep(0.03)


async def test_two_brokers_that_open_a_partition_at_once_are_one_owner(
    make_broker: BrokerMaker,
) -> None:
    brokers = [await make_broker(name) for name in "abc"]
    await brokers[0].topics.create(NAME, TopicConfig())
    outcomes = await asyncio.gather(
        *(broker.partition(NAME, 0) for broker in brokers for _ in range(3)),
        return_exceptions=True,
    )
    logs = {id(log): log for log in outcomes if not isinstance(log, BaseException)}
    assert len(logs) == 1
    errors = [error for error in outcomes if isinstance(error, BaseException)]
    assert len(errors) == 6
    assert all(isinstance(error, NotOwner) for error in errors)
    (log,) = logs.values()
    assert log.epoch == 1


async def test_a_broker_that_is_too_late_fences_nothing_of_the_owner(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers
) -> None:
    """It has found no owner; the other one gets the log before it goes on."""
    c, a, b = [await make_broker(name) for name in "cab"]
    await c.topics.create(NAME, TopicConfig())
    assert (await (await c.partition(NAME, 0)).append_message(Message(b"1"))).offset == 0
    await c.close()
    ownership: Any = b._ownership
    get = ownership.get

    async def get_and_be_late(topic_id: str, partition: int) -> Owner | None:
        found: Owner | None = await get(topic_id, partition)
        if not ledgers.fenced - {1}:
            ownership.get = get
            await a.partition(NAME, 0)
        return found

    ownership.get = get_and_be_late
    with pytest.raises(NotOwner) as raised:
        await b.partition(NAME, 0)
    assert raised.value.broker_id == "a"
    assert ledgers.fenced == {1}
    log = await a.partition(NAME, 0)
    assert (await log.append_message(Message(b"2"))).offset == 1
    assert log.epoch == 2


async def test_an_owner_has_its_node_from_the_moment_it_has_the_log(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    info = await a.topics.create(NAME, TopicConfig())
    commits: list[list[str]] = []
    commit = store.commit

    async def recorded(changes: Sequence[Change]) -> list[Version]:
        commits.append([change.path for change in changes])
        return await commit(changes)

    observed: Any = store
    observed.commit = recorded
    await a.partition(NAME, 0)
    (taken,) = [paths for paths in commits if len(paths) > 1]
    topic_id = info[0].topic_id
    assert taken[-2:] == [f"/owners/{topic_id}-0", f"/logs/{topic_id}/0"]
    with pytest.raises(NotOwner):
        await b.partition(NAME, 0)


async def test_two_brokers_that_both_believe_in_themselves_do_not_both_acknowledge(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    """The nodes say nothing for sure: each takes the log over, and the previous one is fenced."""
    stores = [await stage.store() for _ in range(2)]
    a, b = [await make_broker(n, store=s) for n, s in zip("ab", stores, strict=True)]
    await a.topics.create(NAME, TopicConfig())
    log_a = await a.partition(NAME, 0)
    assert (await log_a.append_message(Message(b"1"))).offset == 0
    stores[0].disconnect()
    stores[0].expire()
    log_b = await b.partition(NAME, 0)
    zombie = log_a.append_message(Message(b"zombie"))
    assert (await log_b.append_message(Message(b"2"))).offset == 1
    stores[0].reconnect()
    with pytest.raises(FencelogError) as raised:
        await zombie
    assert raised.value.code.effects is Effects.MAYBE
    with pytest.raises(NotOwner):
        await a.partition(NAME, 0)
    assert (await log_b.append_message(Message(b"3"))).offset == 2


async def test_an_opening_that_timed_out_is_forgotten(
    stage: Stage, ledgers: ScriptedLedgers
) -> None:
    config = BrokerConfig("a", "http://a", open_timeout_s=0.05, close_timeout_s=1.0)
    broker = Broker(await stage.store(), ledgers, host=stage.host, config=config)
    await broker.start()
    try:
        await broker.topics.create(NAME, TopicConfig())
        ledgers.create_gate.clear()
        with pytest.raises(FencelogError) as raised:
            await broker.partition(NAME, 0)
        assert raised.value.code is ErrorCode.NO_OWNER
        assert await broker.owners(NAME) == []  # others may try meanwhile
        ledgers.create_gate.set()
        assert (await broker.partition(NAME, 0)).is_serving
    finally:
        ledgers.create_gate.set()
        await broker.close()


async def test_a_slow_opening_does_not_hold_up_the_others(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers
) -> None:
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig(partitions=2))
    ledgers.create_gate.clear()
    slow = asyncio.create_task(a.partition(NAME, 0))
    await settle()
    ledgers.create_gate = asyncio.Event()
    ledgers.create_gate.set()
    assert (await a.partition(NAME, 1)).is_serving
    assert not slow.done()
    slow.cancel()


async def test_an_owner_that_is_none_is_forgotten(make_broker: BrokerMaker, stage: Stage) -> None:
    """The watch has told of another owner, and then nothing more: the next request looks anew."""
    store = await stage.store()
    a, b = await make_broker("a"), await make_broker("b", store=store)
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    with pytest.raises(NotOwner):
        await b.partition(NAME, 0)
    watch = b._slots[NAME, 0]._owner._watch
    assert watch is not None
    watch.close()  # it will never hear of what follows
    await a.close()
    with pytest.raises(NotOwner):
        await b.partition(NAME, 0)
    b.forget_owner(NAME, 0, "http://somebody-else")
    with pytest.raises(NotOwner):
        await b.partition(NAME, 0)
    b.forget_owner(NAME, 0, "http://a")
    assert (await b.partition(NAME, 0)).epoch == 2


async def test_sessions_that_expire_again_and_again_cost_nothing(
    make_broker: BrokerMaker, stage: Stage, until: Until
) -> None:
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    for number in range(5):
        store.expire()
        assert (await log.append_message(Message(b"x"))).offset == number
        await settle()
        assert [owner["broker_id"] for owner in await b.owners(NAME)] == ["a"]
    assert log.epoch == 1
    await until(lambda: [entry["broker_id"] for entry in b.brokers()] == ["a", "b"])


async def test_writes_go_on_while_the_metadata_are_away(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    store = await stage.store()
    a = await make_broker("a", store=store)
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    store.disconnect()
    assert (await (await a.partition(NAME, 0)).append_message(Message(b"x"))).offset == 0
    store.reconnect()
    await settle()
    assert await a.partition(NAME, 0) is log
    assert log.epoch == 1


async def test_a_request_to_a_silent_owner_ends_with_its_session(
    make_broker: BrokerMaker, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencelog.broker.partition import forwards

    monkeypatch.setattr(forwards, "OWNER_LOST_MS", 30)
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    await (await a.partition(NAME, 0)).append_message(Message(b"x"))
    with pytest.raises(NotOwner) as raised:
        await b.partition(NAME, 0)

    async def silence() -> None:
        await asyncio.Event().wait()

    url = raised.value.url
    request = asyncio.create_task(b.while_owner(NAME, 0, url, silence))
    appends = b.forwarded_appends(NAME, 0)
    assert appends is not None
    assert appends.url == url
    single: AppendFuture = asyncio.get_running_loop().create_future()
    appends.futures[single] = None
    await asyncio.sleep(0.06)
    assert not request.done()
    assert not single.done()
    store.disconnect()
    store.expire()  # nobody refuses a connection; the session's end is all that tells
    with pytest.raises(forwards.OwnerLost):
        async with asyncio.timeout(2):
            await request
    with pytest.raises(FencelogError) as unknown:
        async with asyncio.timeout(2):
            await single
    assert unknown.value.code is ErrorCode.APPEND_UNKNOWN
    assert (await b.partition(NAME, 0)).tail_offset == 1
    store.reconnect()


async def test_a_lost_log_does_not_give_up_the_node_of_the_next_one(
    make_broker: BrokerMaker, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends by itself, the next request opens it again: the end of the first, which gives
    the owner node up, comes before that."""
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    log = await a.partition(NAME, 0)
    ending = asyncio.Event()
    abandon = log.abandon

    async def abandon_late(error: FencelogError) -> None:
        await ending.wait()
        await abandon(error)

    monkeypatch.setattr(log, "abandon", abandon_late)
    log._writer.finish(FencelogError(ErrorCode.INTERNAL, "it has stopped"))
    opening = asyncio.create_task(a.partition(NAME, 0))
    await settle()
    ending.set()
    assert await opening is not log
    seen: list[Any] = []
    info = await a.topic(NAME)
    watch = (await stage.store()).watch_value(f"/owners/{info.topic_id}-0", seen.append)
    await settle()
    watch.close()
    assert len(seen) == 1
    assert seen[0] is not None


async def test_the_next_ledger_of_an_owner_that_was_replaced_is_deleted(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers, until: Until
) -> None:
    """The owner learns by the refused listing that it has lost the log, and gives it up at once:
    the ledger is on no list, and nobody else knows of it."""
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig(overrides={"roll_entries": 1}))
    log = await a.partition(NAME, 0)
    store: Any = a._store
    path = log._node.path
    node = await store.get(path)
    changed = replace(decode_ledger_list(node.value), token="another's")
    await store.set(path, encode_ledger_list(changed), node.version)
    await log.append_message(Message(b"x"))
    await until(lambda: not log.is_serving)
    await until(lambda: ledgers.deleted == {2})


async def test_who_waits_for_a_move_that_never_began_is_told(make_broker: BrokerMaker) -> None:
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    slot = a._slots[NAME, 0]
    moving = asyncio.create_task(slot.transfer())
    closing = asyncio.create_task(slot.close())  # in the same round of the event loop
    await asyncio.wait((moving, closing))
    with pytest.raises(FencelogError) as raised:
        await asyncio.wait_for(slot.log(), timeout=2)
    assert raised.value.code is ErrorCode.NO_OWNER


async def test_the_other_partitions_of_a_dead_owner_are_not_asked_for_one_by_one(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    store = await stage.store()
    a, b, c = await make_broker("a", store=store), await make_broker("b"), await make_broker("c")
    await a.topics.create(NAME, TopicConfig(partitions=4))
    for partition in range(4):
        await a.partition(NAME, partition)
    store.disconnect()  # it was killed; its session still lives
    for partition in range(2):
        with pytest.raises(NotOwner):
            await b.partition(NAME, partition)
    await b.report_dead_owner(NAME, 0, "http://a")
    assert [(await b.partition(NAME, partition)).epoch for partition in range(3)] == [2] * 3
    with pytest.raises(NotOwner):
        await c.partition(NAME, 3)  # which has not asked yet
    store.reconnect()
    await settle()
    with pytest.raises(NotOwner):
        await a.partition(NAME, 0)
    assert (await a.partition(NAME, 3)).epoch == 1  # nobody else has taken it


async def test_an_owner_that_lives_is_not_taken_for_dead_for_long(
    make_broker: BrokerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencelog.broker.partition import ownership

    monkeypatch.setattr(ownership, "DEAD_FOR_S", 0.0)
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig(partitions=2))
    logs = [await a.partition(NAME, partition) for partition in range(2)]
    await b.report_dead_owner(NAME, 0, "http://a")
    await settle()
    for partition in range(2):
        with pytest.raises(NotOwner):
            await b.partition(NAME, partition)
    assert [log.is_serving for log in logs] == [True, True]


class _Unwatched:
    """``Ownership`` of broker "a": "b" owns the partition, then nobody; its watch says nothing,
    since the node looks at the end as it did at the beginning."""

    def __init__(self) -> None:
        self.owner: Owner | None = Owner("b", "http://b", 2, NO_VERSION)

    async def get(self, topic_id: str, partition: int) -> Owner | None:
        return self.owner

    async def claim(self, topic_id: str, partition: int) -> Owner | None:
        return self.owner

    def is_this_broker(self, owner: Owner) -> bool:
        return owner.broker_id == "a"

    def watch(self, topic_id: str, partition: int, callback: Any) -> Any:
        return SimpleNamespace(close=lambda: None)


async def test_who_owns_a_partition_does_not_send_others_to_its_former_owner() -> None:
    """Two brokers sent requests to each other for ever, and the node of one stood there."""
    ownership: Any = _Unwatched()
    holder: Any = None
    node = OwnerNode(ownership, "topic", 0, holder=holder, is_registered=lambda url: True)
    with pytest.raises(NotOwner):
        await node.check_free()
    assert node.other == ownership.owner
    ownership.owner = None
    await node.claim()
    assert node.other is None


async def test_who_puts_its_node_back_sees_that_others_had_the_log_meanwhile(
    make_broker: BrokerMaker, stage: Stage, until: Until
) -> None:
    """The others have given up their nodes too: the owner read on in a log that had gone on (seed
    2133)."""
    stores = [await stage.store() for _ in range(2)]
    a, b = [await make_broker(n, store=s) for n, s in zip("ab", stores, strict=True)]
    await a.topics.create(NAME, TopicConfig())
    previous = await a.partition(NAME, 0)
    await previous.append_message(Message(b"1"))
    stores[0].disconnect()
    stores[0].expire()
    log_b = await b.partition(NAME, 0)
    await log_b.append_message(Message(b"2"))
    stores[1].disconnect()
    stores[1].expire()  # its node goes, and it does not know yet
    stores[0].reconnect()
    await until(lambda: not previous.is_serving)
    assert (await a.partition(NAME, 0)).tail_offset == 2
