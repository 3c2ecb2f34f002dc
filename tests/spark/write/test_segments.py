"""The ledgers that a task writes: their connections, and the rows that wait for them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.client.commits import PartitionCommits
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import Run
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken
from fencelog.ledgers.writer.writer import LedgerWriter
from fencelog.spark_connector.read import bookies
from fencelog.spark_connector.write import segments
from fencelog.spark_connector.write.batches import encode_checked
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions
from fencelog.spark_connector.write.segments import STALLED_S, write_ledgers
from fencelog.spark_connector.write.target import Job, WriteTarget, reached

PARTITIONS = 24
BOOKIES = 3


async def target_of(server: str, topic: str) -> WriteTarget:
    return await reached(WriteOptions((server,), topic, ExactlyOnce.SEGMENTS))


def rows_of(rounds: int, size: int = 1) -> Iterator[pa.RecordBatch]:
    """One row for each partition, again and again."""
    partitions = pa.array(range(PARTITIONS), pa.int32())
    for _ in range(rounds):
        yield pa.RecordBatch.from_pydict(
            {"value": [bytes(size)] * PARTITIONS, "partition": partitions}
        )


class Connections:
    """The clients of bookies that a task makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.open = 0
        self.complete = threading.Event()
        """Set once there is one for each bookie."""
        seen = self

        class Counted(TcpBookieClient):
            def __init__(self, bookie_id: str, address: str, **options: Any) -> None:
                super().__init__(bookie_id, address, **options)
                seen.made.append(bookie_id)
                seen.open += 1
                if len(seen.made) == BOOKIES:
                    seen.complete.set()

            async def close(self) -> None:
                await super().close()
                seen.open -= 1

        monkeypatch.setattr(bookies, "TcpBookieClient", Counted)


class Slow(TcpBookieClient):
    """A bookie whose acknowledgements are late."""

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        loop = asyncio.get_running_loop()

        def late(tokens: Sequence[AddToken], error: FencelogError | None) -> None:
            loop.call_later(0.05, on_replies, tokens, error)

        super().add_many(runs, tokens, incarnation=incarnation, on_replies=late)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return Connections(monkeypatch)


