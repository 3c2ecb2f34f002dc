"""The views of a subscription: its metrics, and its messages as an event stream with leases.

An event stream is a pull that never ends: each message is leased when it is sent. It stops sending
when ``max_outstanding`` of the subscription are not acknowledged, and goes on as they are; the
client acknowledges with ``:ack``, to any broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from fencelog.api.http.asgi import EVENT_STREAM, Exchange, parse_number
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.read_request import value_form
from fencelog.api.http.sse import PING, PING_INTERVAL_MS
from fencelog.api.http.targets import Endpoint, Target
from fencelog.api.http.waits import Waits
from fencelog.api.subscriptions.lag_core import Lag, added_up, lag_of
from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners, all_or_problem, together
from fencelog.api.subscriptions.parts import chosen_partitions, find
from fencelog.api.subscriptions.pull import PullService
from fencelog.api.subscriptions.requests import Done, PullRequest
from fencelog.api.subscriptions.verbs import respond
from fencelog.broker.limits import MAX_LEASE_MS, MAX_READ_MESSAGES
from fencelog.broker.registry.subscription_config import check_consumer
from fencelog.ledgers.errors import ErrorCode

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

EVENT_PARAMETERS = frozenset(("partition", "consumer", "lease_ms", "as", "limit"))

STREAM_MESSAGES = 100
"""The messages leased for one piece of an event stream: a slow client must not let the leases of
many run out before it sees them."""

_HEADERS = (
    (b"content-type", EVENT_STREAM),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Stats(Struct, frozen=True):
    """The metrics: one element for each partition, as its owner knows it."""

    partitions: list[dict[str, Any]]


class SubscriptionViews:
    """The endpoints ``GET …/subscriptions/NAME/stats``, ``…/lag`` and ``…/events``."""

    def __init__(
        self,
        broker: Broker,
        owners: SubscriptionOwners,
        pull: PullService,
        waits: Waits,
        metrics: ApiMetrics,
    ) -> None:
        self._broker = broker
        self._owners = owners
        self._pull = pull
        self._waits = waits
        self._metrics = metrics

    async def stats(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"partitions": […]}``. Raises READ_UNKNOWN with the metrics of those
        partitions that could be asked."""
        asked = await find(self._broker, exchange, target)
        parts = {p: self._stats(asked, p) for p in chosen_partitions(exchange, asked)}
        done, errors = await together(parts)
        found = [stats for answer in done.values() for stats in answer.partitions]
        all_or_problem(done, errors, exchange.path, code=ErrorCode.READ_UNKNOWN, partitions=found)
        await respond(exchange, Stats(found))

    async def _stats(self, asked: Asked, partition: int) -> Stats:
        async def local(log: PartitionLog) -> Stats:
            stats = log.subscriptions.stats(asked.subscription.info.subscription_id)
            lag_bytes, oldest_us = 0, None
            if stats["backlog_messages"]:
                lag_bytes, oldest_us = log.backlog_of(stats["acked_to"])
            lag = {"backlog_bytes": lag_bytes, "oldest_us": oldest_us}
            return Stats([{"partition": partition, **stats, **lag}])

        endpoint = Endpoint.SUBSCRIPTION_STATS
        return await self._owners.ask(asked, partition, endpoint, Done(), local, Stats)

    async def lag(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with the lag of the last hour, that of all partitions added up. Raises
        READ_UNKNOWN if a partition could not be asked."""
        asked = await find(self._broker, exchange, target)
        parts = {p: self._lag(asked, p) for p in chosen_partitions(exchange, asked)}
        done, errors = await together(parts)
        all_or_problem(done, errors, exchange.path, code=ErrorCode.READ_UNKNOWN)
        await respond(exchange, added_up(list(done.values())))

    async def _lag(self, asked: Asked, partition: int) -> Lag:
        async def local(log: PartitionLog) -> Lag:
            subscription_id = asked.subscription.info.subscription_id
            return lag_of(self._broker.lag_history.of(subscription_id, partition))

        endpoint = Endpoint.SUBSCRIPTION_LAG
        return await self._owners.ask(asked, partition, endpoint, Done(), local, Lag)

    async def events(self, exchange: Exchange, target: Target) -> None:
        """Send messages as they come, each leased, until ``limit``, a problem, or the client's
        end."""
        query = exchange.query(EVENT_PARAMETERS)
        lease_ms = None
        if "lease_ms" in query:
            lease_ms = parse_number("lease_ms", query["lease_ms"], low=1, high=MAX_LEASE_MS)
        limit = None
        if "limit" in query:
            limit = parse_number("limit", query["limit"], low=1, high=MAX_READ_MESSAGES)
        request = PullRequest(
            max=STREAM_MESSAGES,
            wait=PING_INTERVAL_MS / 1000,
            lease_ms=lease_ms,
            consumer=check_consumer(query.get("consumer", "")),
            value_form=value_form(query.get("as", "text")),
        )
        asked = await find(self._broker, exchange, target)
        partitions = chosen_partitions(exchange, asked, EVENT_PARAMETERS)
        if exchange.method == "HEAD":
            await exchange.start(200, list(_HEADERS))
            await exchange.send_body(b"")
            return
        # The answer has begun when the first owner is asked, and others may be asked all the same.
        asked = Asked(asked.topic, asked.subscription)
        stream = self._stream(exchange, asked, partitions, request, limit)
        await self._waits.run(exchange, stream)

    async def _stream(
        self,
        exchange: Exchange,
        asked: Asked,
        partitions: Sequence[int],
        request: PullRequest,
        limit: int | None,
    ) -> None:
        at_once = msgspec.structs.replace(request, wait=0, max=_at_most(limit))
        messages = await self._pull.pull(asked, partitions, at_once)  # its problems have a status
        await exchange.start(200, list(_HEADERS))
        self._metrics.streams += 1
        try:
            while True:
                events = _events(messages) if messages else PING
                await exchange.send_body(events, more=True)
                self._metrics.read(len(messages), len(events))
                if limit is not None:
                    limit -= len(messages)
                    if limit == 0:
                        break
                part = msgspec.structs.replace(request, max=_at_most(limit))
                messages = await self._pull.pull(asked, partitions, part)
            await exchange.send_body(b"")
        finally:
            self._metrics.streams -= 1


def _at_most(limit: int | None) -> int:
    return STREAM_MESSAGES if limit is None else min(limit, STREAM_MESSAGES)


def _events(messages: Sequence[Raw]) -> bytes:
    return b"".join(b"event: message\ndata: %b\n\n" % message for message in messages)
