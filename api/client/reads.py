"""The Python client's reads: pages of messages, positions, and the compacted view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from fencelog.api.client.conditions import check_keywords
from fencelog.api.client.http import ServiceHttp, json_object, partition_place, topic_path
from fencelog.broker.limits import MAX_READ_MESSAGES
from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.record_batch import FramedBatch, read_frames

BATCH_TYPE = "application/vnd.fencelog.batch"
"""The media type of record batches: one in an append, and many with frames in a read."""

READ_BYTES = 4 * MIB
"""The bytes of record batches requested in one read."""

LOG = "log"
COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class Page:
    """The range of a read. ``at_tail``: it returned all that is currently readable; ``at_end``: the
    topic is also terminated, so that nothing ever follows."""

    next_offset: int
    tail_offset: int
    at_tail: bool
    start_offset: int = field(default=0, kw_only=True)
    at_end: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ReadPage(Page):
    """The answer to a read. The first batch may begin before ``start_offset``: its messages below
    that were not requested, or were trimmed."""

    batches: list[FramedBatch]


@dataclass(frozen=True, slots=True)
class RawPage(Page):
    """The answer to a read in its original form."""

    body: bytes


class ReadBounds(TypedDict, total=False):
    """The keyword arguments of a read. ``wait_s``: the time to wait for a message at the tail.
    ``view``: "log", or "compacted" for the newest message of every key. ``from_time_us``: begin
    with the first message published at or after it, whatever ``start`` says. ``topic_id``: of the
    topic that is meant; another one of that name is TOPIC_NOT_FOUND."""

    max_messages: int
    max_bytes: int
    wait_s: float
    view: str
    from_time_us: int | None
    topic_id: str


class ReadCalls:
    """The reads of a client that has a ``ServiceHttp``."""

    _service: ServiceHttp

    async def read(
        self, topic: str, partition: int, start: int | str, **bounds: Unpack[ReadBounds]
    ) -> ReadPage:
        """Return record batches from an offset (or "earliest", "latest") on.

        At the tail, waits up to ``wait_s`` for a message and may return none. Raises FencelogError:
        OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, TOPIC_NOT_FOUND, ….
        """
        page = await self.read_as(BATCH_TYPE, topic, partition, start, **bounds)
        return ReadPage(
            page.next_offset,
            page.tail_offset,
            page.at_tail,
            read_frames(page.body),
            start_offset=page.start_offset,
            at_end=page.at_end,
        )

    async def read_as(
        self,
        media_type: str,
        topic: str,
        partition: int,
        start: int | str,
        **bounds: Unpack[ReadBounds],
    ) -> RawPage:
        """Read as ``read`` does, in any form that the service has: ``application/x-ndjson``, …."""
        check_keywords(bounds, ReadBounds)
        wait_s = bounds.get("wait_s", 0)
        time_us = bounds.get("from_time_us")
        query: dict[str, Any] = {
            "limit": bounds.get("max_messages", MAX_READ_MESSAGES),
            "max_bytes": bounds.get("max_bytes", READ_BYTES),
        }
        query |= {"from": start} if time_us is None else {"from_time": time_us}
        query |= {"wait": wait_s} if wait_s else {}
        query |= {"view": bounds["view"]} if "view" in bounds else {}
        query |= {"topic_id": bounds["topic_id"]} if "topic_id" in bounds else {}
        answer = await self._service.request(
            "GET",
            f"{topic_path(topic)}/partitions/{partition}/messages",
            params=query,
            headers={"accept": media_type},
            extra_wait_s=wait_s,
            place=partition_place(topic, partition),
        )
        return RawPage(
            next_offset=int(answer.headers["next-offset"]),
            tail_offset=int(answer.headers["tail-offset"]),
            at_tail=answer.headers["at-tail"] == "true",
            start_offset=int(answer.headers["start-offset"]),
            at_end=answer.headers.get("end-of-topic") == "true",
            body=answer.content,
        )

    async def batches(
        self,
        topic: str,
        partition: int,
        start: int | str = "earliest",
        *,
        view: str = LOG,
        topic_id: str | None = None,
    ) -> AsyncIterator[FramedBatch]:
        """Yield all batches from ``start`` to what was the tail when it was reached.

        With ``topic_id`` they are all of that topic, also if it is deleted meanwhile and another
        one gets its name. Raises FencelogError, as ``read``.
        """
        bounds: ReadBounds = {"view": view}
        if topic_id is not None:
            bounds["topic_id"] = topic_id
        while True:
            page = await self.read(topic, partition, start, **bounds)
            for batch in page.batches:
                yield batch
            if page.at_tail:
                return
            start = page.next_offset

    async def offsets(self, topic: str, time_us: int | None = None) -> list[dict[str, Any]]:
        """Return ``partition, earliest_offset, tail_offset`` of every partition; with ``time_us``
        also ``offset``, the first message published at or after it (the tail if there is none)."""
        query = {} if time_us is None else {"time": time_us}
        path = f"{topic_path(topic)}/offsets"
        answer = json_object(await self._service.request("GET", path, params=query))
        found: list[dict[str, Any]] = answer["offsets"]
        return found

    async def offset_for_time(self, topic: str, partition: int, time_us: int) -> int:
        """Return the first offset whose publish time is at or after ``time_us``; the tail if none
        is."""
        return int((await self.partition_offsets(topic, partition, time_us))["offset"])

    async def partition_offsets(self, topic: str, partition: int, time_us: int) -> dict[str, Any]:
        """Return ``earliest_offset, tail_offset`` of a partition and ``offset``, the first message
        published at or after ``time_us``: the tail if none was when the request came."""
        path = f"{topic_path(topic)}/partitions/{partition}/offsets"
        place = partition_place(topic, partition)
        answer = await self._service.request("GET", path, params={"time": time_us}, place=place)
        return json_object(answer)

    async def compact(self, topic: str, partition: int) -> dict[str, Any]:
        """Have a partition's compacted view brought up to date, and return its state as
        ``compaction`` does; the compaction has begun by then."""
        path = f"{topic_path(topic)}/partitions/{partition}:compact"
        answer = await self._service.request("POST", path, lost=ErrorCode.METADATA_UNKNOWN)
        return json_object(answer)

    async def compaction(self, topic: str, partition: int) -> dict[str, Any]:
        """Return ``state`` (none, waiting, running, failed, ready), ``end_offset`` (all below it is
        compacted), ``messages``, ``bytes``, ``created_us``, ``error``."""
        path = f"{topic_path(topic)}/partitions/{partition}/compaction"
        return json_object(await self._service.request("GET", path))
