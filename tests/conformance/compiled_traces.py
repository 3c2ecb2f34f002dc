"""The histories of the simulator in both forms, compared: ``make test-compiled`` (SEEDS=200).

    python -m tests.conformance.compiled_traces [--seeds N] [--seed FIRST] [--kind KIND]

A process with compiled modules (``make compiled``) and one without play the same seeds. The digest
of a history is that of all that happened in it, step by step: whatever a compiled module does
otherwise gives another one. The last line is ``N histories, N differ``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from fencelog.ledgers.writer import core
from tests.sim.kinds import KINDS, Kind
from tests.support.house import ROOT

SITE = ROOT / "build" / "compiled"

MAX_SHOWN = 5


def is_compiled() -> bool:
    """Tell whether this process has the compiled modules."""
    return Path(core.__file__).suffix != ".py"


def outcome(kind: Kind, seed: int) -> str:
    """Return a line that is the same for the same history."""
    result = kind.run_seed(seed)
    counts = sum(result.counts.values())
    violations = "".join(f" {each}" for each in result.violations)
    return f"{kind.name} {seed} {result.digest} {counts} {len(result.fired)}{violations}"


def begin(arguments: list[str], site: Path | None) -> subprocess.Popen[str]:
    """Start a process that plays the histories with the modules of a site; None: the tree's."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    command = [sys.executable, "-m", "tests.conformance.compiled_traces", "--play", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield what a process prints, line by line; it has to end well."""
    assert process.stdout is not None
    yield from map(str.rstrip, process.stdout)
    if process.wait():
        yield f"exit code {process.returncode}"


def compare(arguments: list[str]) -> int:
    """Print what differs; return the exit code."""
    with begin(arguments, None) as pure, begin(arguments, SITE) as compiled:
        forms = next(lines_of(pure), ""), next(lines_of(compiled), "")
        if forms != ("pure", "compiled"):
            say(f"the two processes are {forms[0] or 'dead'} and {forms[1] or 'dead'}")
            return 1
        played, differ = count(lines_of(pure), lines_of(compiled))
    say(f"{played} histories, {differ} differ")
    return 1 if differ or not played else 0


def count(pure: Iterable[str], compiled: Iterable[str]) -> tuple[int, int]:
    """Return how many lines there are, and how many differ; print the first of those."""
    played = differ = 0
    for one, other in zip_longest(pure, compiled, fillvalue="missing"):
        played += 1
        differ += one != other
        if one != other and differ <= MAX_SHOWN:
            say(f"pure      {one}\ncompiled  {other}")
    return played, differ


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-compiled", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories of each kind")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--play", action="store_true", help="play them in this process alone")
    options = parser.parse_args()
    if not options.play:
        return compare(sys.argv[1:])
    say("compiled" if is_compiled() else "pure")
    for kind in KINDS.values() if options.kind == "all" else [KINDS[options.kind]]:
        for seed in range(options.seed, options.seed + options.seeds):
            say(outcome(kind, seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
