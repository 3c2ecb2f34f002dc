"""Requests of clients that need no HTTP."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.broker import Broker
from tests.sim.engine.engine import Engine
from tests.sim.plan.topic_plan import TopicPlan
from tests.sim.topics.brokers import BrokerMachine, Unanswered


def test_a_request_that_is_given_up_before_it_begins_leaves_nothing() -> None:
    engine = Engine(1)
    nothing: Any = SimpleNamespace(engine=engine)
    plan: Any = TopicPlan
    machine = BrokerMachine(nothing, "k1", plan, nothing, {}, nothing)
    machine.process = engine.start_process("k1")
    machine.broker = nothing
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
