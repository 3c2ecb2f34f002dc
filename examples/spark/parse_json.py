"""Read JSON messages as a table with columns of their own, and set aside what is no such JSON.

    python examples/spark/parse_json.py --topic shop/orders --schema "id BIGINT, total DOUBLE"

The columns of the topic stay beside those of the JSON, so that each row can be found again.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

REST = "_rest"
"""The column in which Spark leaves a text that does not fit the schema."""


def parsed(messages: DataFrame, schema: str) -> tuple[DataFrame, DataFrame]:
    """Return the rows that fit the schema, and the messages that do not, with their text."""
    options = {"columnNameOfCorruptRecord": REST}
    text = f.col("value").cast("string")
    rows = messages.select(
        "partition",
        "offset",
        "publish_time",
        text.alias("text"),
        f.from_json(text, f"{schema}, {REST} STRING", options).alias("json"),
    )
    fits = f.col("json").isNotNull() & f.col(f"json.{REST}").isNull()
    place = ("partition", "offset", "publish_time")
    good = rows.where(fits).select(*place, "json.*").drop(REST)
    return good, rows.where(~fits).select(*place, "text")


def main() -> None:
    """Show the table, and the messages that are none of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--schema", required=True, help="columns of the JSON, as in SQL")
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"parse {given.topic}").getOrCreate()
    options = {"server": given.server, "topic": given.topic}
    good, bad = parsed(spark.read.format("fencelog").options(**options).load(), given.schema)
    good.show(truncate=False)
    if count := bad.count():
        print(f"{count} messages do not fit:")
        bad.show(truncate=False)


if __name__ == "__main__":
    main()
