"""The timeline of a cluster of processes: who has taken a partition over, from whom, and when."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.host import SystemHost
from tests.support.fencelog_cli import fencelog

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

TOPIC = "default/orders"


async def takeovers(cluster: Cluster, *options: str) -> list[dict[str, Any]]:
    servers = ",".join(cluster.urls)
    command = ("events", "--json", "--kind", "takeover", "--topic", TOPIC, *options)
    done = await asyncio.get_running_loop().run_in_executor(
        None, lambda: fencelog(*command, "--server", servers)
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


async def test_a_killed_owner_and_the_one_that_follows_it_are_named(tmp_path: Path) -> None:
    config = ClusterConfig(tmp_path, brokers=2, http_port=0)
    async with running_cluster(config) as cluster, FencelogClient(cluster.urls) as client:
        await client.create_topic(TOPIC)
        await client.append(TOPIC, b"before", partition=0)
        (owner,) = await client.owners(TOPIC)
        victim = cluster.broker_at(owner["url"])
        async with asyncio.timeout(10):
            while len(await takeovers(cluster)) < 1:  # noqa: ASYNC110 - a command
                await asyncio.sleep(0.1)
        killed_us = SystemHost().now_us()
        await victim.kill()
        async with asyncio.timeout(30):
            # An append that was on its way to the owner may be of unknown outcome; this one has
            # not been sent yet.
            await client.append(TOPIC, b"after", partition=0)
            while len(found := await takeovers(cluster, "--since", "10m")) < 2:  # noqa: ASYNC110 - a command
                await asyncio.sleep(0.1)
        taken_us = SystemHost().now_us()
        survivor = next(broker for broker in cluster.brokers if broker.is_running)
        first, second = found
        assert (first["broker_id"], first["epoch"], first["from"]) == (victim.name, 1, None)
        assert (second["broker_id"], second["epoch"]) == (survivor.name, 2)
        assert second["from"]["broker_id"] == victim.name
        assert second["from"]["ended"] in ("unreachable", "session_ended")
        assert killed_us < second["time_us"] < taken_us
        assert second["detail"]["recovered"] == [first["ledger_id"]]


async def test_a_drain_hands_over_and_says_so(tmp_path: Path) -> None:
    config = ClusterConfig(tmp_path, brokers=2, http_port=0)
    async with running_cluster(config) as cluster, FencelogClient(cluster.urls) as client:
        await client.create_topic(TOPIC)
        await client.append(TOPIC, b"before", partition=0)
        (owner,) = await client.owners(TOPIC)
        victim = cluster.broker_at(owner["url"])
        await victim.stop()
        async with asyncio.timeout(20):
            while len(found := await takeovers(cluster)) < 2:  # noqa: ASYNC110 - a command
                await asyncio.sleep(0.1)
        assert found[1]["from"] == {"broker_id": victim.name, "ended": "released"}
        drained = fencelog("events", "--kind", "drain", "--server", ",".join(cluster.urls))
        begun, done = drained.stdout.decode().splitlines()
        assert f"{victim.name}: drain of " in begun
        assert done.endswith(f"{victim.name}: drained")


async def test_a_cluster_may_record_nothing(tmp_path: Path) -> None:
    config = ClusterConfig(tmp_path, brokers=1, http_port=0, record_events=False)
    async with running_cluster(config) as cluster, FencelogClient(cluster.urls) as client:
        await client.create_topic(TOPIC)
        await client.append(TOPIC, b"x", partition=0)
        await asyncio.sleep(1)
        assert await takeovers(cluster) == []
        assert [topic["topic"] for topic in await client.topics()] == ["orders"]
