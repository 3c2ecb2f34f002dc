"""A reader that has ranges from owners, as tables and streams do: everything, from an offset on,
the end alone, or where the ledger of a range is by now; and offsets by time besides."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.broker.broker import Broker
from fencelog.ledgers.errors import FencelogError
from tests.sim.oracle.log_history import LogHistory
from tests.sim.plan.topic_plan import DirectPlan
from tests.sim.topics.brokers import TOPIC, Unanswered, Unreached
from tests.sim.topics.clients import Clients
from tests.sim.topics.direct.ranges import ENDS_ONLY, EVERYTHING, Asked, read_directly
from tests.sim.topics.direct.route import RangeRoute
from tests.sim.topics.reads import look_up

ALL, ENDS, LEDGERS = 0.2, 0.3, 0.6
"""The shares of requests for everything, for the end alone and for a ledger, each with those before
it: the rest begins at some offset."""

NEWEST = 5
"""So many of the ledgers are asked for: earlier ones may be trimmed."""

TASKS = 0.7
"""The share of requests for a ledger that are confirmed even if the reader asks for no more."""

EXACT = (0, 0, -1, 1, 1_000)
"""The distances of a time that is looked up from that of a message, in µs."""


def draw_asked(log: LogHistory, plan: DirectPlan, chance: Random) -> Asked:
    """Return what a reader asks next of this log."""
    confirmed, what = chance.random() < plan.confirmed, chance.random()
    offset = chance.randint(log.start_offset, max(log.start_offset, log.known_end))
    if what < ALL:
        return Asked(confirmed=confirmed) if confirmed else EVERYTHING
    if what < ENDS:
        return Asked(ENDS_ONLY, confirmed)
    if what < LEDGERS and log.listed:
        ledger_id, first = chance.choice(sorted(log.listed)[-NEWEST:]), max(0, offset - 1)
        confirmed = confirmed or chance.random() < TASKS
        return Asked(chance.choice((0, first)), confirmed, refresh=ledger_id)
    return Asked(offset, confirmed)


def draw_time(log: LogHistory, chance: Random) -> int:
    """Return a time to look up in this log: that of some message, or one close by."""
    times = [*log.times.values()] or [0]
    return chance.choice(times) + chance.choice(EXACT)


class DirectReader:
    """One reader of the one partition."""

    def __init__(self, plan: DirectPlan, clients: Clients, route: RangeRoute | None) -> None:
        """``route``: that of the service, where it has to go through it."""
        self._route = route if plan.over_http else None
        self._plan = plan
        self._clients = clients
        self._chance = clients.chance(plan.machine)

    async def run(self) -> None:
        clients, chance, plan = self._clients, self._chance, self._plan
        log, machine = clients.logs[0], clients.some_broker(chance)
        while not clients.is_over.is_set():
            await asyncio.sleep(chance.uniform(0, plan.pause_ms / 1000))
            stray = clients.previous_owner(log) if chance.random() < plan.strays else None
            log.counts["ranges asked of previous owners"] += stray is not None
            if self._route is not None:
                asked = draw_asked(log, plan, chance)
                if not await self._route.ask((stray or machine).name, asked):
                    machine = clients.some_broker(chance)
                continue
            if chance.random() < plan.times:
                work = partial(_looked_up, log, draw_time(log, chance))
            else:
                work = partial(_read, log, draw_asked(log, plan, chance))
            try:
                await (stray or machine).ask(work)
            except (FencelogError, Unreached, Unanswered) as error:
                machine = clients.directed(chance, error)


async def _read(log: LogHistory, asked: Asked, broker: Broker) -> None:
    await read_directly(log, await broker.partition(TOPIC, log.partition), asked)


async def _looked_up(log: LogHistory, time_us: int, broker: Broker) -> None:
    await look_up(log, await broker.partition(TOPIC, log.partition), time_us)
