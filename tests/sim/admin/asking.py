"""One client's way to the brokers of a topic that is administered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Any, TypeVar

from fencelog.broker.broker import Broker
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.oracle.log_history import LogHistory
from tests.sim.topics.brokers import BrokerMachine, Unanswered, Unreached
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients

T = TypeVar("T")


class Asking:
    """One client's way to the brokers. ``error``: what became of the last request."""

    def __init__(self, clients: Clients, chance: Random) -> None:
        self._clients = clients
        self._chance = chance
        self._machine: BrokerMachine = clients.some_broker(chance)
        self.error: Exception | None = None

    async def ask(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T | None:
        """None where there was no answer, or an error."""
        self.error = None
        try:
            return await self._machine.ask(work)
        except (FencelogError, Unreached, Unanswered) as error:
            self.error = error
            if isinstance(error, FencelogError):
                self._clients.logs[0].counts[f"admin: {error.code.slug}"] += 1
            self._machine = self._clients.directed(self._chance, error)
            await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))
            return None

    def has(self, *codes: ErrorCode) -> bool:
        """Tell whether the last request ended with one of these."""
        return isinstance(self.error, FencelogError) and self.error.code in codes

    def wander(self) -> None:
        self._machine = self._clients.some_broker(self._chance)

    def stray(self, log: LogHistory) -> bool:
        """Go to an owner that was replaced and does not know it yet. False: there is none."""
        return self._go(self._clients.previous_owner(log))

    def follow(self, log: LogHistory) -> bool:
        """Go to the newest owner. False: it has not opened the log yet."""
        return self._go(self._clients.newest_owner(log))

    def _go(self, machine: BrokerMachine | None) -> bool:
        self._machine = machine or self._machine
        return machine is not None
