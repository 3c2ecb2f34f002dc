"""``fencelog bench routes``: the same requests sent to the owner of a partition and to another
broker, in a cluster of processes with ZooKeeper."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from fencelog.api.bench.fanin import (
    append_to_each,
    check_tails,
    create_topics,
    loaded,
    post_metrics,
    random_topics,
)
from fencelog.api.bench.harness.load import connected, encode_request, refused
from fencelog.api.bench.http import (
    LoadedService,
    Measured,
    append_request,
    append_sources,
    call,
    create_topic,
    measure_load,
    record_batches,
    single_posts,
    tail_offset,
)
from fencelog.api.bench.read import read_all
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.errors import ErrorCode, FencelogError

TOPICS = 20
"""The topics of the mixed load, each owned by one of two brokers and asked for at both."""

READ_BATCHES = 100


async def measure_routes(directory: Path, seconds: float) -> dict[str, float]:
    """Measure posts of 64 connections and of one, and reads of record batches, ``seconds`` each:
    through the owner, then through the other broker; and posts to TOPICS topics over both."""
    async with running_cluster(ClusterConfig(directory, brokers=2, http_port=0)) as cluster:
        metrics: dict[str, float] = {}
        await create_topic(cluster.urls[0], single_posts().topic)
        owner, other = await _owner_first(cluster, single_posts().topic)
        for name, url in (("owner", owner), ("other", other)):
            service = loaded(cluster, url)
            metrics |= post_metrics(f"{name}_post", await _posts(service, 64, seconds))
            metrics |= post_metrics(f"{name}_single_post", await _posts(service, 1, seconds))
        await _fill(owner)
        for name, url in (("owner", owner), ("other", other)):
            metrics[f"{name}_read_messages_per_s"] = await _read(url, seconds)
        metrics |= post_metrics(f"topics_{TOPICS}_post", await _many(cluster, seconds))
    return metrics


async def _owner_first(cluster: Cluster, topic: str) -> tuple[str, str]:
    """Return the URL of the owner of the topic's partition 0, and that of the other broker."""
    url = cluster.urls[0]
    await tail_offset(url, topic)  # a partition has an owner once it was asked for
    response = await call(url, encode_request("GET", url, f"/v1/topics/{topic}/owners"), 200)
    answer: dict[str, Any] = json.loads(response.body)
    owner = str(answer["owners"][0]["url"])
    (other,) = [each for each in cluster.urls if each != owner]
    return owner, other


async def _posts(service: LoadedService, connections: int, seconds: float) -> Measured:
    """Measure posts; the topic must hold all that was acknowledged."""
    posts = replace(single_posts(), connections=connections)
    before = await tail_offset(service.url, posts.topic)
    measured, requests = await measure_load(service, append_sources(service.url, posts), seconds)
    stored = await tail_offset(service.url, posts.topic) - before
    if stored != requests:
        raise FencelogError(
            ErrorCode.INTERNAL, f"{stored} messages were stored, {requests} were acknowledged"
        )
    return measured


async def _fill(url: str) -> None:
    """Give the posts' topic record batches to read."""
    batch = replace(record_batches(), topic=single_posts().topic)
    async with connected(url) as connection:
        for _ in range(READ_BATCHES):
            response = await connection.request(append_request(url, batch))
            if response.status != 201:
                raise refused(response)


async def _read(url: str, seconds: float) -> float:
    """Return the messages per second of a reader that reads the record batches of ``_fill`` over
    and over."""
    topic = single_posts().topic
    tail = await tail_offset(url, topic)
    first = tail - READ_BATCHES * record_batches().messages
    count = 0
    async with connected(url) as connection:
        begin = perf_counter()
        while perf_counter() - begin < seconds:
            await read_all(connection, url, topic, first, tail)
            count += tail - first
        return count / (perf_counter() - begin)


async def _many(cluster: Cluster, seconds: float) -> Measured:
    """Measure posts to TOPICS topics, half of the connections at each of the brokers."""
    names = await create_topics(cluster.urls[0], TOPICS)
    first = 0
    for half, url in enumerate(cluster.urls):  # the broker that is asked first becomes the owner
        first += await append_to_each(url, names[half::2])
    service = loaded(cluster, *cluster.urls)
    sources = [random_topics(service.url, names, seed) for seed in range(64)]
    measured, acknowledged = await measure_load(service, sources, seconds)
    await check_tails(service.url, names, first + acknowledged)
    return measured
