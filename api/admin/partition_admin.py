"""Requests about one partition's log, carried out by its owner: trim, terminate, internals.

Each may be sent to any broker, and each may be repeated: a log that is trimmed or terminated
already stays so. A request whose answer was lost may have been carried out: METADATA_UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.problems import partly_done
from fencelog.api.http.targets import PREFIX, Target
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.requests import Offset, read_body
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

MAX_REQUEST_BYTES = 1024
"""The limit of a body, which is ``{"before": OFFSET}``, with some space for blanks."""

_UNKNOWN = ErrorCode.METADATA_UNKNOWN


class TrimRequest(Struct, forbid_unknown_fields=True):
    before: Offset


class TrimAnswer(Struct):
    """The place where the log begins now. ``held_back``: it is lower than requested."""

    partition: int
    earliest_offset: int
    held_back: bool


class LogEnd(Struct):
    """The end of a partition that is terminated."""

    partition: int
    end_offset: int


class TopicEnds(Struct):
    """The ends of all partitions of a topic that is terminated."""

    partitions: list[LogEnd]


class PartitionAdmin:
    """The endpoints that trim, terminate and describe partitions."""

    def __init__(
        self, broker: Broker, ownership: OwnerProxy, forwarder: Forwarder, bodies: BodyReader
    ) -> None:
        self._broker = broker
        self._ownership = ownership
        self._forwarder = forwarder
        self._bodies = bodies

    async def trim(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 once nothing below ``before`` is readable any more; messages that
        subscriptions have not acknowledged may stay. Raises OFFSET_BEYOND_TAIL, METADATA_UNKNOWN,
        …."""
        exchange.query(frozenset())
        body = await self._bodies.read(exchange, MAX_REQUEST_BYTES)
        before = read_body(exchange, body, TrimRequest).before

        async def trim(log: PartitionLog) -> bytes:
            trimmed = asdict(await log.retention.trim(before))
            return msgspec.json.encode(TrimAnswer(log.partition, **trimmed))

        answer = await self._at_owner(exchange, target, target.partition, trim, body)
        await exchange.respond(200, JSON, answer)

    async def terminate(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with the end of the log once it is durable. Raises METADATA_UNKNOWN, …."""
        await self._nothing_asked(exchange)
        answer = await self._terminate(exchange, target, target.partition)
        await exchange.respond(200, JSON, answer)

    async def terminate_all(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 once every partition is terminated. METADATA_UNKNOWN means that some may
        be."""
        await self._nothing_asked(exchange)
        info = await self._broker.topic(target.topic)
        ends: list[LogEnd] = []
        for partition in range(info.config.partitions):
            try:
                answer = await self._terminate(exchange, target, partition)
            except FencelogError as error:
                if not ends:
                    raise
                what = f"{len(ends)} of {info.config.partitions} partitions are terminated"
                raise partly_done(error, what) from error
            ends.append(msgspec.json.decode(answer, type=LogEnd))
        await exchange.respond(200, JSON, msgspec.json.encode(TopicEnds(ends)))

    async def internals(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with the internal state of the partition's log."""
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            info = await self._broker.topic(target.topic)
            found = log.internals()
            names = await self._names(info.topic_id)
            found["subscriptions"] = {
                names.get(id_, id_): stats for id_, stats in found["subscriptions"].items()
            }
            answer = {"partition": log.partition, "topic_id": info.topic_id, **found}
            await exchange.respond(200, JSON, msgspec.json.encode(answer))

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def _names(self, topic_id: str) -> dict[str, str]:
        found = await self._broker.subscriptions.list(topic_id)
        return {each.info.subscription_id: each.info.name for each in found}

    async def _nothing_asked(self, exchange: Exchange) -> None:
        exchange.query(frozenset())
        await self._bodies.read(exchange, MAX_REQUEST_BYTES)

    async def _terminate(self, exchange: Exchange, target: Target, partition: int) -> bytes:
        async def terminate(log: PartitionLog) -> bytes:
            await log.terminate()
            return msgspec.json.encode(LogEnd(log.partition, log.tail_offset))

        return await self._at_owner(exchange, target, partition, terminate, b"")

    async def _at_owner(
        self,
        exchange: Exchange,
        target: Target,
        partition: int,
        local: Callable[[PartitionLog], Awaitable[bytes]],
        body: bytes,
    ) -> bytes:
        verb = exchange.path.rpartition(":")[2]
        path = f"{PREFIX}{target.topic}/partitions/{partition}:{verb}"

        async def remote(url: str) -> bytes:
            return await self._forwarder.ask("POST", url, path, b"", body, lost=_UNKNOWN)

        try:
            return await self._ownership.at_owner(exchange, target.topic, partition, local, remote)
        except FencelogError as error:
            if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.REQUEST_TIMEOUT):
                raise FencelogError(_UNKNOWN, error.detail) from error
            raise