async def test_a_task_has_one_connection_to_each_bookie(
    server: str,
    client: FencelogClient,
    connections: Connections,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = "segments/connections"
    await client.create_topic(topic, partitions=PARTITIONS)
    target = await target_of(server, topic)
    descriptors = []
    finish = segments._OpenLedger.finish

    async def counted(ledger: Any) -> int:
        written = await finish(ledger)
        descriptors.append(len(os.listdir("/proc/self/fd")))
        return written

    monkeypatch.setattr(segments._OpenLedger, "finish", counted)
    before = len(os.listdir("/proc/self/fd"))
    task = await write_ledgers(rows_of(2), target, Job("spark-query"))
    assert [each.messages for each in task.ledgers] == [2] * PARTITIONS
    assert len(connections.made) == BOOKIES
    assert connections.open == 0
    assert max(descriptors) - before < PARTITIONS  # the one of the client is among them


async def test_bookies_that_only_a_later_ledger_has_are_found(
    server: str,
    client: FencelogClient,
    connections: Connections,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = "segments/later"
    await client.create_topic(topic, partitions=PARTITIONS)
    target = await target_of(server, topic)
    create = PartitionCommits.create_ledger
    answers: list[dict[str, Any]] = []

    async def without_one(commits: PartitionCommits) -> dict[str, Any]:
        made = await create(commits)
        if not answers:
            made["bookies"].pop(min(made["bookies"]))
        answers.append(made)
        return made

    monkeypatch.setattr(PartitionCommits, "create_ledger", without_one)
    await write_ledgers(rows_of(1), target, Job("spark-query"))
    assert sorted(connections.made) == sorted(answers[-1]["bookies"])
    assert len(connections.made) == BOOKIES


@pytest.mark.parametrize("fails_at", ["rows", "ledger"])
async def test_a_task_that_fails_leaves_no_connection(
    server: str,
    client: FencelogClient,
    connections: Connections,
    monkeypatch: pytest.MonkeyPatch,
    fails_at: str,
) -> None:
    topic = f"segments/fails-{fails_at}"
    await client.create_topic(topic, partitions=PARTITIONS)
    target = await target_of(server, topic)
    monkeypatch.setattr(segments, "MAX_WAITING_BYTES", 0)  # each row is written at once

    async def close(ledger: Any) -> None:
        raise OSError("one ledger cannot be given up")

    if fails_at == "ledger":
        monkeypatch.setattr(segments._OpenLedger, "close", close)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from rows_of(1)
        assert connections.complete.wait(STALLED_S)
        raise OSError("Spark has no more rows")

    with pytest.raises(OSError, match="Spark has" if fails_at == "rows" else "one ledger"):
        await write_ledgers(rows(), target, Job("spark-query"))
    assert len(connections.made) == BOOKIES
    assert connections.open == 0


async def test_rows_leave_early_above_the_limit_of_what_waits(
    server: str, client: FencelogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "segments/early"
    await client.create_topic(topic, partitions=PARTITIONS)
    target = await target_of(server, topic)
    encoded: list[int] = []

    def counted(rows: pa.Table) -> Any:
        encoded.append(rows.num_rows)
        return encode_checked(rows)

    monkeypatch.setattr(segments, "encode_checked", counted)
    monkeypatch.setattr(segments, "MAX_WAITING_BYTES", 3 * PARTITIONS * KIB)
    task = await write_ledgers(rows_of(20, KIB), target, Job("spark-query"))
    assert [each.messages for each in task.ledgers] == [20] * PARTITIONS
    assert sum(encoded) == 20 * PARTITIONS
    assert len(encoded) > 3 * PARTITIONS


async def test_what_waits_for_bookies_has_a_limit_for_all_ledgers_together(
    server: str, client: FencelogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "segments/pending"
    await client.create_topic(topic, partitions=PARTITIONS)
    target = await target_of(server, topic)
    limit, size = 64 * KIB, 16 * KIB
    monkeypatch.setattr(segments, "MAX_PENDING_BYTES", limit)
    monkeypatch.setattr(segments, "MAX_WAITING_BYTES", 0)  # each row is written at once
    ledgers: set[Any] = set()
    pending: list[int] = []
    append = segments._OpenLedger.append

    async def counted(ledger: Any, entry: Any, count: int) -> None:
        await append(ledger, entry, count)
        ledgers.add(ledger)
        pending.append(sum(each.pending_bytes for each in ledgers))

    monkeypatch.setattr(segments._OpenLedger, "append", counted)
    monkeypatch.setattr(bookies, "TcpBookieClient", Slow)
    task = await write_ledgers(rows_of(3, size), target, Job("spark-query"))
    assert [each.messages for each in task.ledgers] == [3] * PARTITIONS
    assert limit < max(pending) < limit + 2 * size


async def test_a_ledger_is_finished_when_all_of_it_is_acknowledged(
    server: str, client: FencelogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "segments/finished"
    await client.create_topic(topic, partitions=PARTITIONS)
    target = await target_of(server, topic)
    finish = segments._OpenLedger.finish
    pending: list[int] = []

    async def noted(ledger: Any) -> int:
        written = await finish(ledger)
        pending.append(ledger.pending_bytes)
        return written

    async def unheard(writer: LedgerWriter) -> None:
        """Take no time, as where a recovery has to do without."""

    monkeypatch.setattr(segments._OpenLedger, "finish", noted)
    monkeypatch.setattr(LedgerWriter, "tell_lac", unheard)
    monkeypatch.setattr(bookies, "TcpBookieClient", Slow)
    await write_ledgers(rows_of(1), target, Job("spark-query"))
    assert pending == [0] * PARTITIONS
