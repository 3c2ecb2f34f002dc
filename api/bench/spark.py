"""``fencelog bench spark``: reads and writes from Spark, beside the limits of its pipe."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencelog.api.bench.harness.load import connected, encode_request, refused
from fencelog.api.bench.http import BATCH_TYPE, standalone
from fencelog.api.client import FencelogClient
from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.record_batch import encode_values

PARTITIONS = 2
IN_FLIGHT_BYTES = 1_000_000
MAX_CONNECTIONS = 64
"""Appends at the same time: many where they are small, so that they share the journal's syncs."""


@dataclass(frozen=True, slots=True)
class SparkTopic:
    """A topic to read: values of ``value_bytes``, appended ``batch`` at a time."""

    name: str
    value_bytes: int
    batch: int
    share: float
    """The part of the messages of the first topic that are read of this one."""

    @property
    def topic(self) -> str:
        return f"bench/{self.name}"

    @property
    def connections(self) -> int:
        return min(MAX_CONNECTIONS, max(4, IN_FLIGHT_BYTES // (self.value_bytes * self.batch)))


LARGEST = SparkTopic("100b_by_1000", 100, 1000, 1)
PLANNED = SparkTopic("1kb_by_1000", 1000, 1000, 0.25)
TOPICS = (
    LARGEST,
    SparkTopic("100b_by_10", 100, 10, 0.25),
    PLANNED,
    SparkTopic("1kb_by_10", 1000, 10, 0.05),
)

WRITTEN = "bench/written"


async def measure_spark(
    directory: Path, _seconds: float, *, messages: int, planned_bytes: int = 1024 * MIB
) -> dict[str, float]:
    """Fill the topics, and have a Spark of its own measure: ``fencelog.spark_connector.bench``.

    Raises FencelogError(INTERNAL) if Spark fails or counts other messages than it should.
    """
    async with standalone(directory) as service:
        for topic in TOPICS:
            wanted = rows_of(topic, messages)
            if topic is PLANNED:
                wanted = max(wanted, planned_bytes // topic.value_bytes)
            await fill(service.url, topic, wanted)
        async with FencelogClient(service.url) as client:
            await client.create_topic(WRITTEN, partitions=PARTITIONS)
        metrics = await _ask_spark(service.url, directory, _work(messages))
    for topic in TOPICS:
        rows, read = metrics.pop(f"{topic.name}_rows"), rows_of(topic, messages)
        if rows != read:
            raise FencelogError(
                ErrorCode.INTERNAL, f"Spark counts {rows} messages of {topic.name}, not {read}"
            )
    return metrics


def _work(messages: int) -> dict[str, Any]:
    return {
        "reads": {topic.topic: rows_of(topic, messages) for topic in TOPICS},
        "planned": PLANNED.topic,
        "written": {
            "topic": WRITTEN,
            "rows": messages // 2,
            "value_bytes": LARGEST.value_bytes,
        },
        "triggers": LARGEST.topic,
    }


def rows_of(topic: SparkTopic, messages: int) -> int:
    """Return how many messages of a topic are read, a whole number of appends to each partition."""
    each = PARTITIONS * topic.batch
    return each * max(1, int(messages * topic.share) // each)


async def fill(url: str, topic: SparkTopic, messages: int) -> None:
    """Append at least so many messages, to each partition as many as to the other."""
    data = os.urandom(topic.value_bytes * topic.batch)
    values = [data[n : n + topic.value_bytes] for n in range(0, len(data), topic.value_bytes)]
    body = encode_values(values)
    async with FencelogClient(url) as client:
        await client.create_topic(topic.topic, partitions=PARTITIONS)
    requests = iter(range(-(-messages // (PARTITIONS * topic.batch)) * PARTITIONS))
    headers = {"Content-Type": BATCH_TYPE}

    async def append() -> None:
        async with connected(url) as connection:
            for number in requests:
                path = f"/v1/topics/{topic.topic}/messages:batch?partition={number % PARTITIONS}"
                request = encode_request("POST", url, path, body=body, headers=headers)
                response = await connection.request(request)
                if response.status != 201:
                    raise refused(response)

    async with task_group() as group:
        for _ in range(topic.connections):
            group.start_soon(append)


async def _ask_spark(url: str, directory: Path, work: dict[str, Any]) -> dict[str, float]:
    result, log = directory / "spark.json", directory / "spark.log"
    command = [sys.executable, "-m", "fencelog.spark_connector.bench.main", url, str(result)]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, json.dumps(work), stdout=output, stderr=output
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if not result.exists():
        last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise FencelogError(ErrorCode.INTERNAL, f"Spark failed: {' '.join(last)}")
    metrics: dict[str, float] = json.loads(result.read_text())
    return metrics
