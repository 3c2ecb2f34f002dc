"""The data source with one failure in it: of a task or of a commit, at its first attempt.

Spark's processes import this module, so it imports the client of the service only where it is used.
What fails is chosen by options of its own, the rest are those of the data source; a file tells the
other processes, and the test, that it has happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from fencelog.spark_connector.planning.options import parse_batch_options
from fencelog.spark_connector.source import FencelogDataSource, FencelogReader, checked_columns
from fencelog.spark_connector.stream.options import parse_stream_options
from fencelog.spark_connector.stream.reader import FencelogStreamReader
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions
from fencelog.spark_connector.write.writer import FencelogStreamWriter, FencelogWriter, TaskOutcome

if TYPE_CHECKING:
    import pyarrow as pa

    from fencelog.api.client import FencelogClient
    from fencelog.spark_connector.write.target import WriteTarget

FORMAT = "failing-fencelog"
HANG_S = 120
"""The time for which a driver hangs until the test kills it."""

T = TypeVar("T")


class Failure(Enum):
    """The way in which the first attempt ends."""

    TASK_RAISES = "task raises"
    TASK_DIES = "task dies"
    """Its process ends without a word, as when the system kills it."""
    EXECUTOR_DIES = "executor dies"
    """The process of Java that runs the task: never in local mode, where it is the driver."""
    COMMIT_RAISES_AFTERWARDS = "commit raises afterwards"
    COMMIT_HANGS_BEFORE = "commit hangs before"
    COMMIT_HANGS_HALFWAY = "commit hangs halfway"
    """When one partition has the batch."""


IN_TASKS = (Failure.TASK_RAISES, Failure.TASK_DIES, Failure.EXECUTOR_DIES)


@dataclass(frozen=True)
class Planned:
    """A failure that happens once: then there is the file ``mark``."""

    failure: Failure
    mark: Path

    def is_due(self) -> bool:
        """Tell whether it happens now, once for all processes."""
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def in_task(self, items: Iterator[T], ready: Callable[[], None] = lambda: None) -> Iterator[T]:
        """Yield the items; fail after the first one, when ``ready`` returns."""
        for number, item in enumerate(items):
            if number == 0 and self.failure in IN_TASKS:
                self._take_turn()
            yield item
            if not self.mark.exists():
                ready()
            if self.failure is Failure.TASK_RAISES and self.is_due():
                raise OSError("the first attempt fails")
            if self.failure is Failure.TASK_DIES and self.is_due():
                os._exit(1)
            if self.failure is Failure.EXECUTOR_DIES and self.is_due():
                kill_executor()

    def _take_turn(self) -> None:
        """Return in the first task that has an item; in others once that one has failed, so that
        what is written before is its own."""
        try:
            os.close(os.open(f"{self.mark}-turn", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            give_up = time.monotonic() + HANG_S
            while not self.mark.exists() and time.monotonic() < give_up:
                time.sleep(0.05)

    def in_commit(self, commit: Callable[[], None]) -> None:
        """Commit, and fail before, in between or afterwards."""
        if self.failure is Failure.COMMIT_HANGS_BEFORE and self.is_due():
            time.sleep(HANG_S)
        if self.failure is Failure.COMMIT_HANGS_HALFWAY:
            self._hang_after_one()
        commit()
        if self.failure is Failure.COMMIT_RAISES_AFTERWARDS and self.is_due():
            raise OSError("the commit fails after it took effect")

    def _hang_after_one(self) -> None:
        from fencelog.api.client.commits import PartitionCommits

        commit_one = PartitionCommits.commit

        async def and_hang(*args: object, **options: object) -> object:
            done = await commit_one(*args, **options)  # type: ignore[arg-type]  # as they came
            if self.is_due():
                time.sleep(HANG_S)  # noqa: ASYNC251 - nothing of this process may go on
            return done

        PartitionCommits.commit = and_hang  # type: ignore[assignment,method-assign]  # this process


def wait_for_rows(options: WriteOptions) -> None:
    """Return when the topic has rows: what a task takes and what it writes are not in step. Rows in
    ledgers of their own are not seen, so they get a second."""
    import anyio

    from fencelog.api.client import FencelogClient

    async def wait() -> None:
        async with FencelogClient(options.servers) as client:
            with anyio.fail_after(HANG_S):
                while not await rows(client):  # noqa: ASYNC110 - a condition without an event
                    await anyio.sleep(0.05)

    async def rows(client: FencelogClient) -> int:
        return sum(int(each["tail_offset"]) for each in await client.offsets(options.topic))

    if options.exactly_once is ExactlyOnce.SEGMENTS:
        time.sleep(1)
    else:
        anyio.run(wait)


def kill_executor() -> None:
    """Kill the executor of this task: the parent of the daemon that has forked this process."""
    import psutil

    daemon = psutil.Process().parent()
    executor = daemon.parent() if daemon is not None else None
    if executor is None or "java" not in executor.name():
        raise RuntimeError(f"this process has no executor: {executor}")
    executor.kill()
    time.sleep(HANG_S)


class FailingDataSource(FencelogDataSource):
    """The data source with the options ``failure`` and ``mark``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        rest = dict(options)
        self._planned = Planned(Failure(rest.pop("failure")), Path(rest.pop("mark")))
        super().__init__(rest)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> FencelogReader:
        return _Reader(self._planned, parse_batch_options(self.options), checked_columns(schema))

    def streamReader(self, schema: StructType) -> FencelogStreamReader:
        options = parse_stream_options(self.options)
        return _StreamReader(self._planned, options, checked_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> FencelogWriter:
        return _Writer(self._planned, self._reached(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> _StreamWriter:
        return _StreamWriter(self._planned, self._reached(schema, overwrite=overwrite))

    def _reached(self, schema: StructType, *, overwrite: bool) -> WriteTarget:
        import anyio

        from fencelog.spark_connector.write.target import reached

        return anyio.run(reached, self._write_options(schema, overwrite))


class _Reader(FencelogReader):
    def __init__(self, planned: Planned, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # as they came
        self._planned = planned

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return self._planned.in_task(super().read(partition))


class _StreamReader(FencelogStreamReader):
    def __init__(self, planned: Planned, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # as they came
        self._planned = planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._planned.in_task(super().read(partition))


class _Writer(FencelogWriter):
    def __init__(self, planned: Planned, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # as they came
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcome:
        rows = self._planned.in_task(iterator, lambda: wait_for_rows(self._target.options))
        return super().write(rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit = super().commit
        self._planned.in_commit(lambda: commit(messages))


class _StreamWriter(FencelogStreamWriter):
    def __init__(self, planned: Planned, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # as they came
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcome:
        rows = self._planned.in_task(iterator, lambda: wait_for_rows(self._target.options))
        return super().write(rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit = super().commit
        self._planned.in_commit(lambda: commit(messages, batchId))
