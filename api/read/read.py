"""The endpoints that read a partition: JSON, NDJSON, record batches, event streams, and single
messages.

Reads have no state and no side effects: the position is the client's. Record batches pass through
as they were stored; every other form decodes them. All forms carry ``Next-Offset``, ``Tail-Offset``
and ``At-Tail``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fencelog.api.http.asgi import (
    BATCH,
    EVENT_STREAM,
    JSON,
    NDJSON,
    OCTETS,
    Buffer,
    Exchange,
    parse_flag,
    parse_number,
)
from fencelog.api.http.json_render import encode_objects
from fencelog.api.http.message_headers import message_headers
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.read_request import (
    MAX_OFFSET,
    NamedPosition,
    ReadRequest,
    Time,
    read_request,
)
from fencelog.api.http.sse import PING, PING_INTERVAL_MS, control_event, message_events
from fencelog.api.http.targets import Target
from fencelog.api.http.waits import Waits
from fencelog.api.read.answers import (
    Answers,
    Source,
    framed_size,
    has_gaps,
    objects,
    respond,
    send_piece,
)
from fencelog.api.routing.owner_proxy import LET_GO, OwnerProxy, TailRead
from fencelog.broker.read.rows import end_of_rows, rows_in_steps
from fencelog.broker.read.stored import ONE_MESSAGE, ReadLimits, ReadResult
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.partition.partition_log import PartitionLog

SEGMENT_PARAMETERS = frozenset(("confirmed", "from_offset", "refresh"))
"""The query parameters of a request for segments."""

STREAM_MESSAGES = 1000
"""The messages in one piece of an event stream."""

_STREAM_HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


class Read:
    """The endpoints that read."""

    def __init__(self, ownership: OwnerProxy, waits: Waits, metrics: ApiMetrics) -> None:
        self._ownership = ownership
        self._waits = waits
        self._metrics = metrics
        self._answers = Answers()

    # -- many messages ---------------------------------------------------------------------------

    async def get(self, exchange: Exchange, target: Target) -> None:
        """Answer with messages from a position on, in the form that Accept names; HEAD tells the
        position.

        Raises FencelogError: OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, TOPIC_NOT_FOUND, ….
        """
        request = read_request(exchange)
        waits = request.wait_ms > 0 and exchange.method != "HEAD"
        is_poll = waits and request.media_type != EVENT_STREAM
        is_tail_read = is_poll and request.start is NamedPosition.LATEST
        tail_read = TailRead() if is_tail_read else None

        async def local(log: PartitionLog) -> None:
            if request.topic_id is not None and request.topic_id != log.topic_id:
                raise FencelogError(
                    ErrorCode.TOPIC_NOT_FOUND,
                    f"{target.topic} has the id {log.topic_id} now, not {request.topic_id[:40]!r}",
                )
            source: Source = log.compaction.view if request.compacted else log
            if exchange.method == "HEAD":
                await self._head(exchange, source, request)
            elif request.media_type == EVENT_STREAM:
                follow = self._follow(exchange, source, request, target)
                await self._waits.run(exchange, follow)
            elif request.wait_ms:
                answer = self._answer(exchange, source, request, target, tail_read)
                await self._waits.run(exchange, answer)
            else:
                await self._answer(exchange, source, request, target)

        await self._ownership.serve(
            exchange, target.topic, target.partition, local, tail_read=tail_read
        )

    async def _head(self, exchange: Exchange, source: Source, request: ReadRequest) -> None:
        start = await start_offset(source, request)
        headers = position_headers(start, source.tail_offset, source)
        headers.append((b"earliest-offset", b"%d" % source.earliest_offset))
        # The length of a GET's answer is not known, so none is given (RFC 9110, 8.6).
        await exchange.start(200, [(b"content-type", request.media_type), *headers])
        await exchange.send_body(b"")

    async def _answer(
        self,
        exchange: Exchange,
        source: Source,
        request: ReadRequest,
        target: Target,
        tail_read: TailRead | None = None,
    ) -> None:
        limits = ReadLimits(request.limit or 1, request.max_bytes, request.wait_ms)
        start = None if tail_read is None else tail_read.offset
        if start is None:
            start = await start_offset(source, request)
        now_s = asyncio.get_running_loop().time
        begin_s = now_s()
        try:
            try:
                await self._answer_from(start, limits, exchange, source, request, target)
            except FencelogError as error:  # of a trim: before anything was sent
                start = await start_after_trim(source, request, error)
                left_ms = max(0, limits.wait_ms - int((now_s() - begin_s) * 1000))
                limits = limits._replace(wait_ms=left_ms)
                await self._answer_from(start, limits, exchange, source, request, target)
        except FencelogError as error:
            if tail_read is not None and error.code in LET_GO:
                tail_read.offset = start
            raise

    async def _answer_from(
        self,
        start: int,
        limits: ReadLimits,
        exchange: Exchange,
        source: Source,
        request: ReadRequest,
        target: Target,
    ) -> None:
        whole = request.media_type == BATCH
        async with self._answers.read(
            source, start, limits, who=target, whole_batches=whole
        ) as result:
            end = end_offset(result, start=start, request=request)
            count = sum(stored.messages_from(start) for stored in result.entries)
            pieces = self._pieces(result, request, target.partition, start=start, end=end)
            headers = position_headers(end, result.tail_offset, source)
            headers.append((b"start-offset", b"%d" % start))
            length = framed_size(result) if whole and not has_gaps(result) else None
            size = await respond(exchange, request.media_type, pieces, headers, length=length)
            self._metrics.read(min(count, request.limit or count), size)

    def _pieces(
        self, result: ReadResult, request: ReadRequest, partition: int, *, start: int, end: int
    ) -> AsyncIterator[Buffer]:
        if request.media_type == BATCH:
            return self._answers.frames(result, start=start, end=end)
        render = self._answers.ndjson if request.media_type == NDJSON else self._answers.json
        return render(result, partition, start=start, end=end, form=request.value_form)

    # -- event streams ---------------------------------------------------------------------------

    async def _follow(
        self, exchange: Exchange, source: Source, request: ReadRequest, target: Target
    ) -> None:
        """Send events until ``limit`` messages were sent, the client goes, or a problem ends it."""
        offset = await start_offset(source, request)
        # 410 and 416 before the status goes. The rate is for what is sent: a stream waits for it.
        try:
            await source.fetch(offset, ONE_MESSAGE)
        except FencelogError as error:
            offset = await start_after_trim(source, request, error)
            await source.fetch(offset, ONE_MESSAGE)
        headers = position_headers(offset, source.tail_offset, source)
        await exchange.start(200, [(b"content-type", EVENT_STREAM), *_STREAM_HEADERS, *headers])
        self._metrics.streams += 1
        try:
            await self._send_events(exchange, source, request, target, offset)
        finally:
            self._metrics.streams -= 1

    async def _send_events(
        self,
        exchange: Exchange,
        source: Source,
        request: ReadRequest,
        target: Target,
        offset: int,
    ) -> None:
        remaining, has_begun = request.limit, False
        control = control_event(next_offset=offset, tail_offset=source.tail_offset)
        await send_piece(exchange, control, more=True)
        while remaining is None or remaining > 0:
            count = STREAM_MESSAGES if remaining is None else min(remaining, STREAM_MESSAGES)
            limits = ReadLimits(count, request.max_bytes, PING_INTERVAL_MS)
            try:
                async with self._answers.read(source, offset, limits, who=target) as result:
                    end = end_of_rows(result, start=offset, limit=count)
                    sent = 0
                    async for rows in self._answers.rows(result, start=offset, end=end):
                        shown = encode_objects(objects(rows, target.partition, request.value_form))
                        events = message_events([offset for offset, _, _ in rows], shown)
                        has_begun = True
                        await send_piece(exchange, events, more=True)
                        self._metrics.read(len(rows), len(events))
                        sent += len(rows)
            except FencelogError as error:
                if error.code is ErrorCode.RATE_LIMITED:
                    await asyncio.sleep(PING_INTERVAL_MS / 1000)  # its turn is later than that
                    await send_piece(exchange, PING, more=True)
                elif has_begun:
                    raise
                else:
                    offset = await later_start(source, request, error, start=offset)
                    control = control_event(next_offset=offset, tail_offset=source.tail_offset)
                    await send_piece(exchange, control, more=True)
                continue
            offset, tail = end, result.tail_offset
            if not sent:
                await send_piece(exchange, PING, more=True)
            elif offset >= tail:
                control = control_event(next_offset=offset, tail_offset=tail)
                await send_piece(exchange, control, more=True)
            remaining = None if remaining is None else remaining - sent
            if is_at_end(source, offset):
                control = control_event(next_offset=offset, tail_offset=offset, is_end=True)
                await send_piece(exchange, control, more=True)
                break
        await exchange.send_body(b"")

    # -- one message -----------------------------------------------------------------------------

    async def get_one(self, exchange: Exchange, target: Target) -> None:
        """Answer with the bytes of one message, its metadata in headers.

        Raises FencelogError: OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, TOPIC_NOT_FOUND, ….
        """
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            offset = target.offset
            result = await log.read(offset, ONE_MESSAGE)
            if not result.entries:
                await log.check_owner()  # a later one may have it
                raise beyond_tail(target, result.tail_offset)
            rows = rows_in_steps(result.entries, start=offset, end=offset + 1, step=1)
            ((_, publish_time_us, message),) = next(rows)
            headers = [
                (b"fencelog-publish-time", b"%d" % publish_time_us),
                *message_headers(message),
            ]
            await exchange.respond(200, OCTETS, message.value, headers)
            self._metrics.read(1, len(message.value))

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def get_segments(self, exchange: Exchange, target: Target) -> None:
        """Answer with the ledgers of a partition and the bookies that hold them, for readers of
        storage."""
        query = exchange.query(SEGMENT_PARAMETERS)
        text = query.get("from_offset", "0")
        from_offset = parse_number("from_offset", text, low=0, high=MAX_OFFSET)
        confirmed = parse_flag("confirmed", query.get("confirmed", "false"))
        ledger_id = query.get("refresh")
        refresh = (
            None
            if ledger_id is None
            else parse_number("refresh", ledger_id, low=0, high=MAX_OFFSET)
        )

        async def local(log: PartitionLog) -> None:
            segments = await log.segments(from_offset, confirmed=confirmed, refresh=refresh)
            await exchange.respond(200, JSON, encode_objects([segments])[0])

        await self._ownership.serve(exchange, target.topic, target.partition, local)


async def start_offset(source: Source, request: ReadRequest) -> int:
    """Return the offset at which a read begins."""
    if request.start is NamedPosition.EARLIEST:
        return source.earliest_offset
    if request.start is NamedPosition.LATEST:
        return source.tail_offset
    if isinstance(request.start, Time):
        return await source.offset_for_time(request.start.us)
    return request.start


async def start_after_trim(source: Source, request: ReadRequest, error: FencelogError) -> int:
    """Return the offset at which a read begins whose first start was trimmed while it waited, if
    the client did not name that offset. Raises ``error`` otherwise, and as ``start_offset``."""
    if error.code is not ErrorCode.OFFSET_TRIMMED or isinstance(request.start, int):
        raise error
    if request.start is NamedPosition.LATEST:  # the tail of now would skip what came since
        earliest: int = error.extra["earliest_offset"]
        return earliest
    return await start_offset(source, request)


async def later_start(
    source: Source, request: ReadRequest, error: FencelogError, *, start: int
) -> int:
    """Return the offset at which a stream begins that has sent no message yet, as
    ``start_after_trim``. Raises ``error`` also where that is not after ``start``, at which nothing
    could be read."""
    later = await start_after_trim(source, request, error)
    if later <= start:
        raise error
    return later


def end_offset(result: ReadResult, *, start: int, request: ReadRequest) -> int:
    """Return the offset after the answered messages: batches of the log are answered whole."""
    if request.media_type == BATCH and not has_gaps(result):
        return result.next_offset
    return end_of_rows(result, start=start, limit=request.limit or 1)


def position_headers(
    next_offset: int, tail_offset: int, source: Source
) -> list[tuple[bytes, bytes]]:
    """Return the headers with the reader's position, which every form of answer has."""
    headers = [
        (b"next-offset", b"%d" % next_offset),
        (b"tail-offset", b"%d" % tail_offset),
        (b"at-tail", b"true" if next_offset >= tail_offset else b"false"),
    ]
    if is_at_end(source, next_offset):
        headers.append((b"end-of-topic", b"true"))
    return headers


def is_at_end(source: Source, offset: int) -> bool:
    """Tell whether no message will ever follow from this offset on."""
    return source.is_terminated and offset >= source.tail_offset


def beyond_tail(target: Target, tail_offset: int) -> FencelogError:
    return FencelogError(
        ErrorCode.OFFSET_BEYOND_TAIL,
        f"offset {target.offset} of partition {target.partition} is not written yet",
        tail_offset=tail_offset,
    )
