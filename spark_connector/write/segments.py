"""The rows of a task as ledgers of its own, written straight to bookies, and their commit by the
driver (SEMANTICS.md, "Commits of ledgers")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa

from fencelog.api.client import FencelogClient
from fencelog.api.client.commits import PartitionCommits
from fencelog.api.client.retry import retry_idempotent, retry_not_applied
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.format.entry_header import pack_entry
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import from_json
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.rpc.secret_file import secret_from
from fencelog.ledgers.writer.lent import lent_writer
from fencelog.ledgers.writer.writer import LedgerWriter
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.write.batches import Gathered, encoded, route, split
from fencelog.spark_connector.write.options import WriteOptions
from fencelog.spark_connector.write.rows import take_rows
from fencelog.spark_connector.write.target import (
    Job,
    partitions_of_batch,
    unkeyed_partition,
)

MAX_PENDING_BYTES = 16 * MIB
"""The bytes of a ledger that wait for acknowledgements; above it the task takes no more rows."""

STALLED_S = 60.0
"""The time without any acknowledgement after which a task fails: bookies are gone. It writes its
rows anew when Spark tries it again."""


@dataclass(frozen=True, slots=True)
class LedgerOfTask:
    """A ledger that holds ``messages`` of a partition."""

    partition: int
    ledger_id: int
    messages: int


@dataclass(frozen=True, slots=True)
class TaskLedgers:
    """The ledgers of one task, and the number of partitions that its rows were spread over."""

    job: Job
    partitions: int
    ledgers: tuple[LedgerOfTask, ...]


async def write_ledgers(
    rows: Iterator[pa.RecordBatch], options: WriteOptions, job: Job
) -> TaskLedgers:
    """Write all rows of a task; on return all are durable, and in no log yet. Raises
    FencelogError."""
    async with FencelogClient(options.servers) as client:
        partitions = await partitions_of_batch(client, options, job)
        unkeyed = unkeyed_partition(job, partitions)
        open_ledgers: dict[int, _OpenLedger] = {}
        gathered = Gathered()

        async def add(partition: int, part: pa.RecordBatch) -> None:
            ledger = open_ledgers.get(partition)
            if ledger is None:
                commits = PartitionCommits(client, options.topic, partition, job.name)
                made = await retry_idempotent(commits.create_ledger)
                ledger = open_ledgers[partition] = _OpenLedger(made, options.secret_file)
            await ledger.write(part)

        async def write(batch: pa.RecordBatch) -> None:
            for partition, part in gathered.add(split(batch, route(batch, partitions, unkeyed))):
                await add(partition, part)

        try:
            await take_rows(rows, write)
            for partition, part in gathered.rest():
                await add(partition, part)
            written = [
                LedgerOfTask(partition, ledger.ledger_id, await ledger.finish())
                for partition, ledger in open_ledgers.items()
            ]
        finally:
            for ledger in open_ledgers.values():
                await ledger.close()
        return TaskLedgers(job, partitions, tuple(written))


class _OpenLedger:
    """A ledger that this task writes."""

    def __init__(self, made: dict[str, Any], secret_file: str | None) -> None:
        metadata = from_json(made["ledger"])
        if metadata.digest_type is not DigestType.CRC32C:
            raise FencelogError(
                ErrorCode.UNAUTHORIZED,
                "ledgers of the cluster have a key, which Spark tasks do not know",
            )
        self.ledger_id = metadata.ledger_id
        self._host = SystemHost()
        secret = None if secret_file is None else Path(secret_file)
        credentials = secret_from(secret, host=self._host)
        self._bookies = BookieTable(made["bookies"], credentials=credentials)
        self._wakeup = anyio.Event()
        self._messages = 0
        self._last_entry = -1
        self._writer: LedgerWriter = lent_writer(
            metadata,
            made["incarnations"],
            bookies=self._bookies,
            host=self._host,
            key=b"",
            on_ack=self._told,
            on_failure=self._told,
        )

    def _told(self, _: object) -> None:
        self._wakeup.set()

    async def write(self, rows: pa.RecordBatch) -> None:
        """Write rows; return when only few of them wait for an acknowledgement."""
        for batch, count in encoded(rows):
            entry = pack_entry(
                batch,
                count=count,
                first_number=self._messages,
                publish_time_us=self._host.now_us(),
            )
            while self._writer.pending_bytes > MAX_PENDING_BYTES:
                await self._wait()
            self._last_entry = self._writer.append(entry)
            self._messages += count
            await anyio.lowlevel.checkpoint()  # what was queued leaves

    async def finish(self) -> int:
        """Wait until everything is acknowledged; return the number of messages."""
        while self._writer.last_add_confirmed < self._last_entry:
            await self._wait()
        return self._messages

    async def close(self) -> None:
        await self._writer.abandon()
        await self._bookies.close()

    async def _wait(self) -> None:
        if self._writer.failure is not None:
            raise self._writer.failure
        self._wakeup = anyio.Event()
        try:
            with anyio.fail_after(STALLED_S):
                await self._wakeup.wait()
        except TimeoutError:
            raise FencelogError(
                ErrorCode.BOOKIE_UNAVAILABLE,
                f"bookies have acknowledged nothing of ledger {self.ledger_id} for {STALLED_S:g} s",
            ) from None


# -- the driver ------------------------------------------------------------------------------------


async def commit(
    tasks: Sequence[TaskLedgers], options: WriteOptions, *, is_stream: bool = True
) -> None:
    """Commit the ledgers of all tasks: all of them are in the topic on return, or were before.

    Partition 0 comes first, also without ledgers: it remembers how the batch was spread, for an
    attempt that completes it. Raises FencelogError.
    """
    if not tasks:
        return
    job, partitions = tasks[0].job, tasks[0].partitions
    if any(task.partitions != partitions for task in tasks):
        raise _grown(options)
    by_partition: dict[int, list[tuple[int, int]]] = {0: []} if is_stream else {}
    for task in tasks:
        for each in task.ledgers:
            by_partition.setdefault(each.partition, []).append((each.ledger_id, each.messages))
    async with FencelogClient(options.servers) as client:
        for partition, ledgers in sorted(by_partition.items()):
            commits = PartitionCommits(client, options.topic, partition, job.name)

            async def attempt(
                commits: PartitionCommits = commits,
                ledgers: list[tuple[int, int]] = ledgers,
            ) -> dict[str, Any]:
                return await commits.commit(
                    job.batch, ledgers, partitions=partitions, ends=not is_stream
                )

            done = await retry_idempotent(attempt)
            if done["batch"] == job.batch and done["partitions"] != partitions:
                raise _grown(options)


async def abort(tasks: Sequence[TaskLedgers], options: WriteOptions) -> None:
    """Withdraw the ledgers of a write that has failed, unless they are committed. Raises
    FencelogError; what is left then is deleted by the sweep."""
    async with FencelogClient(options.servers) as client:
        for task in tasks:
            for each in task.ledgers:
                commits = PartitionCommits(client, options.topic, each.partition, task.job.name)
                ledger_ids = [each.ledger_id]

                async def attempt(
                    commits: PartitionCommits = commits,
                    batch: int = task.job.batch,
                    ledger_ids: list[int] = ledger_ids,
                ) -> object:
                    return await commits.abort(batch, ledger_ids)

                await retry_not_applied(attempt)


def _grown(options: WriteOptions) -> FencelogError:
    return FencelogError(
        ErrorCode.METADATA_CONFLICT,
        f"topic {options.topic} has got more partitions while the batch was written: write it "
        "again",
    )
