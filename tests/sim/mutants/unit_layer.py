"""Mutants of the simulator, by the test of the part that they break.

    python -m tests.sim.mutants.unit_layer NAME        # run its tests over the mutant of that name

``TESTS`` says which file is known to fail (``unit_tests.py`` beside the mutants). It runs in a
process of its own over the mutant.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sim.mutants import auditing, recent
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
):
    for _path, _names in _tests.items():
        TESTS[_path] = (*TESTS.get(_path, ()), *_names)
"""Names of mutants, by the file of tests that catches them."""


def judge(jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant of ``TESTS``, and whether its tests fail over it."""
    by_name = {mutant.name: mutant for mutant in (*MUTANTS, *UNIT_MUTANTS)}
    names = [name for some in TESTS.values() for name in some]
    with ThreadPoolExecutor(jobs) as pool:
        for name, caught in zip(names, pool.map(fails, names), strict=True):
            yield by_name[name], caught


def fails(name: str) -> bool:
    """Tell whether the tests of a mutant fail over it. A run that ends otherwise, say because
    nothing was collected, or does not end, catches nothing."""
    command = (sys.executable, "-m", "tests.sim.mutants.unit_layer", name)
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == CAUGHT


def main(name: str) -> int:
    (mutant,) = (mutant for mutant in (*MUTANTS, *UNIT_MUTANTS) if mutant.name == name)
    (path,) = (path for path, names in TESTS.items() if name in names)
    with applied(mutant):
        code = pytest.main([*OPTIONS, str(ROOT / path)])
    return CAUGHT if code == pytest.ExitCode.TESTS_FAILED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
