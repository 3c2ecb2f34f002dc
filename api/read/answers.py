"""Answers to reads: rendered a step at a time, sent at the client's pace, within bounds.

A JSON answer of 100,000 messages takes long to make, so it is made in steps that alternate with
those of other readers (``LoopYielder``), and is sent as it is made: what a client does not take is
not rendered. Small answers leave at once, in one piece and with their length.

The memory of an answer is counted until its client has taken it. Above the limit, reads wait for
their turn; a client that takes nothing for too long loses its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import msgspec

from fencelog.api.http.asgi import Buffer, ClientGone, Exchange
from fencelog.api.http.json_render import StoredMessage, ValueForm, encode_joined, message_object
from fencelog.broker.append.rates import DispatchLimit
from fencelog.broker.limits import ANSWER_BYTES, ANSWER_STALL_MS, ANSWER_TURN_MS
from fencelog.broker.read.read_fairness import STEP_MESSAGES, FairByteSemaphore, LoopYielder
from fencelog.broker.read.rows import Row, rows_in_steps
from fencelog.broker.read.stored import CompactedBatch, ReadLimits, ReadResult
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.record_batch import encode_batch
from fencelog.ledgers.record_batch.frames import FRAME, frame_batch, frame_parts

PIECE_BYTES = 256 * KIB
"""The bytes of an answer passed to the connection at a time, which bounds the memory that a stalled
client can hold."""

AT_ONCE_MESSAGES = 100
"""The number of messages that are rendered without waiting for a turn: a fraction of a ms."""


class MessagePage(msgspec.Struct):
    """The document of a read: the messages, and the place after them."""

    messages: list[StoredMessage]
    next_offset: int
    tail_offset: int
    at_tail: bool


class Source(Protocol):
    """The source of a read: a partition's log, or its compacted view."""

    @property
    def earliest_offset(self) -> int: ...

    @property
    def tail_offset(self) -> int: ...

    @property
    def is_terminated(self) -> bool: ...

    @property
    def dispatch_limit(self) -> DispatchLimit | None: ...

    async def fetch(self, offset: int, limits: ReadLimits) -> ReadResult: ...

    async def offset_for_time(self, time_us: int) -> int: ...


class Answers:
    """The limits that all reads of one service share."""

    def __init__(self, limit: int = ANSWER_BYTES) -> None:
        self._bytes = FairByteSemaphore(limit)
        self._steps = LoopYielder()

    @asynccontextmanager
    async def read(
        self,
        source: Source,
        offset: int,
        limits: ReadLimits,
        *,
        who: Hashable,
        whole_batches: bool = False,
    ) -> AsyncIterator[ReadResult]:
        """Yield the result of a read, counted as long as the context lasts. ``whole_batches``: the
        answer has the log's batches as they are stored, otherwise ``max_messages`` at most.

        Raises what the read raises; OVERLOADED if others hold too much for too long.
        """
        dispatch = source.dispatch_limit
        allowed = limits if dispatch is None else await dispatch.admit(limits)
        result = await source.fetch(offset, allowed)
        size = sum(len(stored.batch) for stored in result.entries)
        if size and not self._bytes.try_take(size):
            result.entries.clear()  # nothing is held while it waits
            await self._wait(who, size)
            try:
                result = await source.fetch(offset, allowed._replace(wait_ms=0))
            except BaseException:
                self._bytes.give_back(size)
                raise
        try:
            if dispatch is not None:  # here, so that a read counts once, and as what it answers
                is_whole = whole_batches and not has_gaps(result)
                dispatch.charge(result, offset, None if is_whole else limits.max_messages)
            yield result
        finally:
            if size:
                self._bytes.give_back(size)

    async def _wait(self, who: Hashable, size: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TURN_MS / 1000):
                await self._bytes.take(who, size)
                return
        raise FencelogError(
            ErrorCode.OVERLOADED,
            f"{self._bytes.in_use} bytes of answers wait for their clients in this broker",
        )

    async def rows(self, result: ReadResult, *, start: int, end: int) -> AsyncIterator[list[Row]]:
        """Yield messages of a result from offset ``start`` to before ``end``, in steps."""
        small = sum(stored.messages_from(start) for stored in result.entries) <= AT_ONCE_MESSAGES
        steps = rows_in_steps(result.entries, start=start, end=end, step=STEP_MESSAGES)
        while True:
            if not small:
                await self._steps.turn()  # for the first one too: many may begin at the same time
            rows = next(steps, None)
            if rows is None:
                return
            yield rows

    async def json(
        self, result: ReadResult, partition: int, *, start: int, end: int, form: ValueForm
    ) -> AsyncIterator[bytes]:
        """Yield the document that a read answers: a ``MessagePage``."""
        before = b'{"messages":['
        async for rows in self.rows(result, start=start, end=end):
            yield before + encode_joined(objects(rows, partition, form), b",")
            before = b","
        tail = result.tail_offset
        at_tail = b"true" if end >= tail else b"false"
        yield b'%b],"next_offset":%d,"tail_offset":%d,"at_tail":%b}\n' % (
            before if before != b"," else b"",
            end,
            tail,
            at_tail,
        )

    async def ndjson(
        self, result: ReadResult, partition: int, *, start: int, end: int, form: ValueForm
    ) -> AsyncIterator[bytes]:
        """Yield one message object for each line."""
        async for rows in self.rows(result, start=start, end=end):
            yield encode_joined(objects(rows, partition, form), b"\n") + b"\n"

    async def frames(self, result: ReadResult, *, start: int, end: int) -> AsyncIterator[Buffer]:
        """Yield batches as they were stored; from a compacted view, one batch for each part without
        gaps."""
        if not has_gaps(result):
            for stored in result.entries:
                offset, time = stored.base_offset, stored.publish_time_us
                for part in frame_parts(offset, time, stored.count, stored.batch):
                    yield part
            return
        async for rows in self.rows(result, start=start, end=end):
            for group in consecutive(rows):
                offset, time, _ = group[0]
                yield frame_batch(offset, time, encode_batch([message for *_, message in group]))


