"""Runs a script of k8s over a kubectl that notes what it is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.house import ROOT


def run_script(
    place: Path, kubectl: str, name: str, *arguments: str, **variables: str
) -> tuple[int, str, list[str]]:
    """Run a script without its pauses, with this program in place of kubectl, which notes each of
    its calls in ``$PLACE/calls``; return the exit code, what was printed, and the calls."""
    programs = place / "bin"
    programs.mkdir()
    for program, text in (("kubectl", kubectl), ("sleep", "#!/bin/bash\n")):
        (programs / program).write_text(text, "utf-8")
        (programs / program).chmod(0o755)
    done = subprocess.run(
        [ROOT / "k8s" / name, *arguments],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "PLACE": str(place), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    calls = (place / "calls").read_text("utf-8").splitlines()
    return done.returncode, done.stdout + done.stderr, calls
