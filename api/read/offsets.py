"""The positions of partitions: where they begin and end, and which offset belongs to a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fencelog.api.http.asgi import JSON, Exchange, parse_number
from fencelog.api.http.read_request import MAX_TIME_US
from fencelog.api.http.targets import PREFIX, Target
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.owners import together
from fencelog.ledgers.errors import ErrorCode

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

PARAMETERS = frozenset(("time",))

_AT_ONCE = 16
"""The partitions asked at the same time: each may take a few reads from bookies."""


class PartitionPositions(Struct, kw_only=True):
    """The ends of a partition, and the ``offset`` of a ``time`` if one is given."""

    partition: int
    time: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    earliest_offset: int
    tail_offset: int


class TopicPositions(Struct):
    """The positions of all partitions, in their order."""

    offsets: list[PartitionPositions]


class OffsetRoutes:
    """The endpoints of positions."""

    def __init__(self, broker: Broker, ownership: OwnerProxy, forwarder: Forwarder) -> None:
        self._broker = broker
        self._ownership = ownership
        self._forwarder = forwarder

    async def get(self, exchange: Exchange, target: Target) -> None:
        """Answer with the positions of one partition. Raises FencelogError: BAD_REQUEST,
        TOPIC_NOT_FOUND, NOT_FOUND, …."""
        time_us = _time(exchange)

        async def local(log: PartitionLog) -> None:
            body = msgspec.json.encode(await _offsets(log, time_us))
            await exchange.respond(200, JSON, body)

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def get_all(self, exchange: Exchange, target: Target) -> None:
        """Answer with the positions of all partitions of a topic, in their order, each by its
        owner."""
        time_us = _time(exchange)
        info = await self._broker.topic(target.topic)
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def ask(partition: int) -> PartitionPositions:
            async with at_once:
                return await self._ask(exchange, target, partition, time_us)

        done, errors = await together({n: ask(n) for n in range(info.config.partitions)})
        for error in errors.values():
            raise error
        await exchange.respond(200, JSON, msgspec.json.encode(TopicPositions(list(done.values()))))

    async def _ask(
        self, exchange: Exchange, target: Target, partition: int, time_us: int | None
    ) -> PartitionPositions:
        path = f"{PREFIX}{target.topic}/partitions/{partition}/offsets"
        query = b"" if time_us is None else b"time=%d" % time_us

        async def local(log: PartitionLog) -> PartitionPositions:
            return await _offsets(log, time_us)

        async def remote(url: str) -> PartitionPositions:
            lost = ErrorCode.READ_UNKNOWN
            answer = await self._forwarder.ask("GET", url, path, query, b"", lost=lost)
            return msgspec.json.decode(answer, type=PartitionPositions)

        return await self._ownership.at_owner(exchange, target.topic, partition, local, remote)


def _time(exchange: Exchange) -> int | None:
    query = exchange.query(PARAMETERS)
    if "time" not in query:
        return None
    return parse_number("time", query["time"], low=0, high=MAX_TIME_US)


async def _offsets(log: PartitionLog, time_us: int | None) -> PartitionPositions:
    """Return the positions of one moment: an ``offset`` below the tail is that of a message found,
    also if others were appended during the search."""
    earliest, tail = log.earliest_offset, log.tail_offset
    offset = UNSET if time_us is None else min(await log.offset_for_time(time_us), tail)
    return PartitionPositions(
        partition=log.partition,
        time=UNSET if time_us is None else time_us,
        offset=offset,
        earliest_offset=earliest,
        tail_offset=tail,
    )
