"""The work of a task on an executor: its ranges, one after the other, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.spark_connector.planning.planner import ScanTask
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.read.columns import arrow_schema
from fencelog.spark_connector.read.read_ahead import iterate
from fencelog.spark_connector.read.scan import Emit, scan_range

READ_AHEAD_BATCHES = 4
"""The batches that are ready while Spark takes one. The largest is MAX_ENTRY_BYTES, most are near 1
MiB."""


def read_task(task: ScanTask, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in order of its ranges. Raises FencelogError while iterating."""
    schema = arrow_schema(columns)

    async def produce(emit: Emit) -> None:
        bookies = BookieTable(task.bookies)
        try:
            for wanted in task.ranges:
                reader = LedgerReader(wanted.ledger, bookies=bookies)
                reader.confirm(wanted.last_entry)
                await scan_range(reader, wanted, schema, emit)
        finally:
            await bookies.close()

    return iterate(produce, depth=READ_AHEAD_BATCHES)
