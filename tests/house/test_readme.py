"""The first screen of the README, run as it stands against a real process."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fencelog.api.local_cluster.child_process import ChildProcess
from tests.support.house import ROOT

pytestmark = pytest.mark.processes

ADDRESS = "http://127.0.0.1:8080"
"""The address of the README's service; the tests' service takes a free port."""

TIME_LIMIT_S = 240.0
"""The time for what a user waits for without a thought: each command is a process of its own, which
a loaded machine starts slowly."""


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a standalone service."""
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    process = await ChildProcess.start("standalone", command, log=tmp_path / "standalone.log")
    yield str(process.announcement["http"])
    await process.stop()


def examples(heading: str) -> list[str]:
    """The shell examples below a heading, one string each."""
    readme = (ROOT / "README.md").read_text("utf-8")
    section = readme.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def snippet(heading: str) -> str:
    """The Python example below a heading."""
    readme = (ROOT / "README.md").read_text("utf-8")
    section = readme.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return str(found)


def run(script: str, server: str) -> str:
    """Return what a shell example prints; it must not fail in any line."""
    script = script.replace(ADDRESS, server).replace(
        ".venv/bin/", f"{Path(sys.executable).parent}/"
    )
    script = script.replace("curl ", "curl --silent --show-error --fail-with-body ")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env={**os.environ, "FENCELOG_SERVER": server},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def first_line(program: str) -> str:
    """Return what a Python program that goes on for ever prints first."""
    return await first_line_of([sys.executable, "-u", "-c", program], "")


async def first_line_of(command: list[str], server: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "FENCELOG_SERVER": server},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            return (await process.stdout.readline()).decode()
    finally:
        process.kill()
        await process.wait()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_examples_work_as_they_stand(server: str) -> None:
    _, first = examples("Two commands")
    assert "hello, log" in run(first, server)
    (batches,) = examples("Over HTTP")
    assert '"count":' in run(batches, server)


async def test_command_line_examples_work_as_they_stand(server: str) -> None:
    (script,) = examples("From the command line")
    once = "\n".join(line for line in script.splitlines() if "--follow" not in line)
    assert (ROOT / "README.md").read_text("utf-8") in run(once, server)


async def test_numbered_appends_and_subscriptions_work_as_they_stand(server: str) -> None:
    (twice,) = examples("Exactly once")
    assert "appended 0 messages" in run(twice, server)
    (shared,) = examples("Subscriptions")
    assert '"acked_to": 10,' in run(shared, server)
    first = await first_line(snippet("Subscriptions").replace(ADDRESS, server))
    eleventh = (ROOT / "README.md").read_bytes().split(b"\n")[10]
    assert first == f"{eleventh!r}\n"


async def test_a_follower_shows_what_comes(server: str) -> None:
    (script,) = examples("From the command line")
    run("\n".join(line for line in script.splitlines() if "--follow" not in line), server)
    (follow,) = (line for line in script.splitlines() if "--follow" in line)
    command = [
        word.replace(".venv/bin/", f"{Path(sys.executable).parent}/") for word in follow.split()
    ]
    command[command.index("latest")] = "earliest"  # where it begins is not certain here
    assert await first_line_of(command, server) == "# fencelog\n"