def framed_size(result: ReadResult) -> int:
    """Return the bytes of the frames of a result that has no gaps."""
    return sum(FRAME.size + (len(stored.batch) + 7 & ~7) for stored in result.entries)


def has_gaps(result: ReadResult) -> bool:
    """Tell whether a result comes from a compacted view, so that its batches may
    leave offsets out."""
    return any(isinstance(stored, CompactedBatch) for stored in result.entries)


def objects(rows: list[Row], partition: int, form: ValueForm) -> list[dict[str, object]]:
    return [message_object(partition, offset, time, m, form) for offset, time, m in rows]


def consecutive(rows: list[Row]) -> Iterator[list[Row]]:
    """Yield the parts of ``rows`` that have consecutive offsets and the same time."""
    begin = 0
    for place in range(1, len(rows) + 1):
        if place < len(rows):
            offset, time, _ = rows[place - 1]
            if rows[place][0] == offset + 1 and rows[place][1] == time:
                continue
        yield rows[begin:place]
        begin = place


async def respond(
    exchange: Exchange,
    media_type: bytes,
    pieces: AsyncIterator[Buffer],
    headers: list[tuple[bytes, bytes]],
    *,
    length: int | None = None,
) -> int:
    """Send an answer as it comes, and return its size. ``length``: the same, where it is known
    before. Raises ClientGone."""
    if length is not None:
        sized = [(b"content-type", media_type), (b"content-length", b"%d" % length), *headers]
        await exchange.start(200, sized)
    gathered: list[Buffer] = []
    size = sent = 0
    async for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size - sent >= PIECE_BYTES:
            if not exchange.started:
                await exchange.start(200, [(b"content-type", media_type), *headers])
            await send_piece(exchange, b"".join(gathered), more=True)
            gathered, sent = [], size
    if exchange.started:
        await send_piece(exchange, b"".join(gathered))
    else:
        await exchange.respond(200, media_type, b"".join(gathered), headers)
    return size


async def send_piece(exchange: Exchange, piece: bytes, *, more: bool = False) -> None:
    """Send a part of a body once the client has taken most of what was sent before. Raises
    ClientGone if it takes nothing for too long."""
    try:
        async with asyncio.timeout(ANSWER_STALL_MS / 1000):
            await exchange.send_body(piece, more=more)
    except TimeoutError:
        raise ClientGone from None
