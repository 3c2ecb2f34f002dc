"""``fencelog bench http``: appends over HTTP to a standalone service with three fsynced bookies."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencelog.api.bench.limits import percentile
from fencelog.api.bench.load import (
    LoadResult,
    Response,
    closed_loop,
    connected,
    encode_request,
    refused,
)
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.record_batch import encode_values

BATCH_TYPE = "application/vnd.fencelog.batch"
NDJSON_TYPE = "application/x-ndjson"
MESSAGE_BYTES = 100
WARM_UP_S = 0.5


@dataclass(frozen=True, slots=True)
class HttpMetrics:
    single_post_per_s: float
    single_post_p99_ms: float
    ndjson_batch_messages_per_s: float
    record_batch_messages_per_s: float


@dataclass(frozen=True, slots=True)
class Appends:
    """A kind of append: the same request from every connection, to a topic of its own."""

    topic: str
    verb: str
    content_type: str
    body: bytes
    messages: int
    connections: int


def single_posts() -> Appends:
    """Return single posts: 1 KiB messages, one in each request, from 64 connections."""
    return Appends(
        topic="bench/single",
        verb="messages",
        content_type="application/octet-stream",
        body=os.urandom(KIB),
        messages=1,
        connections=64,
    )


def ndjson_batches(messages: int = 1000, connections: int = 4) -> Appends:
    """Return batches of JSON lines of 100 B of text each."""
    line = json.dumps({"text": "x" * MESSAGE_BYTES}) + "\n"
    return Appends(
        topic="bench/ndjson",
        verb="messages:batch",
        content_type=NDJSON_TYPE,
        body=line.encode() * messages,
        messages=messages,
        connections=connections,
    )


def record_batches(messages: int = 5000, connections: int = 4) -> Appends:
    """Return record batches of 100 B values."""
    return Appends(
        topic="bench/records",
        verb="messages:batch",
        content_type=BATCH_TYPE,
        body=encode_values(_values(messages)),
        messages=messages,
        connections=connections,
    )


def _values(count: int) -> Sequence[bytes]:
    data = os.urandom(count * MESSAGE_BYTES)
    return [data[i : i + MESSAGE_BYTES] for i in range(0, len(data), MESSAGE_BYTES)]


async def measure_http(directory: Path, seconds: float) -> HttpMetrics:
    """Measure single posts, NDJSON batches and record batches, ``seconds`` each."""
    async with standalone(directory) as url:
        single = await measure_appends(url, single_posts(), seconds)
        ndjson = await measure_appends(url, ndjson_batches(), seconds)
        records = await measure_appends(url, record_batches(), seconds)
    return HttpMetrics(
        single_post_per_s=single.per_s,
        single_post_p99_ms=percentile(single.latencies_s, 0.99) * 1e3,
        ndjson_batch_messages_per_s=ndjson.per_s * ndjson_batches().messages,
        record_batch_messages_per_s=records.per_s * record_batches().messages,
    )


@asynccontextmanager
async def standalone(directory: Path) -> AsyncIterator[str]:
    """Run a standalone service as a process of its own, and yield its URL."""
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(directory / "standalone")]
    process = await ChildProcess.start("standalone", command, log=directory / "standalone.log")
    try:
        yield process.announcement["http"]
    finally:
        await process.stop()


async def measure_appends(url: str, appends: Appends, seconds: float) -> LoadResult:
    """Append for a moment to warm up, then for ``seconds``; the topic must hold all of it
    afterwards.

    Raises FencelogError(INTERNAL) if the tail offset is not the number of messages acknowledged.
    """
    await create_topic(url, appends.topic)
    request = append_request(url, appends)
    connections = appends.connections
    warm_up = await closed_loop(url, request, connections=connections, seconds=WARM_UP_S)
    load = await closed_loop(url, request, connections=connections, seconds=seconds)
    acknowledged = (warm_up.requests + load.requests) * appends.messages
    tail = await tail_offset(url, appends.topic)
    if tail != acknowledged:
        raise FencelogError(
            ErrorCode.INTERNAL,
            f"topic {appends.topic} holds {tail} messages, {acknowledged} were acknowledged",
        )
    return load


def append_request(url: str, appends: Appends) -> bytes:
    return encode_request(
        "POST",
        url,
        f"/v1/topics/{appends.topic}/{appends.verb}",
        body=appends.body,
        headers={"Content-Type": appends.content_type},
    )


async def call(url: str, request: bytes, *expected: int) -> Response:
    """Send one request on a connection of its own. Raises FencelogError for another status."""
    async with connected(url) as connection:
        response = await connection.request(request)
    if response.status not in expected:
        raise refused(response)
    return response


async def create_topic(url: str, topic: str) -> None:
    body = json.dumps({"partitions": 1}).encode()
    headers = {"Content-Type": "application/json"}
    path = f"/v1/topics/{topic}"
    await call(url, encode_request("PUT", url, path, body=body, headers=headers), 200, 201)


async def tail_offset(url: str, topic: str) -> int:
    """Return the offset that the next message of partition 0 gets: the number of messages so
    far."""
    path = f"/v1/topics/{topic}/partitions/0/messages?from=latest"
    response = await call(url, encode_request("GET", url, path), 200)
    answer: dict[str, Any] = json.loads(response.body)
    return int(answer["tail_offset"])
