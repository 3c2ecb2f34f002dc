"""Streaming queries over topics, and the rows that they should give."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fencelog.api.client import FencelogClient
from fencelog.ledgers.record_batch import Message, encode_batch
from fencelog.spark_connector.stream.reader import FencelogStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # PySpark before 4.2
    HAS_LIMITS = False
else:
    HAS_LIMITS = issubclass(FencelogStreamReader, SupportsTriggerAvailableNow)

COLUMNS = "topic STRING, partition INT, offset BIGINT, value BINARY"

Row = tuple[str, int, int, bytes]


async def append(client: FencelogClient, topic: str, partition: int, count: int) -> list[Row]:
    """Append messages in entries of up to 1,000; return them as the rows that a query gives."""
    rows: list[Row] = []
    while len(rows) < count:
        messages = [Message(b"%d" % n) for n in range(len(rows), min(count, len(rows) + 1000))]
        batch = encode_batch(messages)
        done = await client.append_batch(topic, batch, partition=partition)
        rows += [
            (topic, partition, done.offset + number, message.value)
            for number, message in enumerate(messages)
        ]
    return rows


@dataclass
class Stream:
    """A streaming query that writes rows to files, with a checkpoint; it can be run again."""

    spark: SparkSession
    place: Path
    options: dict[str, str]

    def writer(self, **options: str) -> DataStreamWriter:
        reader = self.spark.readStream.format("fencelog").options(**self.options | options)
        return (
            reader.schema(COLUMNS)
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.place / "rows"))
            .option("checkpointLocation", str(self.place / "checkpoint"))
        )

    def run(self, **options: str) -> StreamingQuery:
        """Read what there is now. Raises StreamingQueryException."""
        query = self.writer(**options).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    def rows(self) -> list[Row]:
        """Everything that was written, in order."""
        frame = self.spark.read.schema(COLUMNS).parquet(str(self.place / "rows"))
        return sorted((r.topic, r.partition, r.offset, bytes(r.value)) for r in frame.collect())


def batches(query: StreamingQuery) -> list[int]:
    """The rows of each micro-batch that had any."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def forget_last_commit(checkpoint: Path) -> None:
    """Have the next run repeat the last batch, as if its driver had died before it could note that
    the batch is complete."""
    commits = checkpoint / "commits"
    last = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
