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
from fencelog.api.client.retry import retry_idempotent
from fencelog.api.client.tasks import map_concurrently
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.format.entry_header import pack_header
from fencelog.ledgers.format.run import Pieces
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import from_json
from fencelog.ledgers.rpc.secret_file import secret_from
from fencelog.ledgers.writer.lent import lent_writer
from fencelog.ledgers.writer.writer import LedgerWriter
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.write.batches import encode_checked, route
from fencelog.spark_connector.write.gathered import Gathered
from fencelog.spark_connector.write.limits import MAX_PENDING_BYTES, MAX_WAITING_BYTES
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions
from fencelog.spark_connector.write.rows import take_rows
from fencelog.spark_connector.write.target import (
    Job,
    WriteTarget,
    check_attempt,
    of_partition,
    partitions_of_batch,
    unkeyed_partition,
)

STALLED_S = 60.0
"""The time without any acknowledgement after which a task fails: bookies are gone. It writes its
rows anew when Spark tries it again."""

PARTITIONS_AT_ONCE = 8
"""The partitions that a batch is committed to, or withdrawn from, at the same time: each is work of
its owner, which closes and checks the ledgers."""

COMMIT_S = 120.0
"""The time for which a commit is repeated, as long as a stream waits for a service: several
takeovers, or a rolling restart. Spark repeats tasks, but ends a query whose commit fails, and a
table is then written by half."""

LEDGERS_AT_ONCE = 1000
"""The ledgers that a partition takes in one commit (MAX_COMMIT_LEDGERS of brokers)."""

WITHDRAWN_AT_ONCE = 100
"""The ledgers that one request withdraws, one after the other: it takes about a second."""


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
    rows: Iterator[pa.RecordBatch], target: WriteTarget, job: Job
) -> TaskLedgers:
    """Write all rows of a task; on return all are durable, and in no log yet. Raises
    FencelogError."""
    async with FencelogClient(target.options.servers) as client:
        partitions = await partitions_of_batch(client, target, job)
        unkeyed = unkeyed_partition(job, partitions)
        ledgers = _OpenLedgers(client, target.options, job)
        gathered = Gathered(most_bytes=MAX_WAITING_BYTES)

        async def write(batch: pa.RecordBatch) -> None:
            for partition, part in gathered.add(batch, route(batch, partitions, unkeyed)):
                await ledgers.write(partition, part)

        try:
            await take_rows(rows, write)
            for partition, part in gathered.rest():
                await ledgers.write(partition, part)
            written = await ledgers.finish()
        finally:
            await ledgers.close()
        return TaskLedgers(job, partitions, written)


class _OpenLedgers:
    """The ledgers that this task writes, one for each partition that has rows. They share the
    connections to bookies: a task has one to each, whatever the number of partitions."""

    def __init__(self, client: FencelogClient, options: WriteOptions, job: Job) -> None:
        self._client = client
        self._topic = options.topic
        self._name = job.name
        self._host = SystemHost()
        secret = None if options.secret_file is None else Path(options.secret_file)
        self._bookies = BookieTable({}, credentials=secret_from(secret, host=self._host))
        self._ledgers: dict[int, _OpenLedger] = {}

    async def write(self, partition: int, rows: pa.Table) -> None:
        """Write rows to the ledger of a partition, which is created first if there is none; return
        when only few rows wait for an acknowledgement. Raises FencelogError."""
        ledger = self._ledgers.get(partition)
        if ledger is None:
            commits = PartitionCommits(self._client, self._topic, partition, self._name)
            made = await retry_idempotent(lambda: of_partition(commits.create_ledger()))
            await self._bookies.move(made["bookies"])
            ledger = self._ledgers[partition] = _OpenLedger(made, self._bookies, self._host)
        entry = ledger.entry(rows)  # while others are on their way
        while sum(each.pending_bytes for each in self._ledgers.values()) > MAX_PENDING_BYTES:
            await max(self._ledgers.values(), key=lambda each: each.pending_bytes).wait()
        await ledger.append(entry, rows.num_rows)

    async def finish(self) -> tuple[LedgerOfTask, ...]:
        """Wait until everything is durable; return what was written. Raises FencelogError."""
        return tuple(
            [
                LedgerOfTask(partition, ledger.ledger_id, await ledger.finish())
                for partition, ledger in self._ledgers.items()
            ]
        )

    async def close(self) -> None:
        """Abandon the ledgers, and close the connections to bookies."""
        try:
            for ledger in self._ledgers.values():
                await ledger.close()
        finally:
            await self._bookies.close()


