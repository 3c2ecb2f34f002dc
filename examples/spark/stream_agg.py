r"""Count the messages of each window of event time, from a topic to a topic, exactly once.

    python examples/spark/stream_agg.py --from shop/orders --to shop/orders-per-minute \
        --checkpoint DIR --available-now

With ``--available-now`` it counts what there is and ends, as a job of cron; without, it goes on. A
window is written once, when no message for it is expected any more: when messages are there whose
event time is later than its end by ``--lateness``. Messages without an event time count at the time
they were published. A subscription shows how far the query is: its name is that of the target.

Every batch with a window that has ended adds two ledgers to each partition of the target, which
holds 3,000 of them. Where the query runs all the time, give the target a retention, or the query a
longer ``--trigger``.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery


def counts(messages: DataFrame, *, window: str, lateness: str) -> DataFrame:
    """Return a row for each window and key that has ended, as a message: its key is the beginning
    of the window, its value JSON."""
    timed = messages.select(
        f.coalesce("event_time", "publish_time").alias("time"), f.col("key").cast("string")
    )
    counted = timed.withWatermark("time", lateness).groupBy(f.window("time", window), "key").count()
    fields = (f.col("window.start"), f.col("window.end"), "key", "count")
    return counted.select(
        f.col("window.start").cast("string").alias("key"),
        f.to_json(f.struct(*fields)).alias("value"),
        f.col("window.start").alias("event_time"),
    )


def start(
    spark: SparkSession,
    *,
    server: str,
    source: str,
    target: str,
    checkpoint: str,
    window: str = "1 minute",
    lateness: str = "10 minutes",
    trigger: str = "1 minute",
    available_now: bool = False,
) -> StreamingQuery:
    """Start the query. The target topic must exist."""
    messages = (
        spark.readStream.format("fencelog")
        .options(server=server, topic=source, startingOffsets="earliest")
        .option("subscription", target.replace("/", "-"))
        .load()
    )
    writer = (
        counts(messages, window=window, lateness=lateness)
        .repartition(1)  # each task with rows adds ledgers: one for a few rows, and not 200
        .writeStream.format("fencelog")
        .options(server=server, topic=target, exactlyOnce="segments")
        .option("checkpointLocation", checkpoint)
    )
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def main() -> None:
    """Run the query until it ends, or for ever."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC")
    parser.add_argument("--to", dest="target", required=True, metavar="TOPIC")
    parser.add_argument("--checkpoint", required=True, help="a directory that outlives the query")
    parser.add_argument("--window", default="1 minute")
    parser.add_argument("--lateness", default="10 minutes")
    parser.add_argument("--trigger", default="1 minute", help="the time between two batches")
    parser.add_argument("--available-now", action="store_true")
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"counts of {given.source}").getOrCreate()
    start(spark, **vars(given)).awaitTermination()


if __name__ == "__main__":
    main()
