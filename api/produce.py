"""Appending one message: ``POST …/messages``, the body verbatim. The hottest path of the service.

Its metadata travels in headers: ``Fencelog-Key``, ``Fencelog-Event-Time`` (µs) and
``Fencelog-Header-NAME``, whose bytes are taken as they come; ``?key=`` takes, percent-encoded, a
key that no header can carry. Many requests that wait for the same partition become one entry in
the broker; here each costs a scan of its headers and one future, no model and no task.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fencelog.api.asgi import JSON, Exchange
from fencelog.api.bodies import BodyReader
from fencelog.api.message_headers import read_metadata
from fencelog.api.metrics import ApiMetrics
from fencelog.api.ownership import Ownership
from fencelog.api.routing import Turns, named_partition, partition_of_key
from fencelog.api.targets import Target
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES
from fencelog.ledgers.record_batch import Message

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition_log import PartitionLog

PARAMETERS = frozenset(("partition", "key"))


class Produce:
    """The endpoint for single messages."""

    def __init__(
        self,
        broker: Broker,
        ownership: Ownership,
        turns: Turns,
        bodies: BodyReader,
        metrics: ApiMetrics,
    ) -> None:
        self._broker = broker
        self._ownership = ownership
        self._turns = turns
        self._bodies = bodies
        self._metrics = metrics
        # Kept, for asking asyncio for the loop is a system call (getpid) on every request.
        self._loop = asyncio.get_running_loop()

    async def post(self, exchange: Exchange, target: Target) -> None:
        """201 with partition, offset and publish time once the message is durable.

        Raises FencelogError; of APPEND_UNKNOWN alone the message may be in the log all the same.
        """
        started = self._loop.time()
        query = exchange.query(PARAMETERS)
        key, event_time, headers = read_metadata(exchange.headers)
        if "key" in query:
            if key is not None:
                raise FencelogError(
                    ErrorCode.BAD_REQUEST, "both Fencelog-Key and ?key= are given", parameter="key"
                )
            key = query["key"].encode("utf-8", "surrogateescape")
        body = await self._bodies.read(exchange, MAX_MESSAGE_BYTES)
        topic = target.topic
        partitions = (await self._broker.topic(topic)).config.partitions
        if "partition" in query:
            partition = named_partition(query["partition"], partitions, topic)
        elif key is not None:
            partition = partition_of_key(key, partitions)
        else:
            partition = self._turns.next(topic, partitions)
        message = Message(body, key, event_time, headers)

        async def append(log: PartitionLog) -> None:
            appended = await log.append_message(message)
            await exchange.respond(
                201,
                JSON,
                b'{"partition":%d,"offset":%d,"publish_time":%d}'
                % (partition, appended.offset, appended.publish_time_us),
            )
            self._metrics.appended(1, len(body), self._loop.time() - started)

        raw_query: bytes = exchange.scope["query_string"]
        if "partition" not in query:
            raw_query += b"%bpartition=%d" % (b"&" if raw_query else b"", partition)
        await self._ownership.serve(exchange, topic, partition, append, query=raw_query, body=body)
