"""``fencelog bench fanin``: single posts that are spread over many topics of one service."""

from __future__ import annotations

import random  # noqa: TID251 - a load generator is never played by the simulator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fencelog.api.bench.harness.limits import percentile
from fencelog.api.bench.harness.load import RequestSource
from fencelog.api.bench.http import (
    LoadedService,
    Measured,
    append_request,
    call,
    create_topic,
    measure_load,
    single_posts,
    standalone,
    tail_offset,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError


async def measure_fanin(
    directory: Path, seconds: float, *, topics: Sequence[int], connections: int
) -> dict[str, float]:
    """Measure 1 KiB posts from so many connections, each time to a topic taken at random, for each
    number of topics: the rate, p50, p99, and the service's CPU time for a post."""
    metrics: dict[str, float] = {}
    for number in topics:
        # A service of its own: the topics of the phase before cost it nothing.
        async with standalone(directory / str(number)) as service:
            measured = await _measure(service, number, connections, seconds)
        metrics |= post_metrics(f"topics_{number}_post", measured)
    return metrics


def post_metrics(name: str, measured: Measured) -> dict[str, float]:
    """Return the metrics of one measurement, their names beginning with ``name``."""
    latencies_s = measured.load.latencies_s
    return {
        f"{name}_per_s": measured.load.per_s,
        f"{name}_p50_ms": percentile(latencies_s, 0.5) * 1e3,
        f"{name}_p99_ms": percentile(latencies_s, 0.99) * 1e3,
        f"{name}_cpu_us": measured.cpu_us,
    }


async def _measure(
    service: LoadedService, topics: int, connections: int, seconds: float
) -> Measured:
    names = await create_topics(service.url, topics)
    sources = [random_topics(service.url, names, seed) for seed in range(connections)]
    first = await append_to_each(service.url, names)
    measured, acknowledged = await measure_load(service, sources, seconds)
    await check_tails(service.url, names, first + acknowledged)
    return measured


async def create_topics(url: str, topics: int) -> list[str]:
    """Create topics of one partition, and return their names."""
    names = [f"bench/fanin-{number}" for number in range(topics)]
    for name in names:
        await create_topic(url, name)
    return names


async def append_to_each(url: str, names: Sequence[str]) -> int:
    """Append a message to each topic, so that each has an owner and a ledger; return the number."""
    for name in names:
        await call(url, append_request(url, replace(single_posts(), topic=name)), 201)
    return len(names)


def random_topics(url: str, names: Sequence[str], seed: int) -> RequestSource:
    """Return the requests of one connection: the same message, to a topic taken at random."""
    post = single_posts()
    requests = [append_request(url, replace(post, topic=name)) for name in names]
    return partial(random.Random(seed).choice, requests)


async def check_tails(url: str, names: Sequence[str], acknowledged: int) -> None:
    """Check that the topics together hold what was acknowledged. Raises FencelogError(INTERNAL)."""
    stored = sum([await tail_offset(url, name) for name in names])
    if stored != acknowledged:
        raise FencelogError(
            ErrorCode.INTERNAL,
            f"{len(names)} topics hold {stored} messages, {acknowledged} were acknowledged",
        )
