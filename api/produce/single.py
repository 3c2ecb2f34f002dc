"""The endpoint that appends one message: ``POST …/messages``, the body verbatim. This is the
hottest path of the service.

The message's metadata is in headers: ``Fencelog-Key``, ``Fencelog-Event-Time`` (µs) and
``Fencelog-Header-NAME``, whose bytes are taken verbatim; ``?key=`` takes, percent-encoded, a key
that no header can carry, and ``?delay_ms=`` has the message delivered later. Many requests that
wait for the same partition become one entry in the broker; here each costs a scan of its headers
and one future, no model and no task.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from fencelog.api.http.asgi import JSON, Exchange, RawHeaders, parse_number, parse_query
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.message_headers import (
    METADATA_HEADERS,
    deliver_at_header,
    metadata_of,
    scan_headers,
)
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.targets import Target
from fencelog.api.produce.append_headers import (
    CONDITION_HEADERS,
    ROUTED_BY,
    appended_status,
    check_partition_is_certain,
    conditions_of,
    number_or_null,
    routed_by,
    routed_query,
)
from fencelog.api.produce.once import Once
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.routing.partitioner import RoundRobin, named_partition, partition_of_key
from fencelog.broker.append.conditions import AppendConditions, AppendFuture, AppendResult
from fencelog.broker.append.once import is_routed_by_key, place_of
from fencelog.broker.limits import MAX_DELIVERY_DELAY_MS
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES
from fencelog.ledgers.record_batch import Message, message_digest

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

PARAMETERS = frozenset(("partition", "key", "delay_ms", ROUTED_BY))

_SCANNED = METADATA_HEADERS | CONDITION_HEADERS


class AppendedMessage(Struct):
    """The place of a message that is durable; null where a duplicate's is not remembered."""

    partition: int
    offset: int | None
    publish_time: int | None


class Produce:
    """The endpoint for single messages."""

    def __init__(
        self,
        broker: Broker,
        ownership: OwnerProxy,
        round_robin: RoundRobin,
        once: Once,
        bodies: BodyReader,
        metrics: ApiMetrics,
    ) -> None:
        self._broker = broker
        self._ownership = ownership
        self._round_robin = round_robin
        self._once = once
        self._bodies = bodies
        self._metrics = metrics
        # Kept, for asking asyncio for the loop is a system call (getpid) on every request.
        self._loop = asyncio.get_running_loop()

    async def post(self, exchange: Exchange, target: Target) -> None:
        """Answer 201 with partition, offset and publish time once the message is durable; 200 if an
        earlier request had written it, which this one repeats.

        Raises FencelogError; only after APPEND_UNKNOWN the message may be in the log all the same.
        """
        started = self._loop.time()
        post = read_post(exchange.headers, exchange.scope["query_string"], target.topic)
        body = await self._bodies.read(exchange, MAX_MESSAGE_BYTES)
        topic = await self._broker.topic(post.topic)
        partition = self._partition(post, topic.config.partitions)
        conditions = post.conditions_of(body)

        async def answer(appended: AppendResult) -> None:
            status, headers = appended_status(appended.duplicate)
            await exchange.respond(status, JSON, receipt(appended), headers)
            if not appended.duplicate:
                self._metrics.appended(1, len(body), self._loop.time() - started)

        if post.partition is None and is_routed_by_key(conditions):
            routed = await self._once.route(topic, conditions, post.key)
            if isinstance(routed, AppendResult):
                await answer(routed)
                return
            partition, conditions = routed

        async def append(log: PartitionLog) -> None:
            self._once.check(post.topic, conditions)
            message = post.message(body, self._broker.host)
            await answer(await log.append_message(message, conditions))

        raw_query: bytes = exchange.scope["query_string"]
        if post.partition is None:
            raw_query += (b"&" if raw_query else b"") + routed_query(partition, conditions)
        await self._ownership.serve(
            exchange, post.topic, partition, append, query=raw_query, body=body
        )

    def append_now(self, post: Post, body: bytes) -> AppendFuture | None:
        """Append at once, if the partition is open here; None: the request has to go the ordinary
        way."""
        topic = self._broker.known(post.topic)
        conditions = post.conditions
        is_keyed = is_routed_by_key(conditions)
        if topic is None or (is_keyed and (topic.former or post.partition is not None)):
            return None
        try:
            partition = self._partition(post, topic.config.partitions)
        except FencelogError:
            return None
        log = self._broker.open_log(post.topic, partition)
        if log is None:
            if post.partition is None and post.key is None and not is_keyed:
                self._round_robin.take_back(post.topic)
            return None
        message = post.message(body, self._broker.host)
        conditions = post.conditions_of(body)
        if conditions is not None and is_keyed:
            conditions = conditions._replace(routed_by=topic.config.partitions)
        return log.append_message(message, conditions)

    def appended_now(self, body: bytes, seconds: float) -> None:
        """Count an append of ``append_now``."""
        self._metrics.appended(1, len(body), seconds)

    def _partition(self, post: Post, partitions: int) -> int:
        if post.conditions is not None:
            check_partition_is_certain(
                post.conditions,
                partition=post.partition is not None,
                key=post.key is not None,
                partitions=partitions,
            )
        if post.partition is not None:
            return named_partition(post.partition, partitions, post.topic)
        if post.key is not None:
            return partition_of_key(post.key, partitions)
        if is_routed_by_key(post.conditions):
            return place_of(post.conditions, None) % partitions
        return self._round_robin.next(post.topic, partitions)


