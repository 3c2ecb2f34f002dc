"""Spark's connector for Kafka beside ours: the same Spark, the same rows, on the same two cores.

    python -m tests.bench.kafka_connector DIRECTORY_OF_JARS MESSAGES      (make bench-kafka)

Kafka is one broker in KRaft mode. It keeps one copy and leaves it to the system when that is
written to the disk; the service here keeps three copies, each synced. In the topics that are read
Kafka's batches are as large as the entries here (``LARGE_BATCHES``). Both count what they hold
before they are measured, then read all columns into ``noop``, in turn, the best of three.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencelog.api.bench.http import standalone
from fencelog.api.bench.spark import PARTITIONS, TOPICS, WRITTEN, SparkTopic, fill, rows_of
from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.zookeeper import find_java
from fencelog.ledgers.limits import MIB
from fencelog.spark_connector.bench.main import local_session
from fencelog.spark_connector.bench.pipe import SCHEMA, TASKS
from fencelog.spark_connector.bench.reads import drop
from fencelog.spark_connector.bench.rounds import best_s
from tests.support.network.secure_zookeeper import free_ports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES_OF_ENTRY = 1000
SINK_BYTES = 100
"""The topics that are read have entries of so many messages, and the rows that are written values
of so many bytes."""

LARGE_BATCHES = {
    "kafka.batch.size": str(MIB),
    "kafka.linger.ms": "50",
    "kafka.buffer.memory": str(64 * MIB),
    "kafka.max.request.size": str(4 * MIB),
}
"""The settings with which a producer of Kafka makes batches of 1 MiB; as it comes, of 16 KiB."""


def server_properties(directory: Path, port: int, controller_port: int) -> str:
    """Return the configuration of a broker that is its own controller, on the loopback address."""
    broker, controller = f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}"
    return "\n".join(
        (
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@{controller}",
            f"listeners=PLAINTEXT://{broker},CONTROLLER://{controller}",
            f"advertised.listeners=PLAINTEXT://{broker}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"log.dirs={directory / 'kafka'}",
            f"num.partitions={PARTITIONS}",
            "offsets.topic.replication.factor=1",
            f"message.max.bytes={4 * MIB}",
        )
    )


@contextmanager
def kafka_broker(java: str, jars: Path, directory: Path) -> Iterator[str]:
    """Run a broker; return the address that clients begin with. They wait until it serves."""
    (port, controller_port), properties = free_ports(), directory / "server.properties"
    properties.write_text(server_properties(directory, port, controller_port), "utf-8")
    command = [java, "-Xmx2G", "-cp", str(jars / "*")]
    with (directory / "kafka.log").open("wb") as log:
        storage = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ"]
        subprocess.run(
            [*command, *storage, "-c", str(properties)], check=True, stdout=log, stderr=log
        )
        broker = subprocess.Popen(
            [*command, "kafka.Kafka", str(properties)], stdout=log, stderr=log
        )
        try:
            yield f"127.0.0.1:{port}"
        finally:
            broker.kill()
            broker.wait()


@asynccontextmanager
async def filled_service(directory: Path, messages: int) -> AsyncIterator[str]:
    """Run a service whose topics have their messages; return its address."""
    async with standalone(directory) as service:
        for topic in read_topics():
            await fill(service.url, topic, rows_of(topic, messages))
        async with FencelogClient(service.url) as client:
            await client.create_topic(WRITTEN, partitions=PARTITIONS)
        yield service.url


def read_topics() -> list[SparkTopic]:
    return [topic for topic in TOPICS if topic.batch == MESSAGES_OF_ENTRY]


def measure(
    spark: SparkSession, url: str, kafka: Mapping[str, str], messages: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what was measured, in rows per second of both connectors. ``kafka``: the options that
    name the broker."""
    for topic in read_topics():
        rows = rows_of(topic, messages)
        yield topic.name, _per_s(rows, _reads(spark, url, kafka, topic, rows))
    rows = messages // 2
    yield f"sink of {SINK_BYTES} B", _per_s(rows, _writes(spark, url, kafka, rows))


def _per_s(rows: int, took: Mapping[str, float]) -> dict[str, float]:
    return {name: round(rows / seconds) for name, seconds in took.items()}


def _reads(
    spark: SparkSession, url: str, kafka: Mapping[str, str], topic: SparkTopic, rows: int
) -> dict[str, float]:
    end = json.dumps({str(partition): rows // PARTITIONS for partition in range(PARTITIONS)})
    here = spark.read.format("fencelog").options(server=url, topic=topic.topic, endingOffsets=end)
    ours = here.schema(SCHEMA).load()
    values = ours.select("value").write.format("kafka")
    values.options(topic=topic.name, **LARGE_BATCHES, **kafka).save()
    theirs = spark.read.format("kafka").options(subscribe=topic.name, **kafka).load()
    for frame in (ours, theirs):
        _check_holds(frame, rows, topic.value_bytes)
    return best_s({"fencelog": lambda: drop(ours), "kafka": lambda: drop(theirs)})


def _check_holds(frame: DataFrame, rows: int, value_bytes: int) -> None:
    found = tuple(frame.selectExpr("count(*)", "sum(length(value))").collect()[0])
    if found != (rows, rows * value_bytes):
        sys.exit(f"{found} are there, in place of {rows} rows of {value_bytes} bytes")


def _writes(spark: SparkSession, url: str, kafka: Mapping[str, str], rows: int) -> dict[str, float]:
    value = f"CAST(repeat('v', {SINK_BYTES}) AS BINARY) AS value"
    table = spark.range(0, rows, 1, TASKS).selectExpr(value)

    def write(kind: str, options: Mapping[str, Any]) -> None:
        table.write.format(kind).mode("append").options(**options).save()

    here = {"server": url, "topic": WRITTEN}
    there = {"topic": "written", **kafka}
    return best_s(
        {
            "fencelog": lambda: write("fencelog", here),
            "fencelog, as segments": lambda: write("fencelog", here | {"exactlyOnce": "segments"}),
            "kafka, as it comes": lambda: write("kafka", there),
            "kafka, large batches": lambda: write("kafka", there | LARGE_BATCHES),
        }
    )


def measure_all(url: str, address: str, connector: Path, messages: int) -> None:
    """Print a line of rows per second for each topic, and one for the sinks."""
    spark = local_session({"spark.jars": ",".join(map(str, sorted(connector.glob("*.jar"))))})
    kafka = {"kafka.bootstrap.servers": address}
    try:
        for name, rows_per_s in measure(spark, url, kafka, messages):
            sys.stdout.write(f"{name}: {json.dumps(rows_per_s)}\n")
            sys.stdout.flush()
    finally:
        spark.stop()


async def main(jars: Path, messages: int) -> int:
    """Run both services, and a process that measures them; return its exit code."""
    java = await find_java()
    with tempfile.TemporaryDirectory(dir=Path()) as name:
        directory = Path(name).resolve()
        with kafka_broker(java, jars / "server", directory) as address:
            async with filled_service(directory, messages) as url:
                arguments = (url, address, str(jars / "connector"), str(messages))
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.bench.kafka_connector", *arguments
                )
                return await process.wait()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]))))
    measure_all(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
