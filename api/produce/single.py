"""The endpoint that appends one message: ``POST …/messages``, the body verbatim. This is the
hottest path of the service.

The message's metadata is in headers: ``Fencelog-Key``, ``Fencelog-Event-Time`` (µs) and
``Fencelog-Header-NAME``, whose bytes are taken verbatim; ``?key=`` takes, percent-encoded, a key
that no header can carry, and ``?delay_ms=`` has the message delivered later. Many requests that
wait for the same partition become one entry in the broker; here each costs a scan of its headers
and one future, no model and no task.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.request_ids import current_contexts, note_acknowledged
from fencelog.api.http.targets import Target
from fencelog.api.produce.append_headers import (
    appended_status,
    check_partition_is_certain,
    number_or_null,
    routed_query,
)
from fencelog.api.produce.once import Once
from fencelog.api.produce.post import Post, decode_post, encode_post, read_post
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.routing.partitioner import RoundRobin, named_partition, partition_of_key
from fencelog.broker.append.conditions import AppendFuture, AppendResult
from fencelog.broker.append.once import is_routed_by_key, place_of
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

_log = logging.getLogger(__name__)


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
        self.now_us = broker.host.now_us
        self._reply_time = broker.metrics.reply_time

    async def post(self, exchange: Exchange, target: Target) -> None:
        """Answer 201 with partition, offset and publish time once the message is durable; 200 if an
        earlier request had written it, which this one repeats.

        Raises FencelogError; only after APPEND_UNKNOWN the message may be in the log all the same.
        """
        started_us = self.now_us()
        post = read_post(exchange.headers, exchange.scope["query_string"], target.topic)
        body = await self._bodies.read(exchange, MAX_MESSAGE_BYTES)
        topic = await self._broker.topic(post.topic)
        partition = self._partition(post, topic.config.partitions)
        conditions = post.conditions_of(body)

        async def answer(appended: AppendResult) -> None:
            note_acknowledged(appended.acknowledged_us)
            status, headers = appended_status(appended.duplicate)
            await exchange.respond(status, JSON, receipt(appended), headers)
            if not appended.duplicate:
                self.appended_now(len(body), started_us, appended)

        if post.partition is None and is_routed_by_key(conditions):
            place = place_of(conditions, post.key)
            routed = await self._once.route(topic, conditions, place)
            if isinstance(routed, AppendResult):
                await answer(routed)
                return
            partition, conditions = routed

        async def append(log: PartitionLog) -> None:
            await self._once.check(post.topic, conditions)
            message = post.message(body, self._broker.host)
            future = log.append_message(message, conditions)
            log.follow(future, current_contexts())
            await answer(await future)

        raw_query: bytes = exchange.scope["query_string"]
        if post.partition is None:
            raw_query += (b"&" if raw_query else b"") + routed_query(partition, conditions)
        await self._ownership.serve(
            exchange, post.topic, partition, append, query=raw_query, body=body
        )

    def append_now(
        self,
        post: Post,
        body: bytes,
        *,
        may_forward: bool = True,
        contexts: Contexts = NO_CONTEXTS,
    ) -> AppendFuture | None:
        """Append at once, if the partition is open here or at a broker that is known; None: the
        request has to go the ordinary way, as after an error that excludes an effect."""
        topic = self._broker.known(post.topic)
        is_conditional = post.conditions is not None
        is_keyed = is_conditional and is_routed_by_key(post.conditions)
        if topic is None or (is_keyed and (topic.previous_counts or post.partition is not None)):
            return None
        try:
            partition = self._partition(post, topic.config.partitions)
        except FencelogError:
            return None
        log = self._broker.open_log(post.topic, partition)
        if log is None:
            # Where an idempotency key belongs is for the owner to check: that takes an exchange.
            if may_forward and not is_keyed:
                future = self.append_elsewhere(post, partition, body, contexts)
                if future is not None:
                    return future
            if post.partition is None and post.key is None and not is_keyed:
                self._round_robin.take_back(post.topic)
            return None
        message = post.message(body, self._broker.host)
        conditions = post.conditions_of(body) if is_conditional else None
        if conditions is not None and is_keyed:
            conditions = conditions._replace(routed_by=topic.config.partitions)
        future = log.append_message(message, conditions)
        if contexts:
            log.follow(future, contexts)
        return future

    def append_elsewhere(
        self, post: Post, partition: int, body: bytes, contexts: Contexts = NO_CONTEXTS
    ) -> AppendFuture | None:
        """Append at once through the other broker that owns the partition; None: there is none, as
        far as is known."""
        return self._ownership.append_elsewhere(
            post.topic, partition, partial(encode_post, post, partition, body, contexts)
        )

    def append_for_peer(self, frame: bytes) -> AppendFuture:
        """Append for another broker, if the partition is open here. Raises FencelogError: NOT_OWNER
        (nothing was done); ProtocolError."""
        post, partition, body, contexts = decode_post(frame)
        log = self._broker.open_log(post.topic, partition)
        if log is None:
            raise FencelogError(
                ErrorCode.NOT_OWNER, f"partition {partition} of {post.topic} is not open here"
            )
        started_us = self.now_us()
        message = post.message(body, self._broker.host)
        future = log.append_message(message, post.conditions_of(body))
        if contexts:
            log.follow(future, contexts)

        def count(future: AppendFuture) -> None:
            error = None if future.cancelled() else future.exception()
            if future.cancelled() or error is not None:
                _log_failure(contexts, error)
                return
            if not future.result().duplicate:
                self.appended_now(len(body), started_us, future.result())

        future.add_done_callback(count)
        return future

    def appended_now(self, body_bytes: int, started_us: int, appended: AppendResult) -> None:
        """Count an append that this broker has done since then, and answers now."""
        now_us = self.now_us()
        self._metrics.appended(1, body_bytes, now_us - started_us)
        if appended.acknowledged_us:
            self._reply_time.observe_us(now_us - appended.acknowledged_us)

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
        if partitions == 1:
            return 0
        if is_routed_by_key(post.conditions):
            return place_of(post.conditions, None) % partitions
        return self._round_robin.next(post.topic, partitions)


def _log_failure(contexts: Contexts, error: BaseException | None) -> None:
    """Log that an append for another broker has failed, if its request can be followed."""
    for context in contexts:
        fields = {"request_id": context.request_id}
        _log.info("an append for another broker has failed: %s", error, extra=fields)


def receipt(appended: AppendResult) -> bytes:
    """Return the body of the answer: an ``AppendedMessage``."""
    if not appended.duplicate:
        return b'{"partition":%d,"offset":%d,"publish_time":%d}\n' % (
            appended.partition,
            appended.offset,
            appended.publish_time_us,
        )
    return b'{"partition":%d,"offset":%b,"publish_time":%b}\n' % (
        appended.partition,
        number_or_null(appended.offset),
        number_or_null(appended.publish_time_us),
    )
