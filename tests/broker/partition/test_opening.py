"""Events while a broker opens a partition, and the answers to requests that wait."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message
from tests.support.broker_stage import BrokerMaker, Stage
from tests.support.scripted_ledgers import ScriptedLedgers

NAME = TopicName.of("shop", "orders")


async def settle() -> None:
    await asyncio.sleep(0.03)


async def test_who_waits_for_the_partition_of_a_deleted_topic_is_told(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers
) -> None:
    a, b = await make_broker("a"), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_gate.clear()
    waiting = [asyncio.create_task(a.partition(NAME, 0)) for _ in range(2)]
    await settle()
    await b.topics.delete(NAME)
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, FencelogError)
        assert error.code is ErrorCode.TOPIC_NOT_FOUND


async def test_a_session_that_expires_during_an_opening_costs_the_node_only(
    make_broker: BrokerMaker, stage: Stage, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_gate.clear()
    opening = asyncio.create_task(a.partition(NAME, 0))
    await settle()
    store.expire()
    await settle()
    ledgers.create_gate.set()
    log = await opening
    await settle()
    assert [owner["broker_id"] for owner in await b.owners(NAME)] == ["a"]
    assert (await log.append_message(Message(b"x"))).offset == 0


async def test_of_two_that_open_a_partition_the_one_with_the_node_serves_it(
    make_broker: BrokerMaker, stage: Stage, ledgers: ScriptedLedgers
) -> None:
    store = await stage.store()
    a, b = await make_broker("a", store=store), await make_broker("b")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_gate.clear()
    opening = asyncio.create_task(a.partition(NAME, 0))
    await settle()
    store.disconnect()
    store.expire()
    takeover = asyncio.create_task(b.partition(NAME, 0))
    await settle()
    store.reconnect()
    await settle()
    ledgers.create_gate.set()
    outcomes = await asyncio.gather(opening, takeover, return_exceptions=True)
    await settle()
    (owner,) = await b.owners(NAME)
    winner, loser = (a, b) if owner["broker_id"] == "a" else (b, a)
    assert (await winner.partition(NAME, 0)).epoch == 1
    with pytest.raises(FencelogError) as raised:
        await loser.partition(NAME, 0)
    assert raised.value.code is ErrorCode.NOT_OWNER
    assert [isinstance(outcome, NotOwner) for outcome in outcomes] == [loser is a, loser is b]


@pytest.mark.parametrize("code", [ErrorCode.METADATA_UNKNOWN, ErrorCode.LEDGER_FENCED])
async def test_nothing_is_unknown_of_an_append_whose_partition_was_not_opened(
    make_broker: BrokerMaker, ledgers: ScriptedLedgers, code: ErrorCode
) -> None:
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    ledgers.create_errors = [FencelogError(code, "the reply was lost")]
    with pytest.raises(FencelogError, match="the reply was lost") as raised:
        await a.partition(NAME, 0)
    assert raised.value.code is ErrorCode.NO_OWNER
    assert (await a.partition(NAME, 0)).is_serving


async def test_a_broker_at_the_address_of_a_dead_one_is_its_successor(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    """The dead one's session has not expired yet. Forwarding to it would be forwarding to us."""
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    await (await a.partition(NAME, 0)).append_message(Message(b"x"))
    config = BrokerConfig("another-name", "http://a")
    successor = Broker(await stage.store(), stage.ledgers, host=stage.host, config=config)
    await successor.start()
    try:
        assert (await successor.partition(NAME, 0)).tail_offset == 1
    finally:
        await successor.close()


async def test_a_restarted_broker_is_not_sent_to_its_former_self(
    make_broker: BrokerMaker, stage: Stage
) -> None:
    """A broker that was killed keeps its session, and the owner nodes, for some seconds more."""
    a = await make_broker("a")
    await a.topics.create(NAME, TopicConfig())
    await a.partition(NAME, 0)
    again = await make_broker("a")
    assert await again.unload(NAME, 0) is None  # looks for another owner, and there is none
    await settle()
    assert (await again.partition(NAME, 0)).epoch == 2