class _OpenLedger:
    """A ledger that this task writes."""

    def __init__(self, made: dict[str, Any], bookies: BookieTable, host: SystemHost) -> None:
        metadata = from_json(made["ledger"])
        if metadata.digest_type is not DigestType.CRC32C:
            raise FencelogError(
                ErrorCode.UNAUTHORIZED,
                "ledgers of the cluster have a key, which Spark tasks do not know",
            )
        self.ledger_id = metadata.ledger_id
        self._host = host
        self._wakeup = anyio.Event()
        self._messages = 0
        self._last_entry = -1
        self._writer: LedgerWriter = lent_writer(
            metadata,
            made["incarnations"],
            bookies=bookies,
            host=host,
            key=b"",
            on_ack=self._told,
            on_failure=self._told,
        )

    def _told(self, _: object) -> None:
        self._wakeup.set()

    @property
    def pending_bytes(self) -> int:
        """Return the bytes that wait for an acknowledgement."""
        return self._writer.pending_bytes

    def entry(self, rows: pa.Table) -> Pieces:
        """Return the next entry, of these rows. They are copied once, into the run that goes to the
        bookies. Raises FencelogError."""
        header = pack_header(
            count=rows.num_rows,
            first_number=self._messages,
            publish_time_us=self._host.now_us(),
        )
        return Pieces.of(header, *encode_checked(rows))

    async def append(self, entry: Pieces, count: int) -> None:
        """Send an entry of so many messages. Raises FencelogError."""
        self._last_entry = self._writer.append(entry)
        self._messages += count
        await anyio.lowlevel.checkpoint()  # what was queued leaves

    async def finish(self) -> int:
        """Wait until everything is acknowledged; return the number of messages. Bookies then know
        the last entry, so that the recovery before the commit copies no other."""
        while self._writer.last_add_confirmed < self._last_entry:
            await self.wait()
        await self._writer.tell_lac()
        return self._messages

    async def close(self) -> None:
        await self._writer.abandon()

    async def wait(self) -> None:
        """Wait until more is acknowledged. Raises FencelogError: BOOKIE_UNAVAILABLE if nothing is
        for a long time, and that of a writer that has failed."""
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

    Partition 0 comes first, and in a stream also without ledgers: it remembers over how many
    partitions the batch is spread, and no other may have the batch before that is known to an
    attempt that completes it. The others follow, some at a time.

    Raises FencelogError: as ``check_attempt``; SEQUENCE_REUSED if an earlier attempt had another
    number of rows in a partition, ….
    """
    if not tasks:
        return
    job, partitions = tasks[0].job, tasks[0].partitions
    if any(task.partitions != partitions for task in tasks):
        raise _spread_otherwise(options)
    by_partition = _by_partition(tasks)
    most = max(map(len, by_partition.values()), default=0)
    if most > LEDGERS_AT_ONCE:
        raise FencelogError(
            ErrorCode.LIMIT_REACHED,
            f"{most} tasks have rows for one partition, which takes {LEDGERS_AT_ONCE} ledgers at "
            "once: let fewer tasks write (coalesce, repartition)",
        )
    if is_stream:
        by_partition.setdefault(0, [])
    async with FencelogClient(options.servers) as client:

        async def commit_one(partition: int) -> None:
            commits = PartitionCommits(client, options.topic, partition, job.name)
            ledgers = [(each.ledger_id, each.messages) for each in by_partition[partition]]
            done = await retry_idempotent(
                lambda: of_partition(
                    commits.commit(job.batch, ledgers, partitions=partitions, ends=not is_stream)
                ),
                timeout_s=COMMIT_S,
            )
            check_attempt(done, job, ExactlyOnce.SEGMENTS)
            if done["partitions"] != partitions:
                raise _spread_otherwise(options)
            messages = sum(count for _, count in ledgers)
            if done["messages"] != messages:
                raise _other_rows(job, partition, done["messages"], messages)

        in_order = sorted(by_partition)
        for first in in_order[:1]:
            await commit_one(first)
        await map_concurrently(commit_one, in_order[1:], limit=PARTITIONS_AT_ONCE)


async def abort(tasks: Sequence[TaskLedgers], options: WriteOptions) -> None:
    """Withdraw the ledgers of a write that has failed, unless they are committed. Raises
    FencelogError; what is left then is deleted by the sweep."""
    if not tasks:
        return
    job = tasks[0].job
    parts = [
        (partition, [each.ledger_id for each in ledgers[first : first + WITHDRAWN_AT_ONCE]])
        for partition, ledgers in _by_partition(tasks).items()
        for first in range(0, len(ledgers), WITHDRAWN_AT_ONCE)
    ]
    async with FencelogClient(options.servers) as client:

        async def abort_part(part: tuple[int, list[int]]) -> None:
            partition, ledger_ids = part
            commits = PartitionCommits(client, options.topic, partition, job.name)
            await retry_idempotent(lambda: commits.abort(job.batch, ledger_ids))

        await map_concurrently(abort_part, parts, limit=PARTITIONS_AT_ONCE)


def _by_partition(tasks: Sequence[TaskLedgers]) -> dict[int, list[LedgerOfTask]]:
    found: dict[int, list[LedgerOfTask]] = {}
    for task in tasks:
        for ledger in task.ledgers:
            found.setdefault(ledger.partition, []).append(ledger)
    return found


def _other_rows(job: Job, partition: int, known: int, messages: int) -> FencelogError:
    return FencelogError(
        ErrorCode.SEQUENCE_REUSED,
        f"an earlier attempt of batch {job.batch} has committed {known} rows to partition "
        f"{partition}, this one has {messages}: was its source trimmed, or do its rows have other "
        "keys each time? The batch is not completed",
    )


def _spread_otherwise(options: WriteOptions) -> FencelogError:
    return FencelogError(
        ErrorCode.METADATA_CONFLICT,
        f"another attempt has spread the batch over another number of partitions of topic "
        f"{options.topic}, and has begun to commit it: write it again",
    )
