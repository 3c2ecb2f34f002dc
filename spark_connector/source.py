"""The data source as Spark sees it: names, schema, planning on the driver, reading on executors.

Spark pickles these objects and imports this module in every Python worker, so it imports only the
modules that describing a query needs; HTTP and Arrow come with planning and reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.types import ArrayType, DataType, StructType

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.catalog_tables import (
    columns_with_options,
    options_of_new_table,
    options_of_query,
    options_of_table,
)
from fencelog.spark_connector.planning.filters import ALL_ROWS, comparison_of, row_filter
from fencelog.spark_connector.planning.option_values import wrong
from fencelog.spark_connector.planning.options import (
    ReadOptions,
    parse_batch_options,
    parse_options,
)
from fencelog.spark_connector.stream.options import parse_stream_options
from fencelog.spark_connector.stream.reader import FencelogStreamReader
from fencelog.spark_connector.write.options import (
    WriteOptions,
    check_columns,
    parse_write_options,
)
from fencelog.spark_connector.write.writer import FencelogStreamWriter, FencelogWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter

    from fencelog.spark_connector.write.target import WriteTarget

FORMAT = "fencelog"

COLUMNS: Mapping[str, str] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<name:string,value:binary>>",
    "publish_time": "timestamp",
    "event_time": "timestamp",
}
"""The columns of a topic in order, with their Spark types as ``simpleString`` writes them."""


def register(spark: SparkSession) -> None:
    """Make the format known to a session that did not find ``pyspark_fencelog`` by itself (as with
    an editable install, which Spark cannot search). Repeating it does no harm."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(FencelogDataSource)
    except AnalysisException as error:  # of Spark 4.0, which has found it by itself
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class FencelogDataSource(DataSource):
    """The data source ``spark.read.format("fencelog")``; options and columns are in SPARK.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return all columns. Raises FencelogError(BAD_REQUEST) for options that are not valid."""
        of_table = options_of_new_table(self.options, FORMAT)
        options = parse_options(self.options if of_table is None else of_table)
        if of_table is not None:
            _check_table(options)
        columns = [
            (name, kind)
            for name, kind in COLUMNS.items()
            if (options.include_headers or name != "headers")
            and (options.shows_topic or name != "topic")
        ]
        return columns_with_options(columns, of_table)

    def reader(self, schema: StructType) -> FencelogReader:
        """Return a reader. Raises FencelogError(BAD_REQUEST) for options or columns that are not
        valid."""
        options = parse_batch_options(options_of_query(self.options, schema))
        if self._is_of_table(schema):
            _check_table(options)
        if options.push_filters and not hasattr(DataSourceReader, "pushFilters"):
            raise wrong("option 'pushFilters' needs PySpark 4.1 or newer")
        kind = FilteringReader if options.push_filters else FencelogReader
        return kind(options, checked_columns(schema))

    def streamReader(self, schema: StructType) -> FencelogStreamReader:
        """Return a reader of a stream. Raises FencelogError(BAD_REQUEST) as ``reader``."""
        options = parse_stream_options(options_of_query(self.options, schema))
        return FencelogStreamReader(options, checked_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> FencelogWriter:
        """Return a writer. Raises FencelogError: BAD_REQUEST for options or columns that cannot be
        written, and for the save mode "overwrite"; NO_OWNER if no server answers;
        TOPIC_NOT_FOUND."""
        return FencelogWriter(_reached(self._write_options(schema, overwrite)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of a stream. Raises FencelogError as ``writer`` does."""
        return FencelogStreamWriter(_reached(self._write_options(schema, overwrite)))

    def _is_of_table(self, schema: StructType) -> bool:
        """Tell whether a query is one of a table of the catalog."""
        names = {name.lower() for name in self.options}
        return "server" not in names and bool(options_of_table(schema))

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        if self._is_of_table(schema):
            raise wrong(
                "a table of the catalog is for reading; rows are written with save or start"
            )
        options = parse_write_options(self.options)
        check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields])
        if overwrite:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                "fencelog data source: a topic is appended to, never overwritten: use the save "
                'mode "append"',
            )
        return options


def _check_table(options: ReadOptions) -> None:
    """Check the options of a table of the catalog. Raises FencelogError(BAD_REQUEST)."""
    if options.push_filters:
        raise wrong(
            "option 'pushFilters' is not for tables of the catalog: Spark applies what it pushes "
            "for one use of a table to the others in the same query, which would lack rows"
        )


def _reached(options: WriteOptions) -> WriteTarget:
    from fencelog.spark_connector.write.target import reached

    return asyncio.run(reached(options))


class FencelogReader(DataSourceReader):
    """A reader of the columns of a topic that the query's schema names."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._rows = ALL_ROWS

    def partitions(self) -> list[InputPartition]:
        """Ask the service once for all segments, and plan. The end is fixed from here on."""
        from fencelog.spark_connector.planning.bounds import resolve
        from fencelog.spark_connector.planning.broker_reads import plan_broker_reads
        from fencelog.spark_connector.planning.filters import narrow
        from fencelog.spark_connector.planning.planner import plan
        from fencelog.spark_connector.planning.service import fetch, reached

        self._options = asyncio.run(reached(self._options))
        found = asyncio.run(fetch(self._options, self._rows))
        start, end = resolve(found.partitions, self._options, found.times)
        answers, start, end = narrow(found.partitions, start, end, self._rows, found.times)
        through_brokers = self._options.through_brokers or self._options.is_compacted
        make_tasks = plan_broker_reads if through_brokers else plan
        tasks = make_tasks(answers, start, end, self._options)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task, as Arrow batches."""
        from fencelog.spark_connector.read.task import read_task

        # Spark's own placeholder where nothing was planned: None in 4.0, with None in it later.
        if partition is None or partition.value is None:
            return iter(())
        return read_task(partition.value, self._columns, self._options)


class FilteringReader(FencelogReader):
    """A reader that leaves out what the filters of the query do not want, as far as offsets tell
    it. A class of its own, since Spark refuses one with ``pushFilters`` unless
    ``spark.sql.python.filterPushdown.enabled`` is on."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Take the filters of the query, all of which hold for its rows. Spark has to check all of
        them: a read is only narrowed."""
        comparisons = map(comparison_of, filters)
        self._rows = row_filter(comparisons, is_compacted=self._options.is_compacted)
        return filters


def checked_columns(schema: StructType) -> list[str]:
    """Return the names of the wanted columns: those of a topic, in any order and number.

    Raises FencelogError(BAD_REQUEST) naming the column that a topic does not have, or that is NOT
    NULL: Spark would drop a comparison with NULL instead of asking for rows.
    """
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if COLUMNS.get(field.name) != kind:
            known = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"fencelog data source: a topic has no column {field.name} {kind}; it has {known}",
            )
        if not (field.nullable and _may_hold_null(field.dataType)):
            raise wrong(
                f"column {field.name} {kind} is NOT NULL in the given schema, or a part of it is; "
                "no column of a topic is: leave NOT NULL out, and filter the rows"
            )
    return list(schema.fieldNames())


def _may_hold_null(kind: DataType) -> bool:
    """Tell whether every part of a type may be NULL."""
    if isinstance(kind, ArrayType):
        return kind.containsNull and _may_hold_null(kind.elementType)
    if isinstance(kind, StructType):
        return all(part.nullable and _may_hold_null(part.dataType) for part in kind.fields)
    return True
