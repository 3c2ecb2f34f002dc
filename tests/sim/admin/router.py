"""A writer whose messages find their partitions by idempotency keys, and come again later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Any

from fencelog.broker.append.conditions import AppendResult
from fencelog.broker.append.once import place_of, route_once
from fencelog.broker.broker import Broker
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.entry_header import SequenceRange
from tests.sim.admin.asking import Asking
from tests.sim.admin.edge import Edge
from tests.sim.oracle.log_history import Sent
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.clients import RETRY_PAUSE_S

TRIES = 8
FINDS = 4
AGAIN = 0.5
"""The share of sends that repeat an earlier message."""
OVERTAKEN = 0.3
"""The share of routed appends that a broker passes on late: the client sends the message again, and
goes on, before they arrive."""


Append = Callable[[Broker], Coroutine[Any, Any, list[FencelogError | None]]]


class NotFound(Exception):
    """The owner of a previous partition did not tell."""


class Router:
    """One writer's messages. ``asking`` chooses the broker that routes a message: it may not have
    heard of the newest partitions."""

    def __init__(self, asking: Asking, edge: Edge, chance: Random) -> None:
        self._asking = asking
        self._edge = edge
        self._chance = chance
        self._earlier: list[Sent] = []
        self._overtaken: list[Append] = []

    async def write(self, new: Sent) -> None:
        """Append a message, or an earlier one again, until it is answered."""
        want = new
        if self._earlier and self._chance.random() < AGAIN:
            want = self._chance.choice(self._earlier)
        else:
            self._earlier.append(new)
        for _ in range(TRIES):
            self._asking.wander()
            if await self._try(want):
                break
            await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))
        if self._overtaken and self._chance.random() < AGAIN:
            late = self._overtaken.pop(self._chance.randrange(len(self._overtaken)))
            await self._asking.ask(late)

    async def _try(self, want: Sent) -> bool:
        topic = await self._asking.ask(_topic)
        if topic is None:
            return False
        find = partial(self._find, topic[0], want)
        try:
            place = place_of(want.conditions, want.key)
            routed = await route_once(topic[0], want.conditions, place, now_us=topic[1], find=find)
        except NotFound:
            return False
        if isinstance(routed, AppendResult):
            return True
        partition, conditions = routed
        sent = Sent(want.payloads, want.is_batch, 0, want.key, conditions)
        work = partial(self._edge.append, partition, [sent], only=topic[0].topic_id)
        if self._chance.random() < OVERTAKEN:
            self._overtaken.append(work)
            return False
        for _ in range(FINDS):
            errors = await self._asking.ask(work)
            if errors:
                return errors == [None]
        return False

    async def _find(
        self, topic: TopicInfo, want: Sent, partition: int, sequences: SequenceRange
    ) -> AppendResult | None:
        for _ in range(FINDS):
            found = await self._asking.ask(
                partial(self._edge.find_key, partition, want, sequences, topic)
            )
            if found is not None:
                return found[0]
        raise NotFound


async def _topic(broker: Broker) -> tuple[TopicInfo, int]:
    """The topic as this broker knows it, and its time."""
    return await broker.topic(TOPIC), broker.host.now_us()
