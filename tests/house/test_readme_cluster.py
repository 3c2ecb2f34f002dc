"""The README's cluster, started as it stands but for its ports, its data and the drill's length."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fencelog.api.local_cluster.child_process import ChildProcess
from tests.support.fencelog_cli import fencelog
from tests.support.house import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

COMMAND = ".venv/bin/fencelog"


def commands(heading: str) -> list[list[str]]:
    """Return the words of the commands below a heading, comments left out."""
    section = (ROOT / "README.md").read_text("utf-8").split(f"\n## {heading}\n", 1)[1]
    block = section.split("```bash\n", 1)[1].split("```", 1)[0]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


async def test_the_cluster_starts_and_the_drill_breaks_one(tmp_path: Path) -> None:
    install, cluster, drill = commands("A cluster on this machine")
    assert (install, cluster[0], drill[0]) == (["make", "install-all"], COMMAND, COMMAND)
    places = ("--http-port", "0", "--data", str(tmp_path / "data"))
    running = await ChildProcess.start("cluster", [*cluster[1:], *places], log=tmp_path / "log")
    try:
        server = str(running.announcement["http"])
        created = fencelog("topic", "create", "default/t", "--server", server)
        assert created.returncode == 0, created.stderr
    finally:
        await running.stop()
    done = fencelog(*drill[1:], "--seconds", "2", timeout_s=240)
    printed = done.stdout.decode()
    assert done.returncode == 0, printed + done.stderr.decode()
    assert "nothing lost, doubled or out of order" in printed


def test_the_benches_are_there() -> None:
    """``tests/bench`` runs them."""
    found = commands("How fast")
    assert len(found) >= 7
    for command, bench, name in found:
        assert (command, bench) == (COMMAND, "bench")
        assert fencelog("bench", name, "--help").returncode == 0, name
