"""A driver in a process of its own that reads, streams and writes, on a Spark cluster or by Spark
Connect, and prints what is in the topics afterwards, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.support.accounts import times_found
from tests.spark.support.copies import Copy
from tests.spark.support.failing import FORMAT, FailingDataSource
from tests.spark.support.jvm import JVM_OPTIONS

CONNECT = "connect"
"""Instead of a master: a client of Spark Connect, with a server of its own."""


def session(master: str, place: Path) -> SparkSession:
    builder = SparkSession.builder
    builder = builder.remote("local[2,4]") if master == CONNECT else builder.master(master)
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.local.dir": str(place / "local"),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Read ``source``, write ``sink`` with a failure, and ``table``."""
    parser = argparse.ArgumentParser()
    for name in ("master", "server", "source", "sink", "table", "place", "failure"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    place = Path(given.place)
    spark = session(given.master, place)
    spark.dataSource.register(FailingDataSource)

    read = times_found(spark, given.server, given.source)
    copy = Copy(spark, place, given.server, given.source, given.sink, {"minPartitions": "4"})
    mark = str(place / "died")
    copy.run(FORMAT, exactlyOnce="segments", failure=given.failure, mark=mark)
    rows = spark.read.format("fencelog").options(server=given.server, topic=given.sink).load()
    saved = rows.select("key", "value").write.format("fencelog").mode("append")
    saved.options(server=given.server, topic=given.table, exactlyOnce="segments").save()
    found = {
        "read": Counter(read.values()),
        "sink": Counter(times_found(spark, given.server, given.sink).values()),
        "table": Counter(times_found(spark, given.server, given.table).values()),
        "died": Path(mark).exists(),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
