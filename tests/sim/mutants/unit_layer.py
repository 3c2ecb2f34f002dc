"""Mutants of the simulator, by the test of the part that they break.

    python -m tests.sim.mutants.unit_layer NAME        # run its tests over the mutant of that name

``TESTS`` says which file is known to fail (``unit_tests.py`` beside the mutants). It runs in a
process of its own over the mutant.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.process
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from tests.sim.mutants import auditing, recent
from tests.sim.mutants.brokers import unit_tests as brokers_unit_tests
from tests.sim.mutants.catalogue import MUTANTS, UNIT_MUTANTS
from tests.sim.mutants.healing import unit_tests as healing_unit_tests
from tests.sim.mutants.ledgers import unit_tests as ledgers_unit_tests
from tests.sim.mutants.mutation import Mutant, applied
from tests.sim.mutants.parts import unit_tests as parts_unit_tests
from tests.sim.mutants.topics import unit_tests as topics_unit_tests

ROOT = Path(__file__).parents[3]
SECONDS = 300.0

CAUGHT = 64
"""The exit code where tests failed. That of an interpreter that fails is another one."""

OPTIONS = (
    *("-q", "-x", "-p", "no:cacheprovider", "-p", "no:unraisableexception"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
"""Options of pytest, which warns of plugins that the mutant's modules have imported already, and
would end with an error of its own for what a failed test leaves behind."""

TESTS: dict[str, tuple[str, ...]] = {}
for _tests in (
    ledgers_unit_tests.TESTS,
    healing_unit_tests.TESTS,
    auditing.TESTS,
    recent.TESTS,
    topics_unit_tests.TESTS,
    parts_unit_tests.TESTS,
    brokers_unit_tests.TESTS,
):
    for _path, _names in _tests.items():
        TESTS[_path] = (*TESTS.get(_path, ()), *_names)
"""Names of mutants, by the file of tests that catches them."""


def judge(jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant of ``TESTS``, and whether its tests fail over it.

    Its process is forked from this one, which has imported all tests: an import takes longer than
    most tests. What those made at their import, they made of the code as it is. So a mutant that
    is not caught is tried again in a process that imports them over it.
    """
    by_name = {mutant.name: mutant for mutant in (*MUTANTS, *UNIT_MUTANTS)}
    names = [name for some in TESTS.values() for name in some]
    _import_tests()
    gc.freeze()
    for name, caught in forked(names, jobs):
        yield by_name[name], caught or fails(name)


def fails(name: str) -> bool:
    """Tell whether the tests of a mutant fail over it. A run that ends otherwise, say because
    nothing was collected, or does not end, catches nothing."""
    command = (sys.executable, "-m", "tests.sim.mutants.unit_layer", name)
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == CAUGHT


def _import_tests() -> None:
    """Import all test modules, and with them the code. Raises ImportError if one of them cannot
    be imported."""
    paths = [str(ROOT / path) for path in TESTS]
    with open(os.devnull, "w") as silent, redirect_stdout(silent), redirect_stderr(silent):
        code = pytest.main([*OPTIONS, "--collect-only", *paths])
    if code != pytest.ExitCode.OK:
        raise ImportError(f"pytest --collect-only of the tests of mutants ends with {int(code)}")


def forked(names: Sequence[str], jobs: int) -> Iterator[tuple[str, bool]]:
    """Run the tests of each mutant in a fork of this process, so many at a time."""
    context = multiprocessing.get_context("fork")
    waiting = list(reversed(names))
    running: dict[str, tuple[multiprocessing.process.BaseProcess, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop()
                started = context.Process(target=_run_forked, args=(name,))
                started.start()
                running[name] = started, time.monotonic() + SECONDS
            left_s = min(deadline for _, deadline in running.values()) - time.monotonic()
            wait([process.sentinel for process, _ in running.values()], max(0.0, left_s))
            for name, (process, deadline) in list(running.items()):
                if process.is_alive() and time.monotonic() < deadline:
                    continue
                _end(process)
                del running[name]
                yield name, process.exitcode == CAUGHT
    finally:
        for process, _ in running.values():
            _end(process)


def _end(process: multiprocessing.process.BaseProcess) -> None:
    """Kill a process, unless it has ended, and all that it has started."""
    if process.pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may not be a group of its own yet
    process.join()


def _run_forked(name: str) -> None:
    os.setsid()
    with open(os.devnull, "w") as silent:
        os.dup2(silent.fileno(), sys.stdout.fileno())
        os.dup2(silent.fileno(), sys.stderr.fileno())
    sys.exit(main(name))


def main(name: str) -> int:
    (mutant,) = (mutant for mutant in (*MUTANTS, *UNIT_MUTANTS) if mutant.name == name)
    (path,) = (path for path, names in TESTS.items() if name in names)
    with applied(mutant):
        code = pytest.main([*OPTIONS, str(ROOT / path)])
    return CAUGHT if code == pytest.ExitCode.TESTS_FAILED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
