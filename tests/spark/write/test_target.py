"""The place that a batch is written to: the partitions of its topic, and one mode for all of its
attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.client.commits import PartitionCommits
from fencelog.api.client.producer import PartitionAccess
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.write import segments, target
from fencelog.spark_connector.write.appends import append_all
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions
from fencelog.spark_connector.write.segments import write_ledgers
from fencelog.spark_connector.write.target import (
    Job,
    WriteTarget,
    partitions_of_batch,
    reached,
    spread_of_batch,
)


async def test_partitions_are_those_of_now_whatever_broker_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row may name one that was just added, and a key keeps to its partition from batch to
    batch."""
    lost = [FencelogError(ErrorCode.METADATA_UNKNOWN, "ZooKeeper has another leader")]

    class Lagging(FencelogClient):
        async def topic(self, topic: str, *, confirmed: bool = False) -> dict[str, Any]:
            if lost:
                raise lost.pop()
            return {"partitions": 2 if confirmed else 1}

    async def answering(servers: Sequence[str]) -> tuple[str, ...]:
        return tuple(servers)

    monkeypatch.setattr(target, "FencelogClient", Lagging)
    monkeypatch.setattr(target, "servers_that_answer", answering)
    found = await reached(WriteOptions(("http://127.0.0.1:1",), "default/t"))
    assert found.partitions == 2


@pytest.mark.parametrize(
    ("mode", "asked", "name"),
    [
        (ExactlyOnce.NONE, FencelogClient, "append_batch"),
        (ExactlyOnce.DEDUP, PartitionAccess, "producer"),
        (ExactlyOnce.SEGMENTS, PartitionCommits, "create_ledger"),
        (ExactlyOnce.SEGMENTS, PartitionCommits, "commit"),
    ],
)
async def test_a_partition_that_a_broker_does_not_know_yet_is_written_all_the_same(
    server: str,
    client: FencelogClient,
    monkeypatch: pytest.MonkeyPatch,
    mode: ExactlyOnce,
    asked: type,
    name: str,
) -> None:
    """The driver has found it past servers that lag behind, and the task failed."""
    topic = f"write/unknown-{mode.value}-{name}"
    await client.create_topic(topic)
    found = await reached(WriteOptions((server,), topic))
    ask = getattr(asked, name)
    denials = [FencelogError(ErrorCode.NOT_FOUND, "the topic has no partition 0")]

    async def denied_once(*args: Any, **options: Any) -> Any:
        if denials:
            raise denials.pop()
        return await ask(*args, **options)

    monkeypatch.setattr(asked, name, denied_once)
    await write(found, 3, mode)
    assert denials == []
    assert (await client.offsets(topic))[0]["tail_offset"] == 1


# -- the modes of a batch --------------------------------------------------------------------------

QUERY = "spark-query"


async def write(found: WriteTarget, batch: int, mode: ExactlyOnce, *, commits: bool = True) -> None:
    """Write one row as a batch. ``commits``: its driver lives until then."""
    rows = iter([pa.RecordBatch.from_pydict({"value": [b"%d" % batch]})])
    if mode is not ExactlyOnce.SEGMENTS:
        job = Job(QUERY, batch) if mode is ExactlyOnce.DEDUP else None
        await append_all(rows, found, turn=0, job=job)
        return
    task = await write_ledgers(rows, found, Job(QUERY, batch))
    if commits:
        await segments.commit([task], found.options)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (ExactlyOnce.SEGMENTS, ExactlyOnce.DEDUP),
        (ExactlyOnce.DEDUP, ExactlyOnce.SEGMENTS),
    ],
)
async def test_a_batch_is_completed_in_the_mode_in_which_it_was_begun(
    server: str, client: FencelogClient, first: ExactlyOnce, then: ExactlyOnce
) -> None:
    """A query that changes its mode after a failure used to write the rows of that batch again."""
    topic = f"write/mode-{first.value}"
    await client.create_topic(topic)
    found = await reached(WriteOptions((server,), topic))
    await write(found, 3, first)
    with pytest.raises(FencelogError, match=f"batch 3 with exactlyOnce={first.value}") as raised:
        await write(found, 3, then)
    assert raised.value.code is ErrorCode.SEQUENCE_REUSED
    with pytest.raises(FencelogError, match="batch 2 comes too late") as raised:
        await write(found, 2, then)
    assert raised.value.code is ErrorCode.PRODUCER_FENCED
    await write(found, 3, first)
    await write(found, 4, then)
    assert (await client.offsets(topic))[0]["tail_offset"] == 2


async def test_a_commit_that_comes_late_does_not_double_a_batch_of_dedup(
    server: str, client: FencelogClient
) -> None:
    """Its driver is gone, the request is on its way; the query goes on in the other mode."""
    topic = "write/late-commit"
    await client.create_topic(topic)
    found = await reached(WriteOptions((server,), topic))
    rows = iter([pa.RecordBatch.from_pydict({"value": [b"late"]})])
    task = await write_ledgers(rows, found, Job(QUERY, 3))
    await write(found, 3, ExactlyOnce.DEDUP)
    with pytest.raises(FencelogError, match="batch 3 with exactlyOnce=dedup") as raised:
        await segments.commit([task], found.options)
    assert raised.value.code is ErrorCode.SEQUENCE_REUSED
    assert (await client.offsets(topic))[0]["tail_offset"] == 1


async def test_a_task_of_dedup_that_comes_late_does_not_double_a_batch_of_segments(
    server: str, client: FencelogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has asked for the query's last commit before the other driver made it."""
    topic = "write/late-task"
    await client.create_topic(topic)
    found = await reached(WriteOptions((server,), topic))
    await write(found, 3, ExactlyOnce.SEGMENTS)

    async def last(commits: PartitionCommits) -> None:
        return None

    monkeypatch.setattr(PartitionCommits, "last", last)
    with pytest.raises(FencelogError, match="batch 3 with exactlyOnce=segments") as raised:
        await write(found, 3, ExactlyOnce.DEDUP)
    assert raised.value.code is ErrorCode.SEQUENCE_REUSED
    assert (await client.offsets(topic))[0]["tail_offset"] == 1


async def test_a_batch_of_segments_that_was_not_committed_may_be_written_by_dedup(
    server: str, client: FencelogClient
) -> None:
    """As where the list of ledgers has no space for it."""
    topic = "write/mode-not-committed"
    await client.create_topic(topic)
    found = await reached(WriteOptions((server,), topic))
    await write(found, 3, ExactlyOnce.SEGMENTS, commits=False)
    await write(found, 3, ExactlyOnce.DEDUP)
    assert (await client.offsets(topic))[0]["tail_offset"] == 1


@pytest.mark.parametrize(
    ("mode", "spread_of"),
    [(ExactlyOnce.SEGMENTS, partitions_of_batch), (ExactlyOnce.DEDUP, spread_of_batch)],
)
async def test_a_batch_is_spread_as_by_its_first_attempt_and_not_as_the_batch_before_it(
    server: str, client: FencelogClient, mode: ExactlyOnce, spread_of: Any
) -> None:
    topic = f"write/spread-{mode.value}"
    await client.create_topic(topic)
    found = await reached(WriteOptions((server,), topic))
    await write(found, 3, mode)
    grown = replace(found, partitions=2)
    assert [await spread_of(client, grown, Job(QUERY, batch)) for batch in (3, 4)] == [1, 2]
