"""``fencelog bench topics``: the cost of many topics for one broker, in memory and at a takeover.

The cluster has real processes, ZooKeeper included: one broker gets a message in each topic and is
killed, and another one takes all topics over, requested by clients that want to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import httpx

from fencelog.api.bench.bookie import resident_mb
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.errors import ErrorCode, FencelogError

CLIENTS = 64
"""The requests in flight; so many partitions are opened at a time."""

REQUEST_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class TopicMetrics:
    """The metrics of one broker. ``bytes_per_idle_topic``: resident memory that a topic of one
    partition with one message adds, measured at the broker that took them over."""

    topics: int
    created_per_s: float
    first_appends_per_s: float
    takeovers_per_s: float
    takeover_s: float
    bytes_per_idle_topic: float
    rss_mb: float


async def measure_topics(directory: Path, seconds: float, *, topics: int) -> TopicMetrics:
    """Create topics, fill them, and have them taken over; ``seconds`` has no effect, all topics are
    measured."""
    names = [f"/v1/topics/bench/t{number}" for number in range(topics)]
    async with running_cluster(ClusterConfig(directory, brokers=1, http_port=0)) as cluster:
        (first,) = cluster.brokers
        created_s = await _all(cluster, names, lambda http, name: http.put(name))
        appended_s = await _all(
            cluster, names, lambda http, name: http.post(f"{name}/messages", content=b"x" * 100)
        )
        await first.kill()
        cluster.brokers.remove(first)
        second = await cluster.start_broker(2)
        empty = resident_mb(second.pid)[0]
        takeover_s = await _all(
            cluster, names, lambda http, name: http.head(f"{name}/partitions/0/messages")
        )
        full = resident_mb(second.pid)[0]
    return TopicMetrics(
        topics=topics,
        created_per_s=topics / created_s,
        first_appends_per_s=topics / appended_s,
        takeovers_per_s=topics / takeover_s,
        takeover_s=takeover_s,
        bytes_per_idle_topic=(full - empty) * 1e6 / topics,
        rss_mb=full,
    )


async def _all(
    cluster: Cluster,
    names: list[str],
    request: Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]],
) -> float:
    """Send a request for every topic, CLIENTS at a time, and return the seconds that it took.
    Raises INTERNAL for a request that failed."""
    waiting = iter(names)

    async def one_after_the_other() -> None:
        for name in waiting:
            answer = await request(http, name)
            if not answer.is_success:
                raise FencelogError(
                    ErrorCode.INTERNAL, f"{name}: {answer.status_code} {answer.text[:200]}"
                )

    (url,) = cluster.urls
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=REQUEST_TIMEOUT_S) as http:
        begin = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(one_after_the_other())
        return perf_counter() - begin
