"""A standalone Spark cluster of real processes: a master and workers, out of the PySpark wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pyspark

from tests.spark.support.jvm import JVM_OPTIONS

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 120
"""A generous time for a JVM on a busy machine."""

_ANNOUNCED = re.compile(r"Starting Spark master at (spark://\S+)|Successfully registered with mast")


@asynccontextmanager
async def spark_cluster(
    place: Path, workers: int, environment: Mapping[str, str]
) -> AsyncIterator[str]:
    """Run a master and workers of one core each; yield the master's URL."""
    async with AsyncExitStack() as stack:
        start = ("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = await stack.enter_async_context(_process(place / "master", start, environment))
        for number in range(1, workers + 1):
            work = place / f"worker-{number}"
            start = ("worker.Worker", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            command = (*start, *sizes, master)
            await stack.enter_async_context(_process(work, command, environment))
        yield master


@asynccontextmanager
async def _process(
    place: Path, command: tuple[str, ...], environment: Mapping[str, str]
) -> AsyncIterator[str]:
    """Run a class of Spark's ``deploy`` package until the end of the block; yield what it announces
    when it is ready."""
    place.mkdir(parents=True)
    log = place / "log"
    name, *arguments = command
    with log.open("wb") as errors:
        process = await anyio.open_process(
            [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            env={
                **environment,
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
            },
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
    try:
        with anyio.fail_after(START_S):
            while (found := _ANNOUNCED.search(log.read_text("utf-8"))) is None:
                assert process.returncode is None, log.read_text("utf-8")
                await anyio.sleep(0.2)
        yield found[1] or ""
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def environment_of(path: str) -> dict[str, str]:
    """Return the environment of Spark's processes, whose Python finds modules in ``path``."""
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
