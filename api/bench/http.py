"""``fencelog bench http``: appends over HTTP to a standalone service with three fsynced bookies."""

from __future__ import annotations

import json
import os
import random  # noqa: TID251 - a load generator is never played by the simulator
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fencelog.api.bench.harness.cpu import process_cpu_s
from fencelog.api.bench.harness.limits import percentile
from fencelog.api.bench.harness.load import (
    LoadResult,
    RequestSource,
    Response,
    closed_loop,
    connected,
    encode_request,
    refused,
    repeated,
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
    """The metrics of a standalone service. ``post_*``: single posts, each with another key, trace
    header and Producer-Seq; ``repeated_post_*``: the same request again and again. ``*_cpu_us``:
    CPU time of the whole service, bookies included, for each request."""

    post_per_s: float
    post_p50_ms: float
    post_p99_ms: float
    post_cpu_us: float
    repeated_post_per_s: float
    repeated_post_p99_ms: float
    repeated_post_cpu_us: float
    ndjson_batch_messages_per_s: float
    record_batch_messages_per_s: float


@dataclass(frozen=True, slots=True)
class Appends:
    """A kind of append, to a topic of its own. Connections repeat the same request unless
    ``varies``: then they are producers that give each message another key, header and number."""

    topic: str
    verb: str
    content_type: str
    body: bytes
    messages: int
    connections: int
    varies: bool = False


def single_posts(topic: str = "bench/single", *, varies: bool = False) -> Appends:
    """Return single posts: 1 KiB messages, one in each request, from 64 connections."""
    return Appends(
        topic=topic,
        verb="messages",
        content_type="application/octet-stream",
        body=os.urandom(KIB),
        messages=1,
        connections=64,
        varies=varies,
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
    async with standalone(directory) as service:
        varied = await measure_appends(
            service, single_posts("bench/producers", varies=True), seconds
        )
        single = await measure_appends(service, single_posts(), seconds)
        ndjson = await measure_appends(service, ndjson_batches(), seconds)
        records = await measure_appends(service, record_batches(), seconds)
    return HttpMetrics(
        post_per_s=varied.load.per_s,
        post_p50_ms=percentile(varied.load.latencies_s, 0.5) * 1e3,
        post_p99_ms=percentile(varied.load.latencies_s, 0.99) * 1e3,
        post_cpu_us=varied.cpu_us,
        repeated_post_per_s=single.load.per_s,
        repeated_post_p99_ms=percentile(single.load.latencies_s, 0.99) * 1e3,
        repeated_post_cpu_us=single.cpu_us,
        ndjson_batch_messages_per_s=ndjson.load.per_s * ndjson_batches().messages,
        record_batch_messages_per_s=records.load.per_s * record_batches().messages,
    )


@dataclass(frozen=True, slots=True)
class LoadedService:
    """The services under load: the URLs to send requests to, and the processes that do the work."""

    urls: tuple[str, ...]
    pids: tuple[int, ...]

    @property
    def url(self) -> str:
        return self.urls[0]

    def cpu_s(self) -> float:
        """Return the CPU time that the processes have used, in seconds."""
        return sum(process_cpu_s(pid) for pid in self.pids)


@dataclass(frozen=True, slots=True)
class Measured:
    """A phase of load. ``cpu_us``: CPU time of the service for each request."""

    load: LoadResult
    cpu_us: float


async def measure_load(
    service: LoadedService, sources: Sequence[RequestSource], seconds: float
) -> tuple[Measured, int]:
    """Send requests for a moment to warm up, then for ``seconds``. Return the measurement and the
    number of all requests that were acknowledged, the warm-up's included."""
    warm_up = await closed_loop(service.urls, sources, seconds=WARM_UP_S)
    begin_s = service.cpu_s()
    load = await closed_loop(service.urls, sources, seconds=seconds)
    cpu_us = (service.cpu_s() - begin_s) / load.requests * 1e6
    return Measured(load, cpu_us), warm_up.requests + load.requests


@asynccontextmanager
async def standalone(directory: Path, *options: str) -> AsyncIterator[LoadedService]:
    """Run a standalone service with these options as a process of its own."""
    data = str(directory / "standalone")
    command = ["standalone", "--http", "127.0.0.1:0", "--data", data, *options]
    process = await ChildProcess.start("standalone", command, log=directory / "standalone.log")
    try:
        yield LoadedService((process.announcement["http"],), (process.pid,))
    finally:
        await process.stop()


async def measure_appends(service: LoadedService, appends: Appends, seconds: float) -> Measured:
    """Append for a moment to warm up, then for ``seconds``; the topic must hold all of it
    afterwards.

    Raises FencelogError(INTERNAL) if the tail offset is not the number of messages acknowledged.
    """
    await create_topic(service.url, appends.topic)
    measured, requests = await measure_load(service, append_sources(service.url, appends), seconds)
    await check_tail(service.url, appends.topic, requests * appends.messages)
    return measured


async def check_tail(url: str, topic: str, acknowledged: int) -> None:
    """Check that a topic holds as many messages as were acknowledged. Raises
    FencelogError(INTERNAL)."""
    if (tail := await tail_offset(url, topic)) != acknowledged:
        raise FencelogError(
            ErrorCode.INTERNAL,
            f"topic {topic} holds {tail} messages, {acknowledged} were acknowledged",
        )


def append_sources(url: str, appends: Appends) -> list[RequestSource]:
    """Return the requests of each connection."""
    if appends.varies:
        return [producer_source(url, appends, f"p{i}") for i in range(appends.connections)]
    return repeated(append_request(url, appends), appends.connections)


def producer_source(url: str, appends: Appends, producer: str) -> RequestSource:
    """Return the requests of one producer: the next Producer-Seq, another key and trace header each
    time."""
    head = (
        f"POST /v1/topics/{appends.topic}/{appends.verb} HTTP/1.1\r\n"
        f"Host: {urlsplit(url).netloc}\r\nContent-Type: {appends.content_type}\r\n"
        f"Content-Length: {len(appends.body)}\r\nProducer-Id: {producer}\r\n"
    ).encode()
    trace = random.Random(producer)
    numbers = count()

    def next_request() -> bytes:
        return b"%bProducer-Seq: %d\r\nFencelog-Key: user-%d\r\ntraceparent: %b\r\n\r\n%b" % (
            head,
            next(numbers),
            trace.randrange(100_000),
            b"00-%032x-%016x-01" % (trace.getrandbits(128), trace.getrandbits(64)),
            appends.body,
        )

    return next_request


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
