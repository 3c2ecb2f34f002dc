"""Entry logs of real bookies that lose a bit: another replica is read, and without one the query
fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import Cluster
from fencelog.ledgers.record_batch import Message, encode_batch
from fencelog.spark_connector.planning.segments import parse_segments
from tests.spark.support.accounts import times_found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.asyncio(loop_scope="session"),
]

TOPIC = "damage/logs"
ENTRIES, OF_EACH, DAMAGED = 6, 100, 4
LARGE = b"." * 12_000
"""Makes each entry so large that a bookie stores it by itself."""


def damage(directory: Path, text: bytes) -> bool:
    """Flip one bit in the stored copies of a text; tell whether there was one."""
    found = False
    for log in directory.rglob("*.entrylog"):
        content = bytearray(log.read_bytes())
        at = content.find(text)
        if at >= 0:
            found = True
            content[at] ^= 1
            log.write_bytes(content)
    return found


async def damage_bookies(cluster: Cluster, count: int, text: bytes) -> int:
    """Damage the text on so many of the bookies that have it; return how many were damaged."""
    damaged = 0
    for number in range(len(cluster.bookies)):
        bookie = cluster.bookies[number]
        await bookie.stop()  # everything is in entry logs then
        if damaged < count:
            damaged += damage(cluster.config.data_dir / bookie.name, text)
        await cluster.restart(bookie)
    return damaged


@pytest.mark.thorough
async def test_damaged_entries_are_never_rows(
    cluster: Cluster, client: FencelogClient, spark: SparkSession, server: str
) -> None:
    def rows(**options: str) -> DataFrame:
        given = {"server": server, "topic": TOPIC} | options
        return spark.read.format("fencelog").options(**given).load()

    await client.create_topic(TOPIC)
    for entry in range(ENTRIES):
        first = entry * OF_EACH
        batch = [Message(b"%d:%d%s" % (n, entry, LARGE)) for n in range(first, first + OF_EACH)]
        await client.append_batch(TOPIC, encode_batch(batch), partition=0)
    (segment,) = parse_segments(TOPIC, await client.segments(TOPIC, 0)).segments
    text = b"%d:%d" % (DAMAGED * OF_EACH, DAMAGED)
    assert await damage_bookies(cluster, 1, text) == 1
    assert times_found(spark, server, TOPIC) == dict.fromkeys(range(ENTRIES * OF_EACH), 1)

    assert await damage_bookies(cluster, len(cluster.bookies), text) >= 2
    with pytest.raises(PySparkException) as raised:
        rows().collect()
    named = f"entry {DAMAGED} of ledger {segment.ledger.ledger_id} cannot be read"
    assert named in str(raised.value)
    intact = DAMAGED * OF_EACH
    assert rows(endingOffsets=f'{{"0": {intact}}}').count() == intact
