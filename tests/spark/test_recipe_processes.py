"""The recipes of ``examples/spark`` as people call them: each is a process with arguments, and with
a Spark of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio
import pyarrow.parquet
import pytest

from fencelog.api.client import FencelogClient
from fencelog.ledgers.record_batch import Message, decode_batch, encode_batch
from tests.spark.support.jvm import JVM_OPTIONS
from tests.spark.support.recipes import RECIPES, log_lines
from tests.spark.support.spark_cluster import environment_of
from tests.spark.support.streams import HAS_LIMITS

pytestmark = [
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.timeout(900),  # each Spark takes seconds to start, and tens on a busy machine
]

LINES = 600
"""One a second of event time, so ten minutes."""

SUBMIT = (
    f"--driver-memory 512m --driver-java-options '{JVM_OPTIONS}' "
    "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false pyspark-shell"
)
"""The session of each script: quick to start, and for little data."""

Run = Callable[..., tuple[int, str]]


class Filled(Protocol):
    server: str


@pytest.fixture
def run(shim: Path, filled: Filled, tmp_path: Path) -> Run:
    """``run(name, *arguments)``: the exit code of a recipe, and what it has printed."""
    environment = environment_of(str(shim)) | {
        "PYSPARK_SUBMIT_ARGS": SUBMIT,
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
    }

    def run_recipe(name: str, *arguments: str) -> tuple[int, str]:
        script = [sys.executable, str(RECIPES / f"{name}.py"), "--server", filled.server]
        done = subprocess.run(
            [*script, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    return run_recipe


async def fill(server: str, topic: str, values: list[bytes]) -> None:
    """Append a message for each second of event time."""
    async with FencelogClient(server) as client:
        await client.create_topic(topic)
        batch = [Message(value, None, s * 1_000_000) for s, value in enumerate(values)]
        await client.append_batch(topic, encode_batch(batch), partition=0)


async def messages_of(server: str, topic: str) -> list[Message]:
    """Return the messages of the first partition."""
    found: list[Message] = []
    async with FencelogClient(server) as client:
        while True:
            page = await client.read(topic, 0, len(found))
            found += [message for frame in page.batches for message in decode_batch(frame.batch)]
            if page.at_tail:
                return found


@pytest.mark.thorough
async def test_a_copy_is_verified_by_exit_code(run: Run, filled: Filled, tmp_path: Path) -> None:
    topic, copy = "scripts/lines", tmp_path / "copy"
    await fill(filled.server, topic, log_lines(LINES))

    def copy_and_verify() -> list[tuple[int, str]]:
        read = ("--topic", topic)
        done = [run("backfill", *read, "--out", str(copy))]
        done.append(run("verify", *read, "--copy", str(copy)))
        for file in (copy / "partition=0").glob("*.parquet"):
            rows = pyarrow.parquet.read_table(file, partitioning=None)
            pyarrow.parquet.write_table(rows.slice(9), file.with_name("short.parquet"))
            file.unlink()
        done.append(run("verify", *read, "--copy", str(copy)))
        return done

    assert await anyio.to_thread.run_sync(copy_and_verify) == [
        (0, f"{LINES} messages of {topic} are in {copy}\n"),
        (0, f"{topic}: no gap, no duplicate\n"),
        (1, "9 rows of the topic are not in the copy\n"),
    ]


@pytest.mark.thorough
async def test_json_is_shown_as_a_table_and_the_rest_below(run: Run, filled: Filled) -> None:
    topic = "scripts/json"
    lines = [json.dumps({"id": n, "text": repr(line)}) for n, line in enumerate(log_lines(5))]
    await fill(filled.server, topic, [*map(str.encode, lines), b"no JSON at all"])
    arguments = ("--topic", topic, "--schema", "id BIGINT, text STRING")
    code, printed = await anyio.to_thread.run_sync(lambda: run("parse_json", *arguments))
    table, _, rest = printed.partition("1 messages do not fit:")
    assert code == 0
    assert all(repr(line) in table for line in log_lines(5))
    assert ("no JSON at all" in rest, "no JSON at all" in table) == (True, False)


@pytest.mark.thorough
@pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.0: the next run closes windows")
async def test_windows_are_counted_as_by_cron(run: Run, filled: Filled, tmp_path: Path) -> None:
    source, target = "scripts/source", "scripts/counts"
    await fill(filled.server, source, log_lines(LINES))
    async with FencelogClient(filled.server) as client:
        await client.create_topic(target)
    arguments = (
        *("--from", source, "--to", target, "--checkpoint", str(tmp_path / "checkpoint")),
        *("--lateness", "1 minute", "--available-now"),
    )

    code, _ = await anyio.to_thread.run_sync(lambda: run("stream_agg", *arguments))
    assert code == 0
    counts = [json.loads(message.value) for message in await messages_of(filled.server, target)]
    assert [each["count"] for each in counts] == [60] * 8
    assert len({each["start"] for each in counts}) == 8
