"""What was put into a topic, and what is in another one: each message is a number."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fencelog.api.client import FencelogClient
from fencelog.api.client.producer import ExactlyOnceProducer
from fencelog.api.client.retry import retry_idempotent
from fencelog.ledgers.record_batch import Message, encode_batch
from tests.spark.support.recipes import problems_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILLER = b"." * 600
"""Makes a task's first rows enough for a record batch: they are written before the next ones."""


async def fill(
    client: FencelogClient, topic: str, partition: int, numbers: range, *, filler: bytes = b""
) -> None:
    """Append these numbers once, each with a key, in entries of up to 1,000."""
    producer = ExactlyOnceProducer(client, topic, "filler", partition=partition)
    await producer.resume()
    for first in range(0, len(numbers), 1000):
        batch = [
            Message(b"%d%s" % (n, filler), b"%d" % (n % 100)) for n in numbers[first : first + 1000]
        ]
        await producer.append_batch(encode_batch(batch), len(batch))


async def tails(client: FencelogClient, topic: str) -> list[int]:
    """Return the next offset of every partition, also while a broker is taken over."""
    found = await retry_idempotent(lambda: client.offsets(topic))
    return [int(each["tail_offset"]) for each in found]


def times_found(spark: SparkSession, server: str, topic: str) -> dict[int, int]:
    """Return how many times each number is in the topic, whose offsets have neither gap nor
    duplicate."""
    assert problems_of(spark, server, topic) == []
    rows = spark.read.format("fencelog").options(server=server, topic=topic).load()
    values = rows.selectExpr("CAST(regexp_extract(value, '\\\\d+', 0) AS INT) AS n").collect()
    return dict(Counter(row.n for row in values))
