"""The parts of the whole suite: each test is in one of them, and each of them counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import run_suite
from tests.run_suite import (
    COMMANDS,
    COMPUTED,
    DRILLS,
    OTHERS,
    PROCESSES,
    SERVICES,
    SIMULATED,
    SPARK,
    TYPED,
    Suite,
)

FAILING = "import sys; print('what went wrong'); sys.exit(3)"


def test_every_test_is_in_one_part(root: Path) -> None:
    named = [*SIMULATED, *COMPUTED, *PROCESSES, *SERVICES, *SPARK, *COMMANDS]
    assert [path for path in [*named, *DRILLS, *TYPED] if not (root / path).exists()] == []
    folders = [Path(path) for path in named]
    assert len({*folders}) == len(folders)
    assert [folder for folder in folders if {*folder.parents} & {*folders}] == []
    assert [f"--ignore={path}" for path in named] == [*OTHERS]
    assert [path for path in DRILLS if not path.startswith(PROCESSES)] == []
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


@pytest.mark.parametrize("fails", ["tests/sim", "tests/spark", "--ignore=tests/api"])
def test_one_part_that_fails_fails_the_suite(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    ran: list[tuple[str, ...]] = []

    def run(suite: Suite, *command: str) -> int:
        ran.append(command)
        return int(fails in command)

    monkeypatch.setattr(Suite, "run", run)
    monkeypatch.setattr(run_suite, "OLDEST_SPARK", Path(sys.executable))
    assert run_suite.run_whole() == 1
    assert len(ran) == 9
