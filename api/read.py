"""Reading a partition: JSON, NDJSON, record batches, event streams, and single messages.

Reads have no state and no side effects: the position is the client's. Record batches pass through
as they were stored; every other form decodes them. All forms carry ``Next-Offset``,
``Tail-Offset`` and ``At-Tail``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencelog.api.asgi import BATCH, EVENT_STREAM, JSON, NDJSON, OCTETS, Buffer, Exchange
from fencelog.api.json_render import (
    ValueForm,
    encode_objects,
    json_answer,
    message_object,
    ndjson_answer,
)
from fencelog.api.message_headers import message_headers
from fencelog.api.metrics import ApiMetrics
from fencelog.api.ownership import Ownership
from fencelog.api.read_request import Place, ReadRequest, read_request
from fencelog.api.sse import PING, PING_INTERVAL_MS, control_event, message_events
from fencelog.api.targets import Target
from fencelog.api.waits import Waits
from fencelog.broker.stored import ReadResult
from fencelog.ledgers.batch_frames import frame_parts
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, decode_batch

if TYPE_CHECKING:
    from fencelog.broker.partition_log import PartitionLog

STREAM_MESSAGES = 1000
"""Messages of one piece of an event stream."""

_STREAM_HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


class Read:
    """The endpoints that read."""

    def __init__(self, ownership: Ownership, waits: Waits, metrics: ApiMetrics) -> None:
        self._ownership = ownership
        self._waits = waits
        self._metrics = metrics

    # -- many messages ---------------------------------------------------------------------------

    async def get(self, exchange: Exchange, target: Target) -> None:
        """Messages from a position on, in the form that Accept names; HEAD tells the position.

        Raises FencelogError: OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, TOPIC_NOT_FOUND, ….
        """
        request = read_request(exchange)

        async def local(log: PartitionLog) -> None:
            if exchange.method == "HEAD":
                await self._head(exchange, log, request)
            elif request.media_type == EVENT_STREAM:
                follow = self._follow(exchange, log, request, target)
                await self._waits.run(exchange, follow)
            elif request.wait_ms:
                answer = self._answer(exchange, log, request, target)
                await self._waits.run(exchange, answer)
            else:
                await self._answer(exchange, log, request, target)

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def _head(self, exchange: Exchange, log: PartitionLog, request: ReadRequest) -> None:
        earliest = b"%d" % log.earliest_offset
        headers = position_headers(start_offset(log, request), log.tail_offset)
        headers.append((b"earliest-offset", earliest))
        await exchange.respond(200, request.media_type, b"", headers)

    async def _answer(
        self, exchange: Exchange, log: PartitionLog, request: ReadRequest, target: Target
    ) -> None:
        start = start_offset(log, request)
        limit = request.limit or 1
        result = await log.read(
            start, max_messages=limit, max_bytes=request.max_bytes, wait_ms=request.wait_ms
        )
        if request.media_type == BATCH:
            await self._answer_batches(exchange, result)
            return
        objects, next_offset = message_objects(
            result, target.partition, start=start, limit=limit, form=request.value_form
        )
        if request.media_type == NDJSON:
            body = ndjson_answer(objects)
        else:
            body = json_answer(objects, next_offset=next_offset, tail_offset=result.tail_offset)
        headers = position_headers(next_offset, result.tail_offset)
        await exchange.respond(200, request.media_type, body, headers)
        self._metrics.read(len(objects), len(body))

    async def _answer_batches(self, exchange: Exchange, result: ReadResult) -> None:
        parts: list[Buffer] = []
        messages = 0
        for entry in result.entries:
            parts += frame_parts(entry.base_offset, entry.publish_time_us, entry.count, entry.batch)
            messages += entry.count
        headers = position_headers(result.next_offset, result.tail_offset)
        await exchange.respond_parts(200, BATCH, parts, headers)
        self._metrics.read(messages, sum(map(len, parts)))

    # -- event streams ---------------------------------------------------------------------------

    async def _follow(
        self, exchange: Exchange, log: PartitionLog, request: ReadRequest, target: Target
    ) -> None:
        """Events until ``limit`` messages were sent, the client goes, or a problem ends it."""
        offset = start_offset(log, request)
        await log.read(offset, max_messages=1, max_bytes=1)  # 410 and 416 before the status goes
        headers = position_headers(offset, log.tail_offset)
        await exchange.start(200, [(b"content-type", EVENT_STREAM), *_STREAM_HEADERS, *headers])
        self._metrics.streams += 1
        try:
            await self._send_events(exchange, log, request, target, offset)
        finally:
            self._metrics.streams -= 1

    async def _send_events(
        self,
        exchange: Exchange,
        log: PartitionLog,
        request: ReadRequest,
        target: Target,
        offset: int,
    ) -> None:
        remaining = request.limit
        tail = log.tail_offset
        await exchange.send_body(control_event(next_offset=offset, tail_offset=tail), more=True)
        while remaining is None or remaining > 0:
            count = STREAM_MESSAGES if remaining is None else min(remaining, STREAM_MESSAGES)
            result = await log.read(
                offset, max_messages=count, max_bytes=request.max_bytes, wait_ms=PING_INTERVAL_MS
            )
            objects, offset = message_objects(
                result, target.partition, start=offset, limit=count, form=request.value_form
            )
            if not objects:
                await exchange.send_body(PING, more=True)
                continue
            offsets = [shown["offset"] for shown in objects]
            events = message_events(offsets, encode_objects(objects))
            if offset >= result.tail_offset:
                events += control_event(next_offset=offset, tail_offset=result.tail_offset)
            await exchange.send_body(events, more=True)
            self._metrics.read(len(objects), len(events))
            remaining = None if remaining is None else remaining - len(objects)
        await exchange.send_body(b"")

    # -- one message -----------------------------------------------------------------------------

    async def get_one(self, exchange: Exchange, target: Target) -> None:
        """The bytes of one message, its metadata in headers.

        Raises FencelogError: OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, TOPIC_NOT_FOUND, ….
        """
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            result = await log.read(target.offset, max_messages=1, max_bytes=1)
            if not result.entries:
                raise beyond_tail(target, result.tail_offset)
            entry = result.entries[0]
            message = decode_stored(entry.batch)[target.offset - entry.base_offset]
            headers = [
                (b"fencelog-publish-time", b"%d" % entry.publish_time_us),
                *message_headers(message),
            ]
            await exchange.respond(200, OCTETS, message.value, headers)
            self._metrics.read(1, len(message.value))

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def get_segments(self, exchange: Exchange, target: Target) -> None:
        """The ledgers of a partition and the bookies that hold them, for readers of storage."""
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            await exchange.respond(200, JSON, encode_objects([await log.segments()])[0])

        await self._ownership.serve(exchange, target.topic, target.partition, local)


def start_offset(log: PartitionLog, request: ReadRequest) -> int:
    """The offset at which a read begins."""
    if request.start is Place.EARLIEST:
        return log.earliest_offset
    if request.start is Place.LATEST:
        return log.tail_offset
    return request.start


def position_headers(next_offset: int, tail_offset: int) -> list[tuple[bytes, bytes]]:
    """Where the reader stands: on every form of answer."""
    return [
        (b"next-offset", b"%d" % next_offset),
        (b"tail-offset", b"%d" % tail_offset),
        (b"at-tail", b"true" if next_offset >= tail_offset else b"false"),
    ]


def message_objects(
    result: ReadResult, partition: int, *, start: int, limit: int, form: ValueForm
) -> tuple[list[dict[str, Any]], int]:
    """At most ``limit`` messages from ``start`` on, and the offset after the last one.

    The first stored batch may begin before ``start``, and the last one end after the limit.
    """
    objects: list[dict[str, Any]] = []
    next_offset = start
    for entry in result.entries:
        messages = decode_stored(entry.batch)
        skipped = max(0, start - entry.base_offset)
        wanted = messages[skipped : skipped + limit - len(objects)]
        first = entry.base_offset + skipped
        for offset, message in enumerate(wanted, start=first):
            objects.append(message_object(partition, offset, entry.publish_time_us, message, form))
        next_offset = max(next_offset, first + len(wanted))
        if len(objects) >= limit:
            break
    return objects, next_offset


def decode_stored(batch: Buffer) -> list[Message]:
    """A batch from storage was checked when it was written: a bad one now is damage."""
    try:
        return decode_batch(batch)
    except FencelogError as error:
        raise FencelogError(ErrorCode.CORRUPT, f"a stored batch: {error.detail}") from error


def beyond_tail(target: Target, tail_offset: int) -> FencelogError:
    return FencelogError(
        ErrorCode.OFFSET_BEYOND_TAIL,
        f"offset {target.offset} of partition {target.partition} is not written yet",
        tail_offset=tail_offset,
    )
