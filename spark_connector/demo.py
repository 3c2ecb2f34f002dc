"""The demo's Spark part, a process of its own: lines per topic, the largest topic's frequent words.

python -m fencelog.spark_connector.demo SERVER RESULT.json TOPIC…    (the first topic's words)
"""

from __future__ import annotations

import json
import os
import sys
from functools import reduce
from pathlib import Path

WORDS = 10


def main() -> None:
    """Ask Spark and write ``{"lines": {topic: n}, "words": [[word, n], …]}``."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f

    from fencelog.spark_connector.source import register

    server, result, *topics = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("fencelog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    try:
        logs = {
            topic: spark.read.format("fencelog")
            .option("server", server)
            .option("topic", topic)
            .load()
            for topic in topics
        }
        of_topic = [log.select(f.lit(topic).alias("topic")) for topic, log in logs.items()]
        counted = reduce(DataFrame.unionAll, of_topic).groupBy("topic").count().collect()
        lines = dict.fromkeys(topics, 0) | {row["topic"]: row["count"] for row in counted}
        word = f.explode(f.split(f.col("value").cast("string"), r"\W+")).alias("word")
        occurrences = logs[topics[0]].select(word).where("word != ''").groupBy("word").count()
        words = occurrences.orderBy(f.desc("count"), "word").limit(WORDS).collect()
        answer = {"lines": lines, "words": [[row["word"], row["count"]] for row in words]}
        Path(result).write_text(json.dumps(answer))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
