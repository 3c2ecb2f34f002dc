"""``fencelog bench read``: catch-up reads of record batches over HTTP, from the beginning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from fencelog.api.bench.harness.load import LoadConnection, connected, encode_request, refused
from fencelog.api.bench.http import (
    BATCH_TYPE,
    MESSAGE_BYTES,
    append_request,
    create_topic,
    record_batches,
    standalone,
    tail_offset,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_READ_BYTES
from fencelog.ledgers.record_batch import read_frames

MESSAGES_PER_SECOND = 500_000
MAX_TOPIC_MESSAGES = 1_500_000
"""The number of messages that the topic gets at most. They are some 160 MB, ten times what a
partition keeps in memory for readers at the tail."""


@dataclass(frozen=True, slots=True)
class ReadMetrics:
    messages_per_s: float
    mb_per_s: float


async def measure_read(directory: Path, seconds: float) -> ReadMetrics:
    """Fill a topic, then read it from the beginning as often as fits into ``seconds``.

    One connection, one request after the other. Every pass must see every message once and in
    order: the offsets of the batches have to join. ``mb_per_s`` counts values only.
    """
    topic_messages = min(MAX_TOPIC_MESSAGES, int(seconds * MESSAGES_PER_SECOND))
    async with standalone(directory) as service:
        url = service.url
        topic, messages = await _fill(url, topic_messages)
        async with connected(url) as connection:
            count = 0
            begin = perf_counter()
            while perf_counter() - begin < seconds:
                await read_all(connection, url, topic, 0, messages)
                count += messages
            elapsed_s = perf_counter() - begin
    return ReadMetrics(count / elapsed_s, count * MESSAGE_BYTES / elapsed_s / 1e6)


async def _fill(url: str, topic_messages: int) -> tuple[str, int]:
    appends = record_batches()
    await create_topic(url, appends.topic)
    request = append_request(url, appends)
    async with connected(url) as connection:
        for _ in range(max(1, topic_messages // appends.messages)):
            response = await connection.request(request)
            if response.status != 201:
                raise refused(response)
    return appends.topic, await tail_offset(url, appends.topic)


async def read_all(
    connection: LoadConnection, url: str, topic: str, offset: int, end_offset: int
) -> None:
    """Read a topic's partition 0 as record batches from ``offset``, where one begins, to
    ``end_offset``; the offsets of the batches have to join. Raises FencelogError."""
    while offset < end_offset:
        path = f"/v1/topics/{topic}/partitions/0/messages?from={offset}&max_bytes={MAX_READ_BYTES}"
        request = encode_request("GET", url, path, headers={"Accept": BATCH_TYPE})
        response = await connection.request(request)
        if response.status != 200:
            raise refused(response)
        offset = _following(response.body, offset)


def _following(body: bytes, offset: int) -> int:
    """Return the offset after the batches in ``body``, which must begin at ``offset`` and join."""
    begin = offset
    for frame in read_frames(body):
        if frame.base_offset != offset:
            raise FencelogError(
                ErrorCode.INTERNAL, f"a batch begins at {frame.base_offset}, not at {offset}"
            )
        offset += frame.count
    if offset == begin:
        raise FencelogError(ErrorCode.INTERNAL, f"an answer from offset {begin} is empty")
    return offset