@dataclass(slots=True)
class Post:
    """The properties of a message in the head of its single post."""

    topic: TopicName
    partition: str | None
    key: bytes | None
    event_time: int | None
    headers: tuple[tuple[str, bytes], ...]
    delay_ms: int | None
    conditions: AppendConditions | None

    def message(self, body: bytes, host: Host) -> Message:
        """Return the message as it is appended now. Its delay counts from here, by the host's
        clock."""
        headers = self.headers
        if self.delay_ms is not None:
            due_us = host.now_us() + self.delay_ms * 1000
            headers = (*headers, deliver_at_header(b"%d" % due_us))
        return Message(body, self.key, self.event_time, headers)

    def conditions_of(self, body: bytes) -> AppendConditions | None:
        """Return the conditions of an append of this body. A delay counts as it was
        given: a repetition has another due time."""
        if self.conditions is None or self.conditions.run is None:
            return self.conditions
        headers = self.headers
        if self.delay_ms is not None:
            headers = (*headers, ("delay_ms", b"%d" % self.delay_ms))
        message = Message(body, self.key, self.event_time, headers)
        return self.conditions.with_contents(message_digest(message))


def read_post(headers: RawHeaders, raw_query: bytes, topic: TopicName) -> Post:
    """Parse the head of a single post. Raises FencelogError(BAD_REQUEST)."""
    query = parse_query(raw_query, PARAMETERS) if raw_query else {}
    given, others = scan_headers(headers, _SCANNED)
    key, event_time, message_headers = metadata_of(given, others)
    if "key" in query:
        if key is not None:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, "both Fencelog-Key and ?key= are given", parameter="key"
            )
        key = query["key"].encode("utf-8", "surrogateescape")
    delay_ms = None
    if "delay_ms" in query:
        delay_ms = parse_number("delay_ms", query["delay_ms"], low=0, high=MAX_DELIVERY_DELAY_MS)
    conditions = conditions_of(given)
    if conditions is not None and ROUTED_BY in query:
        conditions = conditions._replace(routed_by=routed_by(query))
    partition = query.get("partition")
    return Post(topic, partition, key, event_time, message_headers, delay_ms, conditions)


def receipt(appended: AppendResult) -> bytes:
    """Return the body of the answer: an ``AppendedMessage``."""
    return b'{"partition":%d,"offset":%b,"publish_time":%b}' % (
        appended.partition,
        number_or_null(appended.offset),
        number_or_null(appended.publish_time_us),
    )
