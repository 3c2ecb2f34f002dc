"""Show that nothing is missing and nothing is there twice: in a topic, or in a copy of it.

    python examples/spark/verify.py --server http://127.0.0.1:8080 --topic shop/orders
    python examples/spark/verify.py --server … --topic shop/orders --copy DIR_OF_PARQUET

Offsets are dense, so that a partition is complete if it has as many different offsets as lie
between its first and its last. A copy is complete if, besides, it has the rows of the topic. Exits
with 1 and says what is wrong, partition by partition.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def problems(rows: DataFrame) -> list[str]:
    """Return what is wrong with rows that have the columns ``partition`` and ``offset``."""
    counted = rows.groupBy("partition").agg(
        f.count("offset").alias("rows"),
        f.countDistinct("offset").alias("offsets"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
    )
    found = []
    for each in counted.orderBy("partition").collect():
        where = f"partition {each.partition}, offsets {each.first} to {each.last}"
        if missing := each.last - each.first + 1 - each.offsets:
            found.append(f"{where}: {missing} are missing")
        if twice := each.rows - each.offsets:
            found.append(f"{where}: {twice} rows are there twice")
    return found


def differences(topic: DataFrame, copy: DataFrame) -> list[str]:
    """Return the rows of the topic that a copy lacks, and those that are in the copy alone."""
    columns = ("partition", "offset", "key", "value")
    wanted, found = topic.select(*columns), copy.select(*columns)
    lacking, foreign = wanted.exceptAll(found).count(), found.exceptAll(wanted).count()
    return [
        *([f"{lacking} rows of the topic are not in the copy"] if lacking else []),
        *([f"{foreign} rows of the copy are not in the topic"] if foreign else []),
    ]


def verify(spark: SparkSession, *, server: str, topic: str, copy: str | None = None) -> list[str]:
    """Return what is wrong with the topic, or with a copy of it."""
    options = {"server": server, "topic": topic, "includeHeaders": "false"}
    rows = spark.read.format("fencelog").options(**options).load()
    if copy is None:
        return problems(rows)
    copied = spark.read.parquet(copy)
    return problems(copied) or differences(rows, copied)


def main() -> None:
    """Verify, and exit with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--copy", help="a directory of Parquet files with the topic's columns")
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"verify {given.topic}").getOrCreate()
    found = verify(spark, server=given.server, topic=given.topic, copy=given.copy)
    print("\n".join(found) or f"{given.topic}: no gap, no duplicate")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
