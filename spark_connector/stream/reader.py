"""The stream reader as Spark calls it: places in the topics on the driver, rows on executors.

Spark creates this object in several processes and pickles it, so connections are opened at the
first need. Every method name is Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from fencelog.spark_connector.stream.admission_core import NO_LIMITS
from fencelog.spark_connector.stream.options import StreamOptions
from fencelog.spark_connector.stream.position_core import parse_position

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from fencelog.spark_connector.stream.driver import StreamDriver

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # PySpark before 4.2 reads all there is in one micro-batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # its stand-in
        """A stand-in for the interface."""


class FencelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of the columns of topics that the query's schema names, from trigger to trigger."""

    def __init__(self, options: StreamOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._opened: StreamDriver | None = None

    @property
    def _driver(self) -> StreamDriver:
        if self._opened is None:
            from fencelog.spark_connector.stream.driver import StreamDriver
            from fencelog.spark_connector.stream.service import TopicFollower

            self._opened = StreamDriver(self._options, TopicFollower(self._options.read))
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        return self._driver.begin().members()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return whether there are limits: Spark has no value for all of them together, so what it
        hands back is not looked into."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        limits = self._options.limits
        return ReadAllAvailable() if limits == NO_LIMITS else ReadMaxRows(limits.max_offsets or 1)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch. PySpark before 4.2 passes no arguments."""
        if start is None:
            return self._driver.last_end().members()
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        limited = not isinstance(limit, ReadAllAvailable)
        return self._driver.next_end(parse_position(start), limited=limited).members()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the topics as last seen, and how far behind the query is."""
        return self._driver.progress()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run."""
        self._driver.fix_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        tasks = self._driver.tasks(parse_position(start), parse_position(end))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task, as Arrow batches."""
        from fencelog.spark_connector.read.task import read_task

        return read_task(partition.value, self._columns, self._options.read)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge what is before ``end``, which Spark has processed."""
        self._driver.acknowledge(parse_position(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
