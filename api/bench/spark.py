"""``fencelog bench spark``: batch reads from Spark, beside Parquet and the limit of its pipe."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from fencelog.api.bench.http import BATCH_TYPE, standalone
from fencelog.api.bench.load import connected, encode_request, refused
from fencelog.api.client import FencelogClient
from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_values

PARTITIONS = 2
CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class SparkTopic:
    """A topic to read: values of ``value_bytes``, appended ``batch`` at a time."""

    name: str
    value_bytes: int
    batch: int
    share: float
    """The part of the messages of the first topic that this one has."""


TOPICS = (
    SparkTopic("100b_by_1000", 100, 1000, 1),
    SparkTopic("100b_by_10", 100, 10, 0.5),
    SparkTopic("1kb_by_1000", 1000, 1000, 0.25),
    SparkTopic("1kb_by_10", 1000, 10, 0.125),
)


async def measure_spark(directory: Path, _seconds: float, *, messages: int) -> dict[str, float]:
    """Fill the topics, and have a Spark of its own read them: ``fencelog.spark_connector.bench``.

    Raises FencelogError(INTERNAL) if Spark fails or counts other messages than were appended.
    """
    async with standalone(directory) as service:
        for topic in TOPICS:
            await _fill(service.url, topic, _requests(topic, messages))
        metrics = await _ask_spark(service.url, directory)
    for topic in TOPICS:
        rows, wanted = metrics.pop(f"{topic.name}_rows"), topic.batch * _requests(topic, messages)
        if rows != wanted:
            raise FencelogError(
                ErrorCode.INTERNAL, f"Spark counts {rows} messages of {topic.name}, not {wanted}"
            )
    return metrics


def _requests(topic: SparkTopic, messages: int) -> int:
    """Return the appends to a topic, a multiple of those at the same time."""
    each = CONNECTIONS * topic.batch
    return CONNECTIONS * max(1, int(messages * topic.share) // each)


async def _fill(url: str, topic: SparkTopic, requests: int) -> None:
    data = os.urandom(topic.value_bytes * topic.batch)
    values = [data[n : n + topic.value_bytes] for n in range(0, len(data), topic.value_bytes)]
    body = encode_values(values)
    async with FencelogClient(url) as client:
        await client.create_topic(f"bench/{topic.name}", partitions=PARTITIONS)

    async def append(number: int) -> None:
        path = f"/v1/topics/bench/{topic.name}/messages:batch?partition={number % PARTITIONS}"
        request = encode_request("POST", url, path, body=body, headers={"Content-Type": BATCH_TYPE})
        async with connected(url) as connection:
            for _ in range(requests // CONNECTIONS):
                response = await connection.request(request)
                if response.status != 201:
                    raise refused(response)

    async with task_group() as group:
        for number in range(CONNECTIONS):
            group.start_soon(append, number)


async def _ask_spark(url: str, directory: Path) -> dict[str, float]:
    result, log = directory / "spark.json", directory / "spark.log"
    module = "fencelog.spark_connector.bench"
    names = [f"bench/{topic.name}" for topic in TOPICS]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, url, str(result), *names, stdout=output, stderr=output
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
