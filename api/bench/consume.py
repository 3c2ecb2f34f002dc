"""``fencelog bench consume``: messages that were posted one by one, pulled and acknowledged one at
a time, and a hundred at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from fencelog.api.bench.harness.limits import percentile
from fencelog.api.bench.harness.load import LoadConnection, connected, encode_request, refused
from fencelog.api.bench.http import (
    LoadedService,
    append_sources,
    call,
    create_topic,
    measure_load,
    single_posts,
    standalone,
)
from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError

WAYS = (("single", 8, 1), ("hundred", 1, 100))
"""The ways to consume: name, consumers, and messages of one pull."""

_JSON = {"Content-Type": "application/json"}


async def measure_consume(directory: Path, seconds: float) -> dict[str, float]:
    """Measure each of WAYS for ``seconds``, or until nothing is left of what one connection has
    posted in as many: the rate, the time from a pull to its acknowledgement (p50), and the
    service's CPU time for a message. Raises FencelogError(INTERNAL) if a message comes twice."""
    metrics: dict[str, float] = {}
    for name, consumers, most in WAYS:
        async with standalone(directory / name) as service:
            consumption = await _consume(service, seconds, consumers, most)
        metrics |= {
            f"{name}_messages_per_s": len(consumption.offsets) / consumption.elapsed_s,
            f"{name}_p50_ms": percentile(sorted(consumption.times_s), 0.5) * 1e3,
            f"{name}_cpu_us": consumption.cpu_s / len(consumption.offsets) * 1e6,
        }
    return metrics


@dataclass(slots=True)
class Consumption:
    """The messages that were acknowledged, and the times from pulls to acknowledgements."""

    offsets: set[int] = field(default_factory=set)
    times_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    cpu_s: float = 0.0


async def _consume(
    service: LoadedService, seconds: float, consumers: int, most: int
) -> Consumption:
    posts = replace(single_posts(), connections=1)  # so that each message is an entry
    await create_topic(service.url, posts.topic)
    path = f"/v1/topics/{posts.topic}/subscriptions/bench"
    await call(service.url, _request(service.url, path, {"start": "earliest"}, method="PUT"), 201)
    await measure_load(service, append_sources(service.url, posts), seconds)
    consumption, began = Consumption(), perf_counter()
    cpu_s = service.cpu_s()
    async with task_group() as group:
        for _ in range(consumers):
            group.start_soon(_consumer, service.url, path, most, began + seconds, consumption)
    consumption.elapsed_s = perf_counter() - began
    consumption.cpu_s = service.cpu_s() - cpu_s
    return consumption


async def _consumer(url: str, path: str, most: int, end_s: float, consumption: Consumption) -> None:
    pull = _request(url, f"{path}:pull", {"max": most, "as": "base64"})
    async with connected(url) as connection:
        while (began := perf_counter()) < end_s:
            messages = (await _ask(connection, pull))["messages"]
            if not messages:
                return
            ids = [message["ack_id"] for message in messages]
            acked = await _ask(connection, _request(url, f"{path}:ack", {"ack_ids": ids}))
            offsets = {message["offset"] for message in messages}
            if acked["acked"] != len(offsets) or not consumption.offsets.isdisjoint(offsets):
                raise FencelogError(ErrorCode.INTERNAL, "a message was delivered twice")
            consumption.offsets |= offsets
            consumption.times_s.append(perf_counter() - began)


def _request(url: str, path: str, body: dict[str, Any], *, method: str = "POST") -> bytes:
    return encode_request(method, url, path, body=json.dumps(body).encode(), headers=_JSON)


async def _ask(connection: LoadConnection, request: bytes) -> dict[str, Any]:
    response = await connection.request(request)
    if response.status != 200:
        raise refused(response)
    answer: dict[str, Any] = json.loads(response.body)
    return answer
