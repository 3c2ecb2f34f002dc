"""The work of a task on an executor: its ranges, one after the other, as Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from fencelog.api.client import FencelogClient
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.secret_file import secret_from
from fencelog.spark_connector.planning.broker_reads import BrokerTask, ReadTask
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.planner import ScanTask
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.read.columns import arrow_schema
from fencelog.spark_connector.read.ledger_source import LedgerSource, ask_owner
from fencelog.spark_connector.read.local_files import LocalFiles
from fencelog.spark_connector.read.read_ahead import iterate
from fencelog.spark_connector.read.scan import Emit, scan_range
from fencelog.spark_connector.read.through_broker import COMPACTED, LOG, read_through_broker
from fencelog.spark_connector.read.verified_run import verified_runs
from fencelog.spark_connector.worker import prepare_worker

COLLECT_AFTER_OBJECTS = 50_000
"""The number of new objects after which the garbage collector runs while a task reads. A reply of
small entries has thousands of them, none in a cycle; Python's 700 took half of the task's time."""

READ_AHEAD = 2
"""The reads that are ready while Spark takes the batches of one; the next one is on its way as soon
as there is room. Each has MAX_READ_BYTES, mostly."""


def read_task(
    task: ReadTask, columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in order of its ranges. Raises FencelogError while iterating."""
    schema = arrow_schema(columns)
    prepare_worker()

    async def produce(emit: Emit) -> None:
        with _few_collections():
            if isinstance(task, BrokerTask):
                await _read_through_brokers(task, schema, options, emit)
            else:
                await _read_from_bookies(task, schema, options, emit)

    return _batches_of(iterate(produce, depth=READ_AHEAD))


def _batches_of(
    reads: Generator[Iterable[pa.RecordBatch], None, None],
) -> Iterator[pa.RecordBatch]:
    with closing(reads):
        for batches in reads:
            yield from batches


@contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage rarely while a task reads."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _read_from_bookies(
    task: ScanTask, schema: pa.Schema, options: ReadOptions, emit: Emit
) -> None:
    secret = None if options.secret_file is None else Path(options.secret_file)
    credentials = secret_from(secret, host=SystemHost())
    files = LocalFiles() if options.reads_locally else None
    bookies = BookieTable(task.bookies, credentials=credentials, files=files)
    try:
        for wanted in task.ranges:
            reader = LedgerReader(wanted.ledger, bookies=bookies, verify=verified_runs)
            reader.confirm(wanted.last_entry)
            source = LedgerSource(reader, wanted, bookies, partial(ask_owner, options.servers))
            try:
                await scan_range(source, wanted, schema, emit)
            except FencelogError as error:
                if not _may_be_lost(error, options):
                    raise
    finally:
        await bookies.close()


async def _read_through_brokers(
    task: BrokerTask, schema: pa.Schema, options: ReadOptions, emit: Emit
) -> None:
    view = COMPACTED if options.is_compacted else LOG
    async with FencelogClient(options.servers) as client:
        for wanted in task.reads:
            await read_through_broker(
                client, wanted, schema, emit, view=view, skip_lost=not options.fail_on_data_loss
            )


def _may_be_lost(error: FencelogError, options: ReadOptions) -> bool:
    """Tell whether the query goes on without a range that was trimmed after it was planned."""
    return error.code is ErrorCode.OFFSET_TRIMMED and not options.fail_on_data_loss
