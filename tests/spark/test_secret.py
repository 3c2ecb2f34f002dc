"""Bookies that ask for a secret: tasks read from them and write to them with it, and not
without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import ClusterConfig, running_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.processes,
    pytest.mark.zookeeper,
]

ROWS = 2_000
TOPIC = "guarded/rows"


async def test_tasks_know_the_secret_from_a_file(spark: SparkSession, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"known to bookies, brokers and tasks")
    secret.chmod(0o600)
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"known to nobody else, and as long")
    wrong.chmod(0o600)
    config = ClusterConfig(tmp_path / "data", brokers=1, http_port=0, secret_file=secret)
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    async with running_cluster(config) as cluster:
        async with FencelogClient(cluster.urls) as client:
            await client.create_topic(TOPIC, partitions=2)
        given = {"server": cluster.urls[0], "topic": TOPIC}
        writer = rows.write.format("fencelog").mode("append").options(**given)
        writer = writer.option("exactlyOnce", "segments")
        with pytest.raises(PySparkException, match="does not know the secret"):
            writer.option("secretFile", str(wrong)).save()
        writer.option("secretFile", str(secret)).save()
        reader = spark.read.format("fencelog").options(**given)
        with pytest.raises(PySparkException, match="asks for authentication by hmac-sha256"):
            reader.load().count()
        found = reader.option("secretFile", str(secret)).load().select("value").collect()
    assert sorted(int(row.value) for row in found) == list(range(ROWS))
