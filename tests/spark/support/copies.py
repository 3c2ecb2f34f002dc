"""A query that copies one topic into another, also as the driver of a process of its own."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fencelog.spark_connector.source import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass
class Copy:
    """A query with a checkpoint; it can be run again. ``options`` are those of its source."""

    spark: SparkSession
    place: Path
    server: str
    source: str
    sink: str
    options: dict[str, str] = field(default_factory=dict)
    source_format: str = FORMAT

    @property
    def checkpoint(self) -> Path:
        return self.place / "checkpoint"

    def writer(self, sink_format: str = FORMAT, **options: str) -> DataStreamWriter:
        """The query, with these options of its sink."""
        reader = self.spark.readStream.format(self.source_format).options(
            **{"server": self.server, "topic": self.source, "startingOffsets": "earliest"}
            | self.options
        )
        return (
            reader.schema("key BINARY, value BINARY")
            .load()
            .writeStream.format(sink_format)
            .options(**{"server": self.server, "topic": self.sink} | options)
            .option("checkpointLocation", str(self.checkpoint))
        )

    def run(self, sink_format: str = FORMAT, **options: str) -> StreamingQuery:
        """Copy what there is now. Raises StreamingQueryException."""
        query = self.writer(sink_format, **options).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query


def main() -> None:
    """Copy with a failure in the sink, until the process is killed. What it prints tells a test
    that has waited for it in vain how far it came."""
    began = time.monotonic()

    def tell(what: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:5.1f} s: {what}\n")
        sys.stdout.flush()

    from pyspark.sql import SparkSession

    from tests.spark.support.failing import FORMAT as FAILING
    from tests.spark.support.failing import FailingDataSource

    parser = argparse.ArgumentParser()
    for name in ("server", "source", "sink", "place", "failure", "mark", "java-options"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", given.java_options)
        .config("spark.local.dir", str(Path(given.place) / "local"))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    tell("Spark runs")
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FailingDataSource)
    tell("the data source is registered")
    copy = Copy(spark, Path(given.place), given.server, given.source, given.sink)
    writer = copy.writer(FAILING, exactlyOnce="segments", failure=given.failure, mark=given.mark)
    query = writer.trigger(availableNow=True).start()
    tell("the query runs")
    query.awaitTermination()


if __name__ == "__main__":
    main()
