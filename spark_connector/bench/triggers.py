"""The time that a trigger of a stream takes, with a topic and with a source that does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fencelog.spark_connector.bench.pipe import SCHEMA
from fencelog.spark_connector.bench.rounds import ROUNDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

ROWS = 1000
"""The rows of a trigger."""

TRIGGERS = 12
WARM_UP = 3
"""The triggers of a query, and how many of them do not count."""

POLL_S = 0.05


def measure_triggers(
    spark: SparkSession, server: str, topic: str, directory: Path
) -> dict[str, float]:
    """Return the median time of a trigger of each source, the lowest of some queries that run in
    turn, and the difference. Needs PySpark 4.2, from which on a topic is read in parts."""
    reads = spark.readStream.format("fencelog").options(
        server=server, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS
    )
    pipe = spark.readStream.format("fencelog-bench-pipe").options(rows=ROWS, bytes=100)
    best = {"trigger_p50_ms": float("inf"), "trivial_trigger_p50_ms": float("inf")}
    for number in range(ROUNDS):
        for name, reader in zip(best, (reads.schema(SCHEMA), pipe), strict=True):
            place = directory / f"{name}-{number}"
            best[name] = min(best[name], _median_ms(reader, place))
    over = best["trigger_p50_ms"] - best["trivial_trigger_p50_ms"]
    return best | {"trigger_overhead_ms": over}


def _median_ms(reader: DataStreamReader, place: Path) -> float:
    """Run a query for some triggers; return the median time of those that count.

    Raises RuntimeError if a trigger has other rows than it should.
    """
    query = (
        reader.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(place))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        while (last := query.lastProgress) is None or last.batchId < TRIGGERS - 1:
            if query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # it takes fractions
                raise RuntimeError("the stream has ended by itself")
        done = query.recentProgress
    finally:
        query.stop()
    counted = [each for each in done if WARM_UP <= each.batchId < TRIGGERS]
    rows = {each.numInputRows for each in counted}
    if rows != {ROWS}:
        raise RuntimeError(f"triggers of {rows} rows, not {ROWS}")
    times = sorted(float(each.durationMs["triggerExecution"]) for each in counted)
    return times[len(times) // 2]
