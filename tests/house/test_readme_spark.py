"""The README's demo and its example of Spark, as they stand but for the logs and the address."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.child_process import ChildProcess
from tests.spark.support.jvm import JVM_OPTIONS
from tests.support.house import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.spark,
    pytest.mark.skipif(not (ROOT / ".venv/.installed-all").exists(), reason="no make install-all"),
]

ADDRESS = "http://127.0.0.1:8080"
LOGS = "LOGS=/var/log"
AT_A_PROMPT = {"PYSPARK_DRIVER_PYTHON_OPTS": "-i"}
"""The option of Spark's Python that stands for a terminal."""
QUICK_TO_START = {"SPARK_SUBMIT_OPTS": JVM_OPTIONS}
"""Options of Java that a driver takes from its environment; no line of the README names any."""
TIME_LIMIT_S = 240


def block(heading: str, language: str) -> str:
    """Return the first example in a language below a heading."""
    section = (ROOT / "README.md").read_text("utf-8").split(f"\n## {heading}\n", 1)[1]
    return section.split(f"```{language}\n", 1)[1].split("```", 1)[0]


async def shell(script: str, given: str = "") -> str:
    """Return what a script prints in a shell at the root, given this on its standard input."""
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=ROOT,
        env=environment | QUICK_TO_START | (AT_A_PROMPT if given else {}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(TIME_LIMIT_S):
        printed, _ = await process.communicate(given.encode())
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.mark.thorough
async def test_the_demo_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "some.log").write_text("one line\nand one more line\n" * 100, "utf-8")
    demo = block("See it on real logs", "bash")
    assert LOGS in demo
    printed = await shell(demo.replace(LOGS, f"LOGS={tmp_path}"))
    assert "every line came back as it was" in printed


async def test_spark_shows_a_topic_as_it_stands(tmp_path: Path) -> None:
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    process = await ChildProcess.start("standalone", command, log=tmp_path / "log")
    try:
        server = str(process.announcement["http"])
        async with FencelogClient(server) as client:
            await client.create_topic("default/greetings")
            await client.append("default/greetings", b"hello, Spark")
        program = block("From Spark", "python")
        assert ADDRESS in program
        # As at the prompt, an empty line ends what is in parentheses.
        printed = await shell(block("From Spark", "bash"), program.replace(ADDRESS, server) + "\n")
    finally:
        await process.stop()
    assert "hello, Spark" in printed
