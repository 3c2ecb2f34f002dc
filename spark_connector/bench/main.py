"""Measures what ``fencelog bench spark`` has prepared: ``python -m … SERVER RESULT.json WORK``.

``WORK`` is a JSON object, see ``api.bench.spark``. Two cores read and write; every rate is the
best of three.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencelog.spark_connector.bench.pipe import TASKS, PipeDataSource
from fencelog.spark_connector.bench.reads import measure_planning, measure_reads
from fencelog.spark_connector.bench.triggers import measure_triggers
from fencelog.spark_connector.bench.writes import measure_writes
from fencelog.spark_connector.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> None:
    """Measure, and write one JSON object of metrics."""
    server, result, work = sys.argv[1:]
    spark = local_session()
    try:
        metrics = measure(spark, server, json.loads(work), Path(result).parent)
        Path(result).write_text(json.dumps(metrics))
    finally:
        spark.stop()


def measure(
    spark: SparkSession, server: str, work: dict[str, Any], directory: Path
) -> dict[str, float]:
    """Return the metrics of the parts that ``work`` names. The session knows both sources."""
    metrics: dict[str, float] = {}
    for topic, rows in work.get("reads", {}).items():
        metrics |= measure_reads(spark, server, topic, rows, directory)
    if "planned" in work:
        metrics |= measure_planning(spark, server, work["planned"])
    if "written" in work:
        metrics |= measure_writes(spark, server, **work["written"])
    if "triggers" in work:
        metrics |= measure_triggers(spark, server, work["triggers"], directory)
    return metrics


def local_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session on two cores of this machine that knows both sources, with more settings if
    there are any."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    register(spark)
    spark.dataSource.register(PipeDataSource)
    return spark


if __name__ == "__main__":
    main()
