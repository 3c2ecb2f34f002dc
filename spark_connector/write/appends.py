"""The rows of a task as appends: at least once, or numbered so that each is written once."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pyarrow as pa

from fencelog.api.client import FencelogClient
from fencelog.api.client.producer import ExactlyOnceProducer
from fencelog.api.client.retry import retry_not_applied
from fencelog.spark_connector.write.batches import Gathered, encoded, route, split
from fencelog.spark_connector.write.options import WriteOptions
from fencelog.spark_connector.write.rows import take_rows
from fencelog.spark_connector.write.target import Job, Target


async def append_all(
    rows: Iterator[pa.RecordBatch], target: Target, *, turn: int, job: Job | None
) -> int:
    """Append all rows of a task; return how many. ``turn``: rows without a key go to this partition
    (modulo their number). ``job``: number them for it, so that a repetition appends nothing twice;
    None: at least once.

    Raises FencelogError.
    """
    options, partitions = target.options, target.partitions
    async with FencelogClient(options.servers) as client:
        appends = _Appends(client, options, turn, job)
        gathered, count = Gathered(), 0

        async def write(batch: pa.RecordBatch) -> None:
            nonlocal count
            count += batch.num_rows
            for partition, part in gathered.add(
                split(batch, route(batch, partitions, turn % partitions))
            ):
                await appends.append(partition, part)

        await take_rows(rows, write)
        for partition, part in gathered.rest():
            await appends.append(partition, part)
        return count


class _Appends:
    """The appends of a task, one at a time."""

    def __init__(
        self, client: FencelogClient, options: WriteOptions, turn: int, job: Job | None
    ) -> None:
        self._client = client
        self._options = options
        self._turn = turn
        self._job = job
        self._producers: dict[int, ExactlyOnceProducer] = {}
        self._known: dict[int, int] = {}
        """The rows of each partition, from the first on, that are in the log already."""

    async def append(self, partition: int, rows: pa.RecordBatch) -> None:
        if self._job is None:
            for batch, _ in encoded(rows):
                await self._append_once_or_more(partition, batch)
            return
        producer = await self._producer(partition, self._job)
        known = min(self._known[partition], rows.num_rows)
        self._known[partition] -= known
        for batch, count in encoded(rows.slice(known)):
            await producer.append_batch(batch, count)

    async def _append_once_or_more(self, partition: int, batch: bytes) -> None:
        await retry_not_applied(
            lambda: self._client.append_batch(self._options.topic, batch, partition=partition)
        )

    async def _producer(self, partition: int, job: Job) -> ExactlyOnceProducer:
        """Return the producer of this task's rows for a partition: its epoch is the batch, and it
        goes on where an earlier attempt has ended."""
        producer = self._producers.get(partition)
        if producer is None:
            producer = ExactlyOnceProducer(
                self._client,
                self._options.topic,
                f"{job.name}-{self._turn}",
                partition=partition,
                epoch=job.batch,
            )
            self._known[partition] = await producer.resume()
            self._producers[partition] = producer
            await anyio.lowlevel.checkpoint()
        return producer
