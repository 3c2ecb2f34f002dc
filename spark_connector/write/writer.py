"""The writers as Spark calls them: rows on executors, the outcome of a batch on the driver.

Spark pickles these objects. Every method name is Spark's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.spark_connector.planning.option_values import wrong
from fencelog.spark_connector.worker import prepare_worker
from fencelog.spark_connector.write.options import ExactlyOnce

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

    from fencelog.spark_connector.write.segments import TaskLedgers
    from fencelog.spark_connector.write.target import Job, WriteTarget

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef,misc]  # newer ones have it
        DataSourceArrowWriter, DataSourceStreamWriter
    ):
        """The same for PySpark 4.0, which names only a writer of single rows, but hands batches of
        Arrow to a writer of either kind that takes them."""


T = TypeVar("T")


@dataclass
class TaskOutcome(WriterCommitMessage):
    """The rows of a task that were written. ``ledgers``: those that are to be committed, if any."""

    rows: int = 0
    ledgers: TaskLedgers | None = None


class FencelogWriter(DataSourceArrowWriter):
    """The writer of a table that ends: at least once, or all of it by one commit a partition."""

    def __init__(self, target: WriteTarget) -> None:
        if target.options.exactly_once is ExactlyOnce.DEDUP:
            raise wrong("option 'exactlyOnce' is 'dedup', which is for streams: they have batches")
        self._target = target
        self._name = f"spark-{SystemHost().random_bytes(16).hex()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcome:
        from fencelog.spark_connector.write.target import Job

        return _write(iterator, self._target, Job(self._name))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(messages, self._target, is_stream=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(messages, self._target)


class _StreamWriter:
    """The writer of a stream, whose batches are numbered. Spark makes one for the tasks of a batch,
    and another one for its commit."""

    def __init__(self, target: WriteTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcome:
        return _write(iterator, self._target, _job_of_stream(_context()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _commit(messages, self._target, is_stream=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(messages, self._target)


class FencelogStreamWriter(_StreamWriter, DataSourceStreamArrowWriter):
    """The writer of a stream."""


def _write(rows: Iterator[pa.RecordBatch], target: WriteTarget, job: Job | None) -> TaskOutcome:
    from fencelog.spark_connector.write.appends import append_all
    from fencelog.spark_connector.write.segments import write_ledgers

    prepare_worker()
    mode = target.options.exactly_once
    if mode is not ExactlyOnce.NONE and job is None:
        raise FencelogError(
            ErrorCode.INTERNAL,
            "Spark does not tell the batch of this task, so it cannot be written exactly once",
        )
    if mode is ExactlyOnce.SEGMENTS and job is not None:
        return TaskOutcome(ledgers=_run(write_ledgers(rows, target, job), target))
    turn = _context().partitionId()
    numbered = job if mode is ExactlyOnce.DEDUP else None
    return TaskOutcome(rows=_run(append_all(rows, target, turn=turn, job=numbered), target))


def _commit(
    messages: Sequence[WriterCommitMessage | None], target: WriteTarget, *, is_stream: bool
) -> None:
    from fencelog.spark_connector.write.segments import commit

    _run(commit(_ledgers_of(messages), target.options, is_stream=is_stream), target)


def _abort(messages: Sequence[WriterCommitMessage | None], target: WriteTarget) -> None:
    from fencelog.spark_connector.write.segments import abort

    with suppress(FencelogError):  # Spark tells why it aborts; the sweep deletes what is left
        _run(abort(_ledgers_of(messages), target.options), target)


def _ledgers_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskLedgers]:
    """Return the ledgers of the tasks, in their order; a task that failed has sent nothing."""
    outcomes = [each for each in messages if isinstance(each, TaskOutcome)]
    return [each.ledgers for each in outcomes if each.ledgers is not None]


def _run(work: Awaitable[T], target: WriteTarget) -> T:
    """Run the work of a task on uvloop, which sends a record batch as it lies in memory: asyncio's
    own loop copies it twice for each bookie."""
    import uvloop

    from fencelog.spark_connector.write.target import located

    async def run() -> T:
        return await work

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run())
    except FencelogError as error:
        raise located(error, target.options) from error


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise FencelogError(ErrorCode.INTERNAL, "rows are written by Spark's tasks only")
    return context


def _job_of_stream(context: TaskContext) -> Job | None:
    """Return the query, which has one id as long as it has its checkpoint, and the number of the
    batch; None if Spark does not tell."""
    from fencelog.spark_connector.write.target import Job

    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return None if query is None or batch is None else Job(f"spark-{query}", int(batch))
