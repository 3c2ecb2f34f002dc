"""Requests of clients that need no HTTP."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.broker import Broker
from fencelog.broker.partition.owner_node import OwnerNode
from fencelog.broker.partition.ownership import NotOwner, Owner
from fencelog.ledgers.metastore.port import Version
from tests.sim.engine.engine import Engine
from tests.sim.plan.topic_plan import TopicPlan
from tests.sim.topics.brokers import BrokerMachine, Unanswered


def machine_of(engine: Engine) -> BrokerMachine:
    """A machine without surroundings, whose process runs."""
    nothing: Any = SimpleNamespace(engine=engine)
    plan: Any = TopicPlan
    machine = BrokerMachine(nothing, "k1", plan, nothing, {}, nothing)
    machine.process = engine.start_process("k1")
    machine.broker = nothing
    return machine


def test_a_request_that_is_given_up_before_it_begins_leaves_nothing() -> None:
    engine = Engine(1)
    machine = machine_of(engine)
    begun = []

    async def work(_: Broker) -> None:
        begun.append(True)

    async def give_up() -> None:
        assert machine.process is not None
        machine.process.pause()
        with pytest.raises(Unanswered):
            await machine.ask(work, timeout_s=0.01)
        machine.process.resume()
        await asyncio.sleep(0.1)
        machine.process.forget_done()
        gc.collect()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        engine.run(give_up(), budget_s=10)
    assert (begun, [str(each.message) for each in said]) == ([], [])


class Slot:
    """A partition that is being opened, and whose owner node is another broker's. It holds
    ``_owner``."""

    is_here, is_serving, open_log = True, False, None

    def __init__(self) -> None:
        self.lost: list[NotOwner] = []
        self.other = Owner("k2", "http://k2", 2, Version(1, 0))
        nodes: Any = SimpleNamespace(
            claim=self._claim, is_this_broker=lambda owner: False, watch=lambda *_: None
        )
        self._owner = OwnerNode(nodes, "topic", 0, holder=self, is_registered=lambda url: True)

    async def _claim(self, topic_id: str, partition: int) -> Owner:
        return self.other

    def owner_seen(self) -> None:
        """Do nothing: no test waits for that."""

    def lost_to(self, error: NotOwner) -> None:
        self.lost.append(error)
        self.is_serving = False

    async def check_log(self) -> None:
        raise AssertionError("the node is not ours")


def test_a_broker_that_doubts_looks_at_what_it_was_opening() -> None:
    """The broker would serve without an owner node for ever, as no broker does that has claimed
    one."""
    engine, slot = Engine(1), Slot()
    machine = machine_of(engine)
    broker: Any = SimpleNamespace(_slots={0: slot}, open_slots=list)
    machine.broker, machine.believes = broker, True

    async def main() -> None:
        machine.doubt()
        await asyncio.sleep(0.1)
        assert slot.lost == []
        slot.is_serving = True  # it is open now
        slot._owner.keep()
        await asyncio.sleep(0.1)

    engine.run(main(), budget_s=10)
    assert not machine.believes
    assert [lost.url for lost in slot.lost] == ["http://k2"]
