"""Consumers that give back what a pull has leased whose answer was lost, before they pull again: by
the code of the Python client (``api/client/pulls.py``)."""

from __future__ import annotations

import asyncio
from typing import Any

from fencelog.api.client.pulls import Pulls
from fencelog.ledgers.errors import FencelogError
from tests.sim.oracle.call_history import CallHistory, may_be_leased
from tests.sim.plan.caller_plan import CallerPlan, CallPlan
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.calls.callers import NAME, Caller, Messages
from tests.sim.topics.clients import Clients

WANDERS = 0.3
"""How often a consumer goes to another broker, though the last one answered."""

LEAVES = 0.4
"""How often it pulls on, and acknowledges nothing of what it got."""


class OrderedCaller(Caller):
    """One consumer, which implements the calls of a client for its pulls."""

    def __init__(
        self, plan: CallerPlan, course: CallPlan, clients: Clients, calls: CallHistory
    ) -> None:
        super().__init__(plan, course, clients, calls)
        client: Any = _Client(self, plan.machine, course, calls)
        self._pulls = Pulls(client, str(TOPIC), NAME, plan.machine)
        self._pulls.is_in_order = True
        self._pulls.lease_ms = course.config.lease_ms

    async def next_messages(self) -> Messages:
        async def nothing() -> None:
            """Do nothing: what was acknowledged is on its way, or lost."""

        if self._chance.random() < WANDERS:
            self._target = self._clients.some_broker(self._chance).name
        messages: Any = await self._pulls.pull(nothing)
        found: Messages = messages
        return found

    async def treat(self, messages: Messages) -> None:
        if self._chance.random() >= LEAVES:
            await super().treat(messages)

    async def give_back(self) -> None:
        """Give back all that it has. Raises FencelogError."""
        body = {"consumer": self._plan.machine, "failed": False}
        call, told = await self._call("nack", body)
        self._calls.told_done(call, told["stale"], range(self._course.partitions))


class _Client:
    """The calls of a client that ``Pulls`` makes; what they mean is noted for the oracle."""

    def __init__(
        self, caller: OrderedCaller, consumer: str, course: CallPlan, calls: CallHistory
    ) -> None:
        self._caller = caller
        self._consumer = consumer
        self._course = course
        self._calls = calls
        self._has_lost = False
        self._tried_s: float | None = None
        """When it first tried to give back since its last pull."""
        self._given_back_s: float | None = None
        """When it began to give back, and it was done."""

    async def pull(self, topic: str, subscription: str, *, consumer: str) -> Messages:
        began_s = self._given_back_s or self._tried_s
        if began_s is None and self._has_lost:
            began_s = asyncio.get_running_loop().time()
        if began_s is not None and self._calls.order is not None:
            self._calls.order.moves_on(self._consumer, began_s)
        self._tried_s = self._given_back_s = None
        self._has_lost = True
        try:
            messages = await self._caller.pull()
        except FencelogError as error:
            self._has_lost = may_be_leased(error)
            raise
        self._has_lost = False
        return messages

    async def give_back(self, topic: str, subscription: str, consumer: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._tried_s is None:
            self._tried_s = now_s
        await self._caller.give_back()
        self._given_back_s = now_s
        self._calls.count("calls given back by name")
