"""``fencelog bench fanin``: single posts that are spread over many topics of one service."""

from __future__ import annotations

import random  # noqa: TID251 - a load generator is never played by the simulator
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.errors import ErrorCode, FencelogError


async def measure_fanin(
    directory: Path, seconds: float, *, topics: Sequence[int], connections: int, cluster: bool
) -> dict[str, float]:
    """Measure 1 KiB posts from so many connections, each time to a topic taken at random, for each
    number of topics: the rate, p50, p99, and the service's CPU time for a post. ``cluster``: the
    service is a broker and three bookies in processes of their own."""
    metrics: dict[str, float] = {}
    start = _one_broker if cluster else standalone
    for number in topics:
        # A service of its own: the topics of the phase before cost it nothing.
        async with start(directory / str(number)) as service:
            measured = await _measure(service, number, connections, seconds)
        metrics |= post_metrics(f"topics_{number}_post", measured)
    return metrics


@asynccontextmanager
async def _one_broker(directory: Path) -> AsyncIterator[LoadedService]:
    async with running_cluster(ClusterConfig(directory, brokers=1, http_port=0)) as cluster:
        yield loaded(cluster, *cluster.urls)


def loaded(cluster: Cluster, *urls: str) -> LoadedService:
    """Return a cluster as the service that is asked at these URLs: the CPU time of all its brokers
    and bookies counts."""
    processes = (*cluster.bookies, *cluster.brokers)
    return LoadedService(urls, tuple(process.pid for process in processes))


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
