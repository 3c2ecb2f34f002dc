"""Where a request for a partition is served: here if this broker owns it, else by its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from fencelog.api.asgi import Exchange
from fencelog.api.forward import FORWARDED, Forwarder, OwnerUnreachable
from fencelog.api.waits import Waits
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition_log import PartitionLog

T = TypeVar("T")

ATTEMPTS = 4
"""Owners change while a request is under way: here, there, after a takeover, and once more."""

SETTLE_S = 0.05
"""Between a "not me" from the owner that metadata names and the next look at metadata."""


class Ownership:
    """Finds the owner of a partition for a request and has it served there."""

    def __init__(self, broker: Broker, forwarder: Forwarder, waits: Waits) -> None:
        self._broker = broker
        self._forwarder = forwarder
        self._waits = waits

    async def serve(
        self,
        exchange: Exchange,
        topic: TopicName,
        partition: int,
        local: Callable[[PartitionLog], Awaitable[None]],
        *,
        query: bytes | None = None,
        body: bytes = b"",
    ) -> None:
        """Answer through ``local`` with this broker's log, or pass the request on to the owner.

        ``query`` and ``body`` are what is passed on (default: the request's own query). Only
        errors that exclude an effect lead to another attempt. Raises FencelogError.
        """
        passed_query = exchange.scope["query_string"] if query is None else query

        async def remote(url: str) -> None:
            if exchange.method == "POST":
                await self._forwarder.relay(exchange, url, passed_query, body)
            else:
                relay = self._forwarder.relay(exchange, url, passed_query, body)
                await self._waits.run(exchange, relay)

        await self.at_owner(exchange, topic, partition, local, remote)

    async def at_owner(
        self,
        exchange: Exchange | None,
        topic: TopicName,
        partition: int,
        local: Callable[[PartitionLog], Awaitable[T]],
        remote: Callable[[str], Awaitable[T]],
    ) -> T:
        """The result of ``local(log)`` or of ``remote(url)``, whichever is the owner's.

        Raises what they raise; NO_OWNER when no owner could be found; NOT_OWNER for an exchange
        that was forwarded here already, or whose answer has begun (None: for no exchange).
        """
        for _ in range(ATTEMPTS):
            try:
                return await local(await self._broker.partition(topic, partition))
            except FencelogError as error:
                if error.code is not ErrorCode.NOT_OWNER or not _is_movable(exchange):
                    raise
                url = owner_url(error)
            if url is not None:
                try:
                    return await remote(url)
                except OwnerUnreachable:
                    await self._broker.report_dead_owner(topic, partition, url)
                    continue
                except FencelogError as error:
                    if error.code is not ErrorCode.NOT_OWNER:
                        raise
            await asyncio.sleep(SETTLE_S)
        raise FencelogError(
            ErrorCode.NO_OWNER, f"partition {partition} of {topic} is changing its owner"
        )


def _is_movable(exchange: Exchange | None) -> bool:
    if exchange is None:
        return True
    return not exchange.started and exchange.header(FORWARDED) is None


def owner_url(error: FencelogError) -> str | None:
    """The URL that a NOT_OWNER names, if it knows one."""
    url = getattr(error, "url", None) or error.extra.get("url")
    return None if url is None else str(url)
