"""``fencelog bench traces``: the cost of an append without traces, and with more and more of them.

Services with different options run beside each other, and take their turns: what else the machine
does meanwhile meets all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from fencelog.api.bench.harness.load import encode_request, repeated
from fencelog.api.bench.http import (
    LoadedService,
    Measured,
    check_tail,
    create_topic,
    measure_load,
    single_posts,
    standalone,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""The ``traceparent`` of a sampled request, for a service that does not trace."""

RATIOS: Mapping[str, float] = {"ratio_0": 0.0, "ratio_1_percent": 0.01, "ratio_all": 1.0}
"""The services with traces, by the share of their requests that are sampled."""


async def measure_traces(directory: Path, seconds: float, turns: int) -> dict[str, float]:
    """Measure single posts from 64 connections, ``seconds`` in each of the turns: without traces;
    the same with a ``traceparent`` in each request, which is not looked at; and with RATIOS.

    Return the medians of the turns, and each CPU time as a share of that without traces. Raises
    FencelogError(BAD_REQUEST) without the extra ``otel``, FencelogError(INTERNAL) if messages are
    missing or no trace came.
    """
    async with AsyncExitStack() as stack:
        collector = await stack.enter_async_context(_collector())
        off = await stack.enter_async_context(standalone(directory / "off"))
        services = {"off": off, "off_traceparent": off}
        for name, ratio in RATIOS.items():
            options = ["--trace-endpoint", collector.url, "--trace-ratio", str(ratio)]
            service = standalone(directory / name, *options)
            services[name] = await stack.enter_async_context(service)
        found = await _take_turns(services, seconds, turns)
    if not collector.requests:
        raise FencelogError(ErrorCode.INTERNAL, "no trace came to the collector")
    usual_us = median(each.cpu_us for each in found["off"])
    metrics: dict[str, float] = {}
    for name, measured in found.items():
        cpu_us = median(each.cpu_us for each in measured)
        metrics[f"{name}_post_per_s"] = median(each.load.per_s for each in measured)
        metrics[f"{name}_post_cpu_us"] = cpu_us
        if name != "off":
            metrics[f"{name}_cpu_share"] = cpu_us / usual_us
    return metrics


async def _take_turns(
    services: Mapping[str, LoadedService], seconds: float, turns: int
) -> dict[str, list[Measured]]:
    """Measure each service in each turn; the topics must hold all that was acknowledged."""
    posts = {name: single_posts(f"bench/{name}") for name in services}
    acknowledged = dict.fromkeys(services, 0)
    found: dict[str, list[Measured]] = {name: [] for name in services}
    for name, service in services.items():
        await create_topic(service.url, posts[name].topic)
    for turn in range(turns):
        names = list(services)
        for name in names if turn % 2 == 0 else reversed(names):
            appends = posts[name]
            headers = {"Content-Type": appends.content_type}
            if name == "off_traceparent":
                headers["traceparent"] = SAMPLED
            url, path = services[name].url, f"/v1/topics/{appends.topic}/messages"
            request = encode_request("POST", url, path, body=appends.body, headers=headers)
            sources = repeated(request, appends.connections)
            measured, requests = await measure_load(services[name], sources, seconds)
            found[name].append(measured)
            acknowledged[name] += requests
    for name, service in services.items():
        await check_tail(service.url, posts[name].topic, acknowledged[name])
    return found


class _Collector:
    """A collector that counts requests, and keeps nothing."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                _, _, length = head.partition(b"\r\ncontent-length:")
                await reader.readexactly(int(length.partition(b"\r\n")[0]))
                self.requests += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def _collector() -> AsyncIterator[_Collector]:
    collector = _Collector()
    server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    collector.url = f"http://{host}:{port}"
    try:
        yield collector
    finally:
        server.close()
