"""The order in which a driver commits a batch to the partitions of a topic, and withdraws it."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from fencelog.broker.limits import MAX_COMMIT_LEDGERS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.write import segments
from fencelog.spark_connector.write.options import WriteOptions
from fencelog.spark_connector.write.segments import (
    LEDGERS_AT_ONCE,
    PARTITIONS_AT_ONCE,
    WITHDRAWN_AT_ONCE,
    LedgerOfTask,
    TaskLedgers,
)
from fencelog.spark_connector.write.target import Job
from tests.support.virtual_time import VirtualTimeLoop

OPTIONS = WriteOptions(("http://127.0.0.1:1",), "default/orders")
JOB = Job("spark-query", 4)


class Owners:
    """The owners of all partitions, in place of ``PartitionCommits``; a request takes a while."""

    def __init__(self) -> None:
        self.done: list[tuple[int, int]] = []
        """The partition of each request, and how many ledgers it named."""
        self.done_before: dict[int, int] = {}
        """The number of requests that had been answered when the one to a partition came."""
        self.most = 0
        self.spread = 0
        """The number of partitions that an earlier attempt has committed; 0: there was none."""
        self.absent_s = 0.0
        """The time for which partition 1 has no owner."""
        self.is_silent = False
        """True if no request is answered any more."""
        self.known: dict[int, tuple[int, int]] = {}
        """The last batch of a partition and its messages, where it was committed before."""
        self.by_appends = False
        """True if the batch of partition 0 is appended by another attempt."""
        self._open = 0

    def __call__(self, client: object, topic: str, partition: int, committer: str) -> Owner:
        assert (topic, committer) == (OPTIONS.topic, JOB.name)
        return Owner(self, partition)

    async def ask(self, partition: int, ledgers: int) -> None:
        if partition == 1 and anyio.current_time() < self.absent_s:
            raise FencelogError(ErrorCode.NO_OWNER, "the partition is being taken over")
        if self.is_silent:
            raise FencelogError(ErrorCode.METADATA_UNKNOWN, "no answer")
        self.done_before[partition] = len(self.done)
        self._open += 1
        self.most = max(self.most, self._open)
        for _ in range(partition % 5 + 1):
            await anyio.lowlevel.checkpoint()
        self._open -= 1
        self.done.append((partition, ledgers))


class Owner:
    def __init__(self, owners: Owners, partition: int) -> None:
        self._owners = owners
        self._partition = partition

    async def commit(
        self, batch: int, ledgers: list[tuple[int, int]], *, partitions: int, ends: bool
    ) -> dict[str, Any]:
        await self._owners.ask(self._partition, len(ledgers))
        made = (batch, sum(messages for _, messages in ledgers))
        last, messages = self._owners.known.get(self._partition, made)
        spread = self._owners.spread or partitions
        return {
            "batch": last,
            "partitions": spread,
            "messages": messages,
            "by_appends": self._owners.by_appends,
        }

    async def abort(self, batch: int, ledgers: list[int]) -> None:
        assert batch == JOB.batch
        await self._owners.ask(self._partition, len(ledgers))


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    owners = Owners()
    monkeypatch.setattr(segments, "PartitionCommits", owners)
    return owners


def task(*partitions: int, spread: int = 30) -> TaskLedgers:
    """A task with a ledger of one message in each of these partitions."""
    ledgers = tuple(LedgerOfTask(p, 100 + p, 1) for p in partitions)
    return TaskLedgers(JOB, spread, ledgers)


async def test_others_have_the_batch_after_partition_0_and_together(owners: Owners) -> None:
    await segments.commit([task(*range(3, 30)), task(5)], OPTIONS)
    assert owners.done[0] == (0, 0)  # it has no rows, and remembers the batch
    assert sorted(owners.done[1:]) == [(p, 2 if p == 5 else 1) for p in range(3, 30)]
    assert min(before for p, before in owners.done_before.items() if p) == 1
    assert owners.most == PARTITIONS_AT_ONCE


async def test_a_table_is_committed_where_it_has_rows(owners: Owners) -> None:
    await segments.commit([task()], OPTIONS, is_stream=False)
    assert owners.done == []
    await segments.commit([task(2), task(1)], OPTIONS, is_stream=False)
    assert owners.done == [(1, 1), (2, 1)]


async def test_attempts_that_spread_a_batch_differently_are_not_mixed(owners: Owners) -> None:
    with pytest.raises(FencelogError, match="another number of partitions") as raised:
        await segments.commit([task(1), task(1, spread=31)], OPTIONS)
    assert raised.value.code is ErrorCode.METADATA_CONFLICT
    assert owners.done == []
    owners.spread = 29
    with pytest.raises(FencelogError, match="another number of partitions"):
        await segments.commit([task(1)], OPTIONS)
    assert owners.done == [(0, 0)]


async def test_a_batch_that_was_committed_is_so_again(owners: Owners) -> None:
    """Its answer was lost, or the driver died before Spark noted the batch."""
    owners.known = {0: (JOB.batch, 0), 1: (JOB.batch, 2)}
    await segments.commit([task(1, 2), task(1)], OPTIONS)
    assert owners.done == [(0, 0), (1, 2), (2, 1)]


async def test_a_batch_that_another_attempt_appends_is_not_committed(owners: Owners) -> None:
    owners.by_appends = True
    with pytest.raises(FencelogError, match="batch 4 with exactlyOnce=dedup") as raised:
        await segments.commit([task(1)], OPTIONS)
    assert raised.value.code is ErrorCode.SEQUENCE_REUSED
    assert owners.done == [(0, 0)]


async def test_a_batch_before_the_last_one_is_not_taken_for_written(owners: Owners) -> None:
    """The checkpoint is that of a backup: under the number the topic may have other rows."""
    owners.known = {0: (JOB.batch + 2, 5)}
    with pytest.raises(FencelogError, match="batch 6 of the query is in the topic") as raised:
        await segments.commit([task(0, 1)], OPTIONS)
    assert raised.value.code is ErrorCode.PRODUCER_FENCED
    assert owners.done == [(0, 1)]


@pytest.mark.parametrize("partition", [0, 1])
async def test_other_rows_are_not_taken_for_those_of_an_earlier_attempt(
    owners: Owners, partition: int
) -> None:
    owners.known = {0: (JOB.batch, 0), 1: (JOB.batch, 1)} | {partition: (JOB.batch, 5)}
    named = f"5 rows to partition {partition}, this one has {partition}"
    with pytest.raises(FencelogError, match=named) as raised:
        await segments.commit([task(1)], OPTIONS)
    assert raised.value.code is ErrorCode.SEQUENCE_REUSED


async def test_too_many_tasks_are_refused_before_anything_is_committed(owners: Owners) -> None:
    assert LEDGERS_AT_ONCE == MAX_COMMIT_LEDGERS
    with pytest.raises(FencelogError, match="1001 tasks have rows for one partition") as raised:
        await segments.commit([task(1)] * (LEDGERS_AT_ONCE + 1), OPTIONS)
    assert raised.value.code is ErrorCode.LIMIT_REACHED
    assert owners.done == []


def test_a_commit_outlasts_takeovers(owners: Owners) -> None:
    """It was given up after 30 s, which a broker that was replaced may need to notice it: the query
    ended, and a table had been committed to other partitions."""
    owners.absent_s = 100
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(segments.commit([task(0, 1)], OPTIONS, is_stream=False))
    assert owners.done == [(0, 1), (1, 1)]


def test_a_commit_that_is_never_answered_is_in_doubt(owners: Owners) -> None:
    owners.is_silent = True
    commit = segments.commit([task(0)], OPTIONS)
    runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
    with runner, pytest.raises(FencelogError) as raised:
        runner.run(commit)
    assert raised.value.code is ErrorCode.METADATA_UNKNOWN
    assert owners.done == []


async def test_the_ledgers_of_a_partition_are_withdrawn_together(owners: Owners) -> None:
    count = 2 * WITHDRAWN_AT_ONCE + 1
    tasks = [TaskLedgers(JOB, 30, (LedgerOfTask(0, number, 1),)) for number in range(count)]
    await segments.abort([*tasks, task(*range(1, 30))], OPTIONS)
    assert sorted(n for p, n in owners.done if p == 0) == [1, WITHDRAWN_AT_ONCE, WITHDRAWN_AT_ONCE]
    assert sorted(p for p, _ in owners.done if p) == list(range(1, 30))
    assert owners.most == PARTITIONS_AT_ONCE
    await segments.abort([], OPTIONS)
