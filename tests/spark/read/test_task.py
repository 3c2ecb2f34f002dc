"""Tasks as executors run them, over a service, and without Spark around them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import pyarrow as pa
import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.ledger_metadata.model import Fragment
from fencelog.ledgers.record_batch import Message, encode_batch
from fencelog.ledgers.rpc.places import PlacedRuns
from fencelog.spark_connector.planning.bounds import resolve
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.planner import ScanTask, plan
from fencelog.spark_connector.planning.service import fetch
from fencelog.spark_connector.read.local_files import LocalFiles
from fencelog.spark_connector.read.task import read_task

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

MESSAGES = 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    place: Path = tmp_path_factory.mktemp("tasks")
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    process = await ChildProcess.start("standalone", command, log=place / "log")
    yield process.announcement["http"]
    await process.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: str) -> AsyncIterator[FencelogClient]:
    async with FencelogClient(server) as client:
        yield client


@pytest.mark.parametrize("is_local", [True, False], ids=["local", "socket"])
async def test_a_task_reads_the_files_of_bookies_on_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_local: bool
) -> None:
    values = [b"%d" % number * 100_000 for number in range(40)]
    asked: list[bytes | None] = []

    class Watched(LocalFiles):
        async def read(self, bookie_id: str, wanted: PlacedRuns) -> Buffer | None:
            found = await super().read(bookie_id, wanted)
            asked.append(None if found is None else bytes(found))
            return found

    monkeypatch.setattr("fencelog.spark_connector.read.task.LocalFiles", Watched)
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    log = tmp_path / "log"
    process = await ChildProcess.start("standalone", command, log=log)
    async with FencelogClient(process.announcement["http"]) as client:
        await client.create_topic("tasks/local")
        for value in values:
            batch = encode_batch([Message(value)])
            await client.append_batch("tasks/local", batch, partition=0)
    await process.stop()  # what was in memory is in files then
    process = await ChildProcess.start("standalone", command, log=log)
    try:
        options = ReadOptions(
            (process.announcement["http"],), ("tasks/local",), reads_locally=is_local
        )
        batches = await read_all(await planned(options), ["value"], options)
    finally:
        await process.stop()
    assert [value for batch in batches for value in batch["value"].to_pylist()] == values
    assert bool(asked) == is_local
    assert None not in asked


async def read_all(
    task: ScanTask, columns: list[str], options: ReadOptions
) -> list[pa.RecordBatch]:
    return await anyio.to_thread.run_sync(lambda: list(read_task(task, columns, options)))


async def filled(client: FencelogClient, server: str, topic: str) -> ReadOptions:
    await client.create_topic(topic)
    batch = [Message(b"%d" % number) for number in range(MESSAGES)]
    await client.append_batch(topic, encode_batch(batch), partition=0)
    return ReadOptions((server,), (topic,))


async def planned(options: ReadOptions) -> ScanTask:
    found = await fetch(options)
    (task,) = plan(found.partitions, *resolve(found.partitions, options, found.times), options)
    return task


def outdated(task: ScanTask) -> ScanTask:
    """The task as if another bookie had had the ledger when it was planned."""
    (wanted,) = task.ranges
    elsewhere = (Fragment(0, tuple(f"previous-{id_}" for id_ in task.bookies)),)
    return ScanTask((replace(wanted, ledger=replace(wanted.ledger, fragments=elsewhere)),), {})


async def offsets(task: ScanTask, options: ReadOptions) -> list[int]:
    batches = await read_all(task, ["offset"], options)
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


async def refused(task: ScanTask, options: ReadOptions) -> str:
    with pytest.raises(FencelogError) as raised:
        await offsets(task, options)
    assert raised.value.code is ErrorCode.OFFSET_TRIMMED
    return raised.value.detail


async def test_a_task_that_is_not_read_to_its_end_leaves_no_thread(
    client: FencelogClient, server: str
) -> None:
    options = await filled(client, server, "tasks/closed")
    batches = read_task(await planned(options), ["offset"], options)
    assert (await anyio.to_thread.run_sync(next, batches)).num_rows == MESSAGES
    batches.close()  # type: ignore[attr-defined]  # it is a generator, and Spark closes it as one
    assert "fencelog-read-ahead" not in [thread.name for thread in threading.enumerate()]


async def test_a_task_finds_a_ledger_whose_bookies_were_replaced(
    client: FencelogClient, server: str
) -> None:
    options = await filled(client, server, "tasks/replaced")
    task = await planned(options)
    assert await offsets(task, options) == [*range(MESSAGES)]
    assert await offsets(outdated(task), options) == [*range(MESSAGES)]


async def test_only_a_trim_or_a_deletion_takes_rows_away(
    client: FencelogClient, server: str
) -> None:
    options = await filled(client, server, "tasks/gone")
    tolerant = replace(options, fail_on_data_loss=False)
    task = outdated(await planned(options))
    assert await offsets(task, tolerant) == [*range(MESSAGES)]
    await client.trim("tasks/gone", 0, MESSAGES)
    assert "the log begins at 20 now" in await refused(task, options)
    assert await offsets(task, tolerant) == []
    await client.delete_topic("tasks/gone")
    assert "its topic was deleted" in await refused(task, options)
    assert await offsets(task, tolerant) == []
