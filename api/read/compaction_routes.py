"""The endpoints that request a compaction and show its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.targets import Target
from fencelog.api.routing.owner_proxy import OwnerProxy

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

MAX_REQUEST_BYTES = 1024
"""The limit of a body, which has no content."""


class CompactionState(msgspec.Struct):
    """The state of a partition's compacted view: what it holds, below ``end_offset``."""

    partition: int
    state: Literal["none", "waiting", "running", "failed", "ready"]
    end_offset: int
    messages: int
    bytes: int
    created_us: int | None
    error: str | None


class Compactions:
    """The endpoints of compaction."""

    def __init__(self, broker: Broker, ownership: OwnerProxy, bodies: BodyReader) -> None:
        self._broker = broker
        self._ownership = ownership
        self._bodies = bodies

    async def compact(self, exchange: Exchange, target: Target) -> None:
        """Answer 202: the partition is compacted next, whatever its policy says. The request may be
        repeated."""
        exchange.query(frozenset())
        await self._bodies.read(exchange, MAX_REQUEST_BYTES)

        async def local(log: PartitionLog) -> None:
            self._broker.compaction.ask(log)
            await self._answer(exchange, 202, log)

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def get(self, exchange: Exchange, target: Target) -> None:
        """Answer with the state of the partition's compacted view."""
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            await self._answer(exchange, 200, log)

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def _answer(self, exchange: Exchange, status: int, log: PartitionLog) -> None:
        state = log.compaction.status()
        if state["state"] != "running" and self._broker.compaction.is_asked(log):
            state["state"] = "waiting"
        body = msgspec.json.encode(CompactionState(log.partition, **state))
        await exchange.respond(status, JSON, body)
