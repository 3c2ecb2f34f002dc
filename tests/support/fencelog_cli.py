"""The command line run as a user does: a process of its own, its output, its exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from fencelog.api.local_cluster.child_process import fencelog_command


def fencelog(
    *arguments: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout_s: float = 30,
) -> subprocess.CompletedProcess[bytes]:
    """Return the finished command; ``env`` replaces the whole environment."""
    return subprocess.run(
        fencelog_command(*arguments),
        input=stdin,
        env=env,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the one line on stderr with which a command has to fail."""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, done.stderr.decode()
    assert lines[0].startswith("fencelog: ")
    return lines[0].removeprefix("fencelog: ")
