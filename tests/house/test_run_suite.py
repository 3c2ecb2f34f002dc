"""The parts of the whole suite: each test is in one of them, and each of them counts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import run_suite
from tests.run_suite import (
    CLI,
    COMMANDS,
    COMPUTED,
    OTHERS,
    PROCESSES,
    SERVICES,
    SIMULATED,
    SPARK,
    TYPED,
    Suite,
)

ALL_NAMED = [*SIMULATED, *COMPUTED, *PROCESSES, *SERVICES, *SPARK, *CLI, *COMMANDS]

FAILING = "import sys; print('what went wrong'); sys.exit(3)"


def test_every_test_is_in_one_part(root: Path) -> None:
    assert [path for path in [*ALL_NAMED, *TYPED] if not (root / path).exists()] == []
    folders = [Path(path) for path in ALL_NAMED]
    assert len({*folders}) == len(folders)
    assert [folder for folder in folders if {*folder.parents} & {*folders}] == []
    assert [f"--ignore={path}" for path in ALL_NAMED] == [*OTHERS]
    assert [path for path in TYPED if not path.startswith(COMPUTED)] == []


def test_a_part_that_fails_is_shown_with_its_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    suite = Suite()
    assert suite.run(sys.executable, "-c", FAILING) == 3
    assert suite.run(sys.executable, "-c", "") == 0
    shown = capfd.readouterr().out
    assert "what went wrong\nexit code 3 after " in shown


def test_no_part_begins_after_the_end() -> None:
    suite = Suite()
    suite.close()
    assert suite.run(sys.executable, "-c", "") != 0


def test_a_thorough_test_is_in_a_part_that_runs_it(root: Path) -> None:
    """The parts of what is thorough are all but ``OTHERS``."""
    folders = {root / path for path in ALL_NAMED}
    marked = [
        path
        for path in (root / "tests").rglob("test_*.py")
        if re.search(r"mark\.thorough|thorough_but\(", path.read_text())
    ]
    assert len(marked) > 20
    assert [path for path in marked if not {*path.parents} & folders] == []


@pytest.mark.parametrize(("run", "parts"), [(run_suite.run_whole, 10), (run_suite.run_thorough, 7)])
@pytest.mark.parametrize("fails", ["tests/sim", "tests/spark", "tests/processes"])
def test_one_part_that_fails_fails_the_suite(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], int], parts: int, fails: str
) -> None:
    ran: list[tuple[str, ...]] = []

    def note(suite: Suite, *command: str) -> int:
        ran.append(command)
        return int(fails in command)

    monkeypatch.setattr(Suite, "run", note)
    monkeypatch.setattr(run_suite, "OLDEST_SPARK", Path(sys.executable))
    assert run() == 1
    assert len(ran) == parts
