"""A data source that yields one Arrow batch again and again: the limit of Spark's pipe.

A module of its own, since Spark's workers have to import it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fencelog.spark_connector.source import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 2
PIPE_BATCH_BYTES = 1_000_000
"""The values of a batch, near what the connector makes."""

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name != "topic")


class PipeDataSource(DataSource):
    """A source of ``rows`` rows with values of ``bytes``, all in the same batch."""

    @classmethod
    def name(cls) -> str:
        return "fencelog-bench-pipe"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> PipeReader:
        rows, size = int(self.options["rows"]), int(self.options["bytes"])
        return PipeReader(schema.fieldNames(), rows, size)


class PipeReader(DataSourceReader):
    """A reader that makes one batch and yields it as often as needed."""

    def __init__(self, names: Sequence[str], rows: int, size: int) -> None:
        self._names = list(names)
        self._rows = rows
        self._size = size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        from fencelog.ledgers.record_batch import encode_values
        from fencelog.spark_connector.read.columns import arrow_schema
        from fencelog.spark_connector.read.decode import StoredBatches, decode

        count = max(1, PIPE_BATCH_BYTES // self._size)
        values = memoryview(encode_values([os.urandom(self._size)] * count))
        stored = StoredBatches("", 0, [values], [count], [0], [0])
        batch = decode(stored, arrow_schema(self._names), start_offset=0, end_offset=count)
        for _ in range(partition.value // count):
            yield batch
        yield batch.slice(0, partition.value % count)
