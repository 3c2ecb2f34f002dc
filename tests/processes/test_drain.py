"""Brokers that leave while they are written to: by SIGTERM, and as an operator asks for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import ClusterConfig, running_cluster
from fencelog.ledgers.errors import Effects, FencelogError
from fencelog.ledgers.record_batch import decode_batch

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

TOPIC = "default/moving"
PARTITIONS = 8

GAP_S = 3.0
"""Generous: the longest that a producer waits between two acknowledgements on a busy machine."""


@dataclass
class Producer:
    """Appends to one partition, one message after the other, and never one of them twice."""

    partition: int
    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    longest_s: float = 0.0
    sent: int = 0
    refused: int = 0

    async def run(self, client: FencelogClient, stop: asyncio.Event) -> None:
        last = time.monotonic()
        while not stop.is_set():
            value = b"%d-%d" % (self.partition, self.sent)
            try:
                done = await client.append(TOPIC, value, partition=self.partition)
            except FencelogError as error:
                if error.code.effects is Effects.MAYBE:
                    raise
                self.refused += 1
                await asyncio.sleep(0.01)
                continue
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - last)
            last = now
            self.acknowledged.append((done.offset, value))
            self.sent += 1
            await asyncio.sleep(0.002)


async def move_about(url: str) -> None:
    """Act as an operator: unload one partition, drain one broker."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
        ids = [found["broker_id"] for found in (await http.get("/v1/brokers")).json()["brokers"]]
        partition = f"/v1/topics/{TOPIC}/partitions/0"
        for to in ids[:2]:
            moved = await http.post(f"{partition}:unload", json={"to": to})
            assert moved.json() == {"partition": 0, "broker_id": to}
        drained = await http.post(f"/v1/brokers/{ids[2]}:drain")
        assert drained.json() == {"broker_id": ids[2], "not_taken": 0, "still_open": 0}
        shown = (await http.get(f"/v1/brokers/{ids[2]}")).json()
        assert (shown["draining"], shown["owned"]) == (True, [])


async def test_nothing_is_lost_and_nobody_waits_long_when_brokers_leave(tmp_path: Path) -> None:
    config = ClusterConfig(tmp_path, brokers=3, http_port=0)
    async with running_cluster(config) as cluster, FencelogClient(cluster.urls) as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS)
        stop = asyncio.Event()
        producers = [Producer(number) for number in range(PARTITIONS)]
        clients = [FencelogClient(cluster.urls[n % 2 :]) for n in range(PARTITIONS)]
        async with asyncio.TaskGroup() as group:
            for producer, client in zip(producers, clients, strict=True):
                group.create_task(producer.run(client, stop))
            await asyncio.sleep(0.5)
            await move_about(cluster.urls[0])
            await cluster.brokers[0].stop()
            await asyncio.sleep(0.3)
            stop.set()
        for client in clients:
            await client.close()
        for producer in producers:
            batches = admin.batches(TOPIC, producer.partition)
            values = [m.value async for b in batches for m in decode_batch(b.batch)]
            assert values == [value for _, value in producer.acknowledged]
            assert [offset for offset, _ in producer.acknowledged] == list(range(len(values)))
            assert values
        assert max(producer.longest_s for producer in producers) < GAP_S
        assert "Traceback" not in "".join(p.read_text() for p in (tmp_path / "log").iterdir())
