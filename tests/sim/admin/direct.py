"""A reader of a topic that is administered which has ranges from owners, and offsets by time: in
logs that are trimmed within a ledger, that have ended, and whose topic is deleted and made anew."""

from __future__ import annotations

import asyncio
from functools import partial

from fencelog.broker.broker import Broker
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.admin.clients import AdminClients
from tests.sim.admin.edge import Edge
from tests.sim.plan.topic_plan import DirectPlan
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.direct.ranges import Asked, read_directly
from tests.sim.topics.direct.reader import draw_asked, draw_time
from tests.sim.topics.reads import look_up

TOPICS = 0.15
"""The share of requests for the topic itself, as it is now."""


class AdminDirectReader:
    """One reader of any partition, of whichever incarnation there is. It asks by what it knows of
    the present one, and the answer is judged by the log of the one that gave it."""

    def __init__(self, plan: DirectPlan, clients: AdminClients) -> None:
        self._plan = plan
        self._clients = clients
        self._asking, self._chance = clients.asking(plan.machine)

    async def run(self) -> None:
        edge, chance, plan, asking = self._clients.edge, self._chance, self._plan, self._asking
        while not self._clients.is_over.is_set():
            await asyncio.sleep(chance.uniform(0, plan.pause_ms / 1000))
            logs = edge.incarnations.living_logs
            if not logs:
                continue
            if chance.random() < TOPICS:
                await asking.ask(partial(_found, edge))
                continue
            log = chance.choice(logs)
            if chance.random() < plan.strays:
                asking.stray(log)
            if chance.random() < plan.times:
                time_us = draw_time(log, chance)
                await asking.ask(partial(_looked_up, edge, log.partition, time_us))
            else:
                asked = draw_asked(log, plan, chance)
                await asking.ask(partial(_read, edge, log.partition, asked))


async def _found(edge: Edge, broker: Broker) -> None:
    """Ask which topic there is, as whoever plans a query does."""
    incarnations, told = edge.incarnations, None
    known = len(incarnations.states)
    try:
        async with broker.topics.latest():
            told = await broker.topics.get(TOPIC)
    except FencelogError as error:
        if error.code is not ErrorCode.TOPIC_NOT_FOUND:
            raise
    incarnations.check_confirmed(told, known)


async def _read(edge: Edge, partition: int, asked: Asked, broker: Broker) -> None:
    instance, log = await edge.open(broker, partition)
    await read_directly(log, instance, asked)
    log.counts["direct reads of an ended log"] += log.end is not None


async def _looked_up(edge: Edge, partition: int, time_us: int, broker: Broker) -> None:
    instance, log = await edge.open(broker, partition)
    trimmed, is_ended = log.start_offset, log.end is not None
    await look_up(log, instance, time_us)
    log.counts["times looked up in a trimmed log"] += bool(trimmed)
    log.counts["times looked up in an ended log"] += is_ended
