"""The cost of a scrape of ``/metrics`` at several numbers of topics.

    python -m tests.bench.metrics_cost [NUMBER …]

Every topic has traffic, and a tenth of them gets a message between two scrapes. Each number is
measured without subscriptions, and with one for each topic that has a backlog, which is the worst
case. The broker is real, over ledgers and metadata in memory. Each measurement has a process of its
own, and stands beside one plain look at all topics (``look_ms``), which says how fast the machine
is just then.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import product
from statistics import median
from typing import Any

from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.metrics.service import ServiceMetrics
from fencelog.api.processes.garbage import GarbageCollection
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metrics import LedgerCounts
from fencelog.ledgers.record_batch import Message
from tests.support.scripted_ledgers import ScriptedLedgers

POINTS = (1_000, 10_000, 30_000)

SCRAPES = 15

MAX_CPU_MS = 50
"""The limit of a scrape of MAX_TOPICS."""
MAX_TOPICS = 10_000

MAX_TURN_MS = 10
"""The limit of one turn of the event loop, which an append may have to wait for: CPU time, in the
median of the scrapes."""


class NoHealing:
    """Self-healing without a process. Implements ``Healing``."""

    def now_us(self) -> int:
        return SystemHost().now_us()

    async def status(self) -> dict[str, Any]:
        return {"is_enabled": True, "auditor": None, "processes": []}

    async def checks(self) -> dict[str, Any]:
        return {"results": {}}


@asynccontextmanager
async def broker_with(
    topics: int, *, subscribed: bool
) -> AsyncIterator[tuple[Broker, list[PartitionLog]]]:
    """Run a broker with so many topics of one partition, each with a subscription or none."""
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    config = BrokerConfig("a", "http://a")
    broker = Broker(store, ScriptedLedgers(), host=SystemHost(), config=config)
    await broker.start()
    try:
        yield (
            broker,
            [await _opened(broker, number, subscribed=subscribed) for number in range(topics)],
        )
    finally:
        await broker.close()
        await store.close()


async def _opened(broker: Broker, number: int, *, subscribed: bool) -> PartitionLog:
    name = TopicName.of("shop", f"orders-{number}")
    topic, _ = await broker.topics.create(name, TopicConfig(partitions=1))
    log = await broker.partition(name, 0)
    if subscribed:
        registered, _ = await broker.subscriptions.create(
            topic.topic_id, "billing", SubscriptionConfig(), "earliest", partitions=1, at_most=1
        )
        await log.subscriptions.begin(registered)
    await log.append_message(Message(b"x" * 100))
    return log


async def measure(topics: int, *, subscribed: bool) -> dict[str, Any]:
    """Return the CPU time of a scrape, the longest turn of the event loop in it, and its size."""
    async with broker_with(topics, subscribed=subscribed) as (broker, logs):
        for number, slot in enumerate(broker.open_slots()):
            slot.meter.in_bytes_per_s = 1e6 + number
        await broker._balancer.round(1e-9)  # a time in which no mean changes
        counted = LedgerCounts()
        metrics = ServiceMetrics(ApiMetrics(), broker, counted, (), NoHealing())
        gc.collect()
        soon = asyncio.get_running_loop().call_soon_threadsafe
        GarbageCollection(soon).start()  # As processes that serve do.
        text = (await metrics.text()).decode()  # The first one counts all backlogs.
        assert f"fencelog_broker_partitions {float(topics)}" in text
        assert text.count("fencelog_topic_in_bytes_per_second{") == min(topics, 100) + 1
        rows = min(topics, 100) if subscribed else 0
        assert text.count("fencelog_subscription_lag_seconds{") == rows
        cpu_ms, turns_ms, looks_ms = [], [], []
        for number in range(SCRAPES):
            for log in logs[number % 10 :: 10]:
                await log.append_message(Message(b"x" * 100))
            used_ms, turn_ms = await _scrape(metrics)
            cpu_ms.append(used_ms)
            turns_ms.append(turn_ms)
            looks_ms.append(_look(broker))
    return {
        "topics": topics,
        "subscribed": subscribed,
        "cpu_ms": round(median(cpu_ms), 2),
        "look_ms": round(median(looks_ms), 2),
        "longest_turn_ms": round(median(turns_ms), 2),
        "bytes": len(text),
    }


async def _scrape(metrics: ServiceMetrics) -> tuple[float, float]:
    """Return the CPU time of one scrape, and its longest turn of the event loop."""
    turns: list[float] = []

    async def watch() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            turns.append(now - last)
            last = now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    began = time.process_time()
    await metrics.text()
    used_s = time.process_time() - began
    await asyncio.sleep(0)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    return used_s * 1000, max(turns) * 1000


def _look(broker: Broker) -> float:
    """Return the CPU time of one plain look at all topics."""
    began = time.process_time()
    looked_at = {str(slot.info.name): slot.meter.score for slot in broker.open_slots()}
    assert all(looked_at.values())
    return (time.process_time() - began) * 1000


def in_process(topics: int, *, subscribed: bool = True) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.metrics_cost", "--one", str(topics)]
    command += ["--subscribed"] * subscribed
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def too_much(measured: dict[str, Any]) -> list[str]:
    """Return what of a measurement is over the limits."""
    topics, found = measured["topics"], []
    if measured["cpu_ms"] > MAX_CPU_MS * max(1, topics / MAX_TOPICS):
        found.append(f"a scrape of {topics} topics took {measured['cpu_ms']} ms of a core")
    if measured["longest_turn_ms"] > MAX_TURN_MS:
        found.append(f"{topics} topics held the loop for {measured['longest_turn_ms']} ms")
    return found


def main(arguments: Sequence[str]) -> None:
    """Print two lines for each number of topics; fail if one takes too much."""
    if arguments[:1] == ["--one"]:
        sys.stdout.write(
            json.dumps(
                asyncio.run(measure(int(arguments[1]), subscribed="--subscribed" in arguments))
            )
        )
        return
    failed = []
    for topics, subscribed in product(map(int, arguments or POINTS), (False, True)):
        measured = in_process(topics, subscribed=subscribed)
        sys.stdout.write(f"{json.dumps(measured)}\n")
        sys.stdout.flush()
        failed += too_much(measured)
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
