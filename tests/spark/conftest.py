"""One Spark session and one filled service for all Spark tests; both take seconds to start."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.api.local_cluster.zookeeper import JAVA_PACKAGE, MIN_JAVA, find_java
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.record_batch import Message, encode_batch
from fencelog.ledgers.record_batch.codecs import CODEC_NONE, CODEC_ZSTD
from tests.spark.support.jvm import JVM_OPTIONS
from tests.support.house import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_TIMEOUT_S = 240

LEFT_SOCKETS = "ignore:.*socket:pytest.PytestUnraisableExceptionWarning"

PARTITIONS = 3

Read = Callable[..., "DataFrame"]


@dataclass
class Filled:
    """A running service, and what was appended to its topic ``spark/events`` by offset."""

    server: str = ""
    messages: dict[tuple[int, int], Message] = field(default_factory=dict)

    async def append(
        self,
        client: FencelogClient,
        batch: list[Message],
        partition: int,
        *,
        codec: int = CODEC_NONE,
    ) -> None:
        packed = encode_batch(batch, codec=codec)
        done = await client.append_batch("spark/events", packed, partition=partition)
        assert done.count == len(batch)
        for number, message in enumerate(batch):
            self.messages[partition, done.offset + number] = message


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses Spark, so that ``-m "not spark"`` needs no Java, and give it time: the first
    such test also waits for a JVM, a service that is restarted twice, and Spark's first query."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(START_TIMEOUT_S))
            if version("pyspark").startswith("4.0."):  # it leaves sockets to the garbage collector
                item.add_marker(pytest.mark.filterwarnings(LEFT_SOCKETS))


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which Spark's Python finds the package that names the data source."""
    return _as_installed(tmp_path_factory.mktemp("shim") / "site-packages")


@pytest.fixture(scope="session")
def spark(shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two worker slots that finds the data source by itself, and tries a task
    up to four times, as a cluster does."""
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(find_java())
    except FencelogError:
        pytest.fail(
            f"Spark needs Java {MIN_JAVA} or newer: apt-get install {JAVA_PACKAGE}", pytrace=False
        )
    from pyspark.sql import SparkSession

    place = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        # Beside the shim the tests, some of whose data sources fail on purpose.
        patch.setenv("PYTHONPATH", f"{shim}{os.pathsep}{ROOT}")
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2,4]")
            .config("spark.driver.memory", "512m")
            .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
            .config("spark.local.dir", str(place / "local"))
            .config("spark.sql.warehouse.dir", str(place / "warehouse"))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


def _as_installed(directory: Path) -> Path:
    """A directory for ``sys.path`` that holds the shim as site-packages would.

    Spark looks for it in directories, and an editable install puts it in none.
    """
    directory.mkdir()
    spec = importlib.util.find_spec("pyspark_fencelog")
    assert spec is not None
    assert spec.origin is not None
    os.symlink(Path(spec.origin).parent, directory / spec.name, target_is_directory=True)
    return directory


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Filled]:
    """A standalone service that was filled in three lives, the first of which ended by SIGKILL:
    every partition then has several ledgers, closed by recovery, closed in order, and open."""
    place = tmp_path_factory.mktemp("service")
    filled = Filled()
    for life in range(3):
        process = await _start(place)
        async with FencelogClient(process.announcement["http"]) as client:
            if life == 0:
                await client.create_topic("spark/empty", partitions=2)
                await client.create_topic("spark/events", partitions=PARTITIONS)
                await _fill_compacted(client)
            for partition in range(PARTITIONS):
                await _fill(filled, client, partition, life)
        if life < 2:
            await (process.kill() if life == 0 else process.stop())
    filled.server = process.announcement["http"]
    yield filled
    await process.stop()


async def _start(place: Path) -> ChildProcess:
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    return await ChildProcess.start("standalone", command, log=place / "log")


async def _fill(filled: Filled, client: FencelogClient, partition: int, life: int) -> None:
    """Batches of every shape: plain, compressed, with every column, of one message, large."""
    words = [b"the quick brown fox", b"jumps over the lazy dog", b"the end"]
    await filled.append(client, [Message(line) for line in words * 20], partition)
    full = [
        Message(
            b"%d/%d/%d" % (life, partition, number),
            None if number % 3 else b"key-%d" % number,
            None if number % 4 else 1_600_000_000_000_000 + number,
            tuple((f"name-{h}", b"\x00%d" % h) for h in range(number % 3)),
        )
        for number in range(200)
    ]
    await filled.append(client, full, partition)
    await filled.append(client, full[:50], partition, codec=CODEC_ZSTD)
    for number in range(5):
        await filled.append(client, [Message(b"\xff\xfe\x00" * number, b"\x80")], partition)
    if life == 1:
        await filled.append(client, [Message(bytes([life, partition]) * 50)] * 9000, partition)
    await filled.append(client, [Message(b""), Message("grüße".encode())], partition)


async def _fill_compacted(client: FencelogClient) -> None:
    """Ten versions of three keys, compacted, and one more version of one of them."""
    await client.create_topic("spark/prices", compaction_ms=3_600_000)
    for version_number in range(10):
        prices = [Message(b"%d" % version_number, key) for key in (b"a", b"b", b"c")]
        await client.append_batch("spark/prices", encode_batch(prices), partition=0)
    await client.compact("spark/prices", 0)
    while (state := await client.compaction("spark/prices", 0))["state"] != "ready":
        assert state["state"] != "failed", state
        await asyncio.sleep(0.05)
    newest = encode_batch([Message(b"10", b"b")])
    await client.append_batch("spark/prices", newest, partition=0)


@pytest.fixture
def read(spark: SparkSession, filled: Filled) -> Read:
    """``read(topic, **options)``: a DataFrame over the filled service."""

    def frame(
        topic: str = "spark/events", *, schema: str | None = None, **options: str
    ) -> DataFrame:
        reader = spark.read.format("fencelog").options(
            **{"server": filled.server, "topic": topic} | options
        )
        return (reader.schema(schema) if schema else reader).load()

    return frame
