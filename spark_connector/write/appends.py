"""The rows of a task as appends: at least once, or numbered so that each is written once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import anyio
import numpy as np
import pyarrow as pa
from anyio.abc import TaskGroup
from numpy.typing import NDArray

from fencelog.api.client import FencelogClient
from fencelog.api.client.producer import ExactlyOnceProducer
from fencelog.api.client.retry import retry_at_least_once, retry_idempotent
from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.write.batches import encode, route
from fencelog.spark_connector.write.gathered import Gathered
from fencelog.spark_connector.write.limits import MAX_WAITING_BYTES
from fencelog.spark_connector.write.rows import take_rows
from fencelog.spark_connector.write.target import (
    Job,
    WriteTarget,
    of_partition,
    spread_of_batch,
)

IN_FLIGHT = 4
"""The record batches of a task that are sent, or wait for the one before them in their partition;
above it the task takes no more rows."""

Append = Callable[[int, bytes, int], Awaitable[object]]
"""A function that appends a record batch of so many messages to a partition."""


async def append_all(
    rows: Iterator[pa.RecordBatch], target: WriteTarget, *, turn: int, job: Job | None
) -> int:
    """Append all rows of a task; return how many. ``turn``: rows without a key go to this partition
    (modulo their number). ``job``: number them for it, so that a repetition appends nothing twice;
    None: at least once.

    Raises FencelogError.
    """
    async with FencelogClient(target.options.servers) as client:
        if job is None:
            append = _at_least_once(client, target.options.topic)
            gathered = Gathered(most_bytes=MAX_WAITING_BYTES)
            router = _Router(target.partitions, turn)
            return await _append_all(rows, append, router, gathered)
        router = _Router(await spread_of_batch(client, target, job), turn, target.partitions)
        numbered = _Numbered(client, target.options.topic, job, turn)
        # no limit: record batches have to end where those of an earlier attempt did
        count = await _append_all(rows, numbered.append, router, Gathered())
        numbered.check_complete()
        return count


@dataclass(frozen=True, slots=True)
class _Router:
    """The choice of a partition for each row: among ``partitions``, by its key or in ``turn``, or
    the one that it names. The topic may have got more since the first attempt (``existing``)."""

    partitions: int
    turn: int
    existing: int = 0

    def places(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        unkeyed = self.turn % self.partitions
        return route(batch, self.partitions, unkeyed, existing=self.existing)


async def _append_all(
    rows: Iterator[pa.RecordBatch], append: Append, router: _Router, gathered: Gathered
) -> int:
    count = 0
    async with task_group() as group:
        ordered = _OrderedAppends(group, append)

        async def write(batch: pa.RecordBatch) -> None:
            nonlocal count
            count += batch.num_rows
            for partition, part in gathered.add(batch, router.places(batch)):
                await ordered.append(partition, part)

        await take_rows(rows, write)
        for partition, part in gathered.rest():
            await ordered.append(partition, part)
    return count


class _OrderedAppends:
    """The appends of a task: those to one partition one after the other, in order, those to several
    together."""

    def __init__(self, group: TaskGroup, append: Append) -> None:
        self._group = group
        self._append = append
        self._slots = anyio.Semaphore(IN_FLIGHT)
        self._last: dict[int, anyio.Event] = {}
        """The event of each partition that is set when its latest append is done; after an error it
        never is."""

    async def append(self, partition: int, rows: pa.Table) -> None:
        """Have rows appended; return when few appends wait. The group raises their errors."""
        batch = encode(rows)  # while others are on their way
        await self._slots.acquire()
        before, done = self._last.get(partition), anyio.Event()
        self._last[partition] = done
        self._group.start_soon(self._in_turn, partition, batch, rows.num_rows, before, done)

    async def _in_turn(
        self,
        partition: int,
        batch: bytes,
        count: int,
        before: anyio.Event | None,
        done: anyio.Event,
    ) -> None:
        if before is not None:
            await before.wait()
        await self._append(partition, batch, count)
        done.set()
        self._slots.release()


def _at_least_once(client: FencelogClient, topic: str) -> Append:
    async def append(partition: int, batch: bytes, count: int) -> object:
        return await retry_at_least_once(
            lambda: of_partition(client.append_batch(topic, batch, partition=partition))
        )

    return append


class _Numbered:
    """The numbered appends of a task: in each partition it is a producer, whose epoch is the batch.

    An attempt sends all its rows from number 0 on. The log has those of an earlier attempt, and the
    owner compares their contents as far as it knows them: rows are left out because they are there,
    not because as many are.
    """

    def __init__(self, client: FencelogClient, topic: str, job: Job, task: int) -> None:
        self._client = client
        self._topic = topic
        self._job = job
        self._task = task
        self._producers: dict[int, ExactlyOnceProducer] = {}
        self._known: dict[int, int] = {}
        """The rows in each partition that are in the log from earlier attempts."""

    async def append(self, partition: int, batch: bytes, count: int) -> None:
        """Append a record batch after those before it. Raises FencelogError: SEQUENCE_REUSED if an
        earlier attempt had other rows here."""
        producer = await self._producer(partition)
        try:
            await producer.append_batch(batch, count)
        except FencelogError as error:
            is_repetition = producer.sequence < self._known[partition]
            if is_repetition and error.code in (
                ErrorCode.SEQUENCE_REUSED,
                ErrorCode.SEQUENCE_MISMATCH,
            ):
                rows = f"rows {producer.sequence} to {producer.sequence + count - 1}"
                raise self._other_rows(partition, f"{rows} differ") from error
            raise

    def check_complete(self) -> None:
        """Check that the attempt had all rows of earlier ones. Raises SEQUENCE_REUSED."""
        for partition, producer in self._producers.items():
            known = self._known[partition]
            if producer.sequence < known:
                raise self._other_rows(partition, f"it had {known}, not {producer.sequence}")

    async def _producer(self, partition: int) -> ExactlyOnceProducer:
        producer = self._producers.get(partition)
        if producer is None:
            producer = ExactlyOnceProducer(
                self._client,
                self._topic,
                f"{self._job.name}-{self._task}",
                partition=partition,
                epoch=self._job.batch,
            )
            resume = producer.resume
            self._known[partition] = await retry_idempotent(lambda: of_partition(resume()))
            producer.sequence = 0
            self._producers[partition] = producer
        return producer

    def _other_rows(self, partition: int, why: str) -> FencelogError:
        return FencelogError(
            ErrorCode.SEQUENCE_REUSED,
            f"an earlier attempt of batch {self._job.batch} wrote other rows from task "
            f"{self._task} to partition {partition}: {why}. With exactlyOnce=dedup a batch has the "
            "same rows in the same tasks and order each time: was its source trimmed, or the "
            "number of tasks changed? The batch is not completed",
        )
