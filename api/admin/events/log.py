"""The topic of events: appended to by the recorder of each broker, and read for people.

Any broker takes the requests; the owner of the topic's only partition answers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from fencelog.api.admin.events.core import (
    EVENT_PARAMETERS,
    EventPage,
    EventQuery,
    ShownEvent,
    read_query,
    shown,
)
from fencelog.api.http.accept import preferred
from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.read_request import MAX_OFFSET
from fencelog.api.http.waits import Waits
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.dead_letters import Appending, ensured_topic
from fencelog.broker.cluster.events_core import (
    EVENTS_SETTINGS,
    EVENTS_TOPIC,
    Event,
    decode_event,
    encode_event,
)
from fencelog.broker.limits import EVENT_WINDOW_MS, MAX_EVENTS_SCANNED
from fencelog.broker.read.read_fairness import LoopYielder
from fencelog.broker.read.rows import rows_in_steps
from fencelog.broker.read.stored import ReadLimits
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.record_batch import Message, encode_batch

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

EVENTS_PATH = "/v1/admin/events"

_WINDOW = 1_000
"""The messages that are read at a time."""

_READ_BYTES = 1 * MIB

_LATE_US = EVENT_WINDOW_MS * 1000
"""The time after which an event that has happened is certainly published, or never will be."""

_NO_TOPIC_S = 1.0
"""The wait for the first event of a cluster."""


class EventTopic:
    """The sink of a broker's recorder (``event_recorder.EventSink``)."""

    def __init__(self, broker: Broker, appending: Appending) -> None:
        self._broker = broker
        self._appending = appending

    async def append(self, events: Sequence[Event], key: str) -> None:
        """Append the events: see ``EventSink.append``."""
        await ensured_topic(self._broker, EVENTS_TOPIC, TopicConfig(1, EVENTS_SETTINGS))
        messages = [Message(encode_event(each), None, each.time_us, ()) for each in events]
        await self._appending.append_batch(EVENTS_TOPIC, 0, encode_batch(messages), key)


class EventLog:
    """The endpoint ``GET /v1/admin/events``."""

    def __init__(self, ownership: OwnerProxy, waits: Waits) -> None:
        self._ownership = ownership
        self._waits = waits
        self._steps = LoopYielder()

    def pages(self) -> Mapping[str, Callable[[Exchange], Awaitable[None]]]:
        """Return the handler of GET by path."""
        return {EVENTS_PATH: self.get}

    async def get(self, exchange: Exchange) -> None:
        """Answer 200 with a page of events; an empty one in a cluster that has none yet. Raises
        FencelogError as a read does."""
        preferred(exchange.header(b"accept"), (JSON,))
        asked = read_query(exchange.query(EVENT_PARAMETERS))

        async def local(log: PartitionLog) -> None:
            if asked.wait_ms:
                await _respond(exchange, await self._waits.run(exchange, self._page(log, asked)))
            else:
                await _respond(exchange, await self._page(log, asked))

        try:
            await self._ownership.serve(exchange, EVENTS_TOPIC, 0, local)
        except FencelogError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND or exchange.started:
                raise
            if asked.wait_ms:
                wait_s = min(_NO_TOPIC_S, asked.wait_ms / 1000)
                await self._waits.run(exchange, asyncio.sleep(wait_s))
            await _respond(exchange, EventPage([], None, 0))

    async def _page(self, log: PartitionLog, asked: EventQuery) -> EventPage:
        begin, end = log.earliest_offset, log.tail_offset
        # An event is published after it has happened, but not much later.
        if asked.since_us is not None:
            begin = max(begin, await log.offset_for_time(asked.since_us))
        if asked.until_us is not None:
            end = min(end, await log.offset_for_time(min(asked.until_us + _LATE_US, MAX_OFFSET)))
        if asked.after is None:
            return await self._last(log, asked, begin, end)
        return await self._next(log, asked, begin)

    async def _last(self, log: PartitionLog, asked: EventQuery, begin: int, end: int) -> EventPage:
        """Return the last events below ``end`` and ``before``: windows are read from there
        backwards."""
        newer = end = end if asked.before is None else min(asked.before, end)
        found: list[ShownEvent] = []
        lowest = max(begin, end - MAX_EVENTS_SCANNED)
        while end > lowest and len(found) < asked.limit:
            start = max(lowest, end - _WINDOW)
            window = await self._window(log, start, end)
            found[:0] = [shown(offset, event) for offset, event in window if asked.matches(event)]
            end = start
        if len(found) > asked.limit:
            found = found[-asked.limit :]
            end = found[0].offset
        return EventPage(found, end if end > begin else None, newer)

    async def _next(self, log: PartitionLog, asked: EventQuery, begin: int) -> EventPage:
        """Return the first events from ``after`` on; wait for one if there is none."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + asked.wait_ms / 1000
        first = offset = min(max(asked.after or 0, begin), log.tail_offset)
        found: list[ShownEvent] = []
        while len(found) < asked.limit and offset - first < MAX_EVENTS_SCANNED:
            if offset >= log.tail_offset:
                wait_s = end_s - loop.time()
                if found or wait_s <= 0:
                    break
                await log.read(offset, ReadLimits(1, 1, max(1, int(wait_s * 1000))))
            end = min(log.tail_offset, offset + _WINDOW)
            for each, event in await self._window(log, offset, end):
                if asked.matches(event):
                    found.append(shown(each, event))
                if len(found) == asked.limit:
                    end = each + 1
                    break
            offset = end
        return EventPage(found, first if first > log.earliest_offset else None, offset)

    async def _window(self, log: PartitionLog, start: int, end: int) -> list[tuple[int, Event]]:
        """Return the events from one offset to before another, with theirs; what is no event is
        left out."""
        found: list[tuple[int, Event]] = []
        while start < end:
            result = await log.read(start, ReadLimits(_WINDOW, _READ_BYTES))
            for rows in rows_in_steps(result.entries, start=start, end=end):
                await self._steps.turn()
                decoded = ((offset, decode_event(message.value)) for offset, _, message in rows)
                found += [(offset, event) for offset, event in decoded if event is not None]
            start = max(start + 1, result.next_offset)
        return found


async def _respond(exchange: Exchange, page: EventPage) -> None:
    headers = [(b"cache-control", b"no-cache")]
    await exchange.respond(200, JSON, msgspec.json.encode(page), headers)
