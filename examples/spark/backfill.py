"""Copy the whole history of a topic to Parquet, in parallel, straight from the storage nodes.

    python examples/spark/backfill.py --server http://127.0.0.1:8080 --topic shop/orders --out DIR

What is appended meanwhile is not copied. The directory must not exist, so that a copy is complete
or fails; ``verify.py`` compares it with the topic.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def backfill(spark: SparkSession, *, server: str, topic: str, out: str, options: str = "") -> int:
    """Copy the topic, and return the number of its messages. ``options`` of the read are NAME=VALUE
    separated by spaces."""
    given = dict(option.split("=", 1) for option in options.split())
    source = spark.read.format("fencelog").options(server=server, topic=topic, **given).load()
    source.write.partitionBy("partition").parquet(out)
    return spark.read.parquet(out).count()


def main() -> None:
    """Run the copy from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--out", required=True, help="a directory that does not exist")
    parser.add_argument("--options", default="", help='such as "startingTimestamp=2026-01-01T00Z"')
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"backfill {given.topic}").getOrCreate()
    count = backfill(
        spark, server=given.server, topic=given.topic, out=given.out, options=given.options
    )
    print(f"{count} messages of {given.topic} are in {given.out}")


if __name__ == "__main__":
    main()
