"""Python sources and a sink that do nothing: the limits of Spark's pipe to and from Python.

A module of its own, since Spark's workers have to import it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from fencelog.spark_connector.source import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 2
PIPE_BATCH_BYTES = 1_000_000
"""The values of a batch, near what the connector makes."""

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name != "topic")


class PipeDataSource(DataSource):
    """A source of ``rows`` rows with values of ``bytes``, all in the same batch. As a stream it has
    so many rows in every trigger, and as a sink it drops what it gets."""

    @classmethod
    def name(cls) -> str:
        return "fencelog-bench-pipe"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> PipeReader:
        return PipeReader(schema.fieldNames(), self._number("rows"), self._number("bytes"))

    def streamReader(self, schema: StructType) -> TickReader:
        return TickReader(schema.fieldNames(), self._number("rows"), self._number("bytes"))

    def writer(self, schema: StructType, overwrite: bool) -> NullWriter:
        return NullWriter()

    def _number(self, name: str) -> int:
        return int(self.options[name])


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
        return _constant_rows(partition.value, self._names, self._size)


class TickReader(DataSourceStreamReader):
    """A stream that has the next ``rows`` rows whenever it is asked."""

    def __init__(self, names: Sequence[str], rows: int, size: int) -> None:
        self._names = list(names)
        self._rows = rows
        self._size = size
        self._tick = 0

    def initialOffset(self) -> dict[str, int]:
        return {"tick": 0}

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, int]:
        self._tick += 1
        return {"tick": self._tick}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(self._rows // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        return _constant_rows(partition.value, self._names, self._size)


class NullWriter(DataSourceArrowWriter):
    """A sink that takes all rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def _constant_rows(rows: int, names: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
    from fencelog.ledgers.record_batch import encode_values
    from fencelog.spark_connector.read.columns import arrow_schema
    from fencelog.spark_connector.read.decode import StoredBatches, decode

    count = max(1, PIPE_BATCH_BYTES // size)
    values = memoryview(encode_values([os.urandom(size)] * count))
    stored = StoredBatches("", 0, [values], [count], [0], [0])
    batch = decode(stored, arrow_schema(names), start_offset=0, end_offset=count)
    for _ in range(rows // count):
        yield batch
    if rows % count:
        yield batch.slice(0, rows % count)
