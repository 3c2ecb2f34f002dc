"""The choice of drills, and the report of their outcomes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from fencelog.api.drills.run_all import (
    DRILLS,
    SAFE,
    DrillOutcome,
    Printer,
    chosen,
    run_drills,
    run_in_process,
)
from fencelog.ledgers.errors import FencelogError
from tests.support.fencelog_cli import complaint, fencelog

URL = "http://127.0.0.1:9"
REPORT = {
    "drill": "drain",
    "acknowledged": 1234,
    "lost": 0,
    "duplicated": 0,
    "out_of_order": 0,
    "failover_ms": None,
    "notes": ["it rained"],
}


def test_all_is_every_drill_that_there_is() -> None:
    shown = fencelog("drill", "--help").stdout.decode()
    assert [name for name in DRILLS if f" {name.split()[0]} " not in shown] == []
    assert chosen([], None) == list(DRILLS)
    assert chosen(["drain", "load"], None) == ["drain", "load"]


def test_a_cluster_that_is_there_gets_the_safe_ones() -> None:
    assert chosen([], URL) == list(SAFE)
    assert chosen(["unload"], URL) == ["unload"]
    with pytest.raises(FencelogError, match="drain ends processes, or cuts them off: it runs on"):
        chosen(["load", "drain"], URL)


def test_a_drill_that_does_not_exist() -> None:
    done = fencelog("drill", "all", "kill-everybody")
    assert done.returncode == 1
    assert complaint(done).startswith("there is no drill kill-everybody, but load, unload, drain,")


async def test_one_that_is_not_clean_makes_all_unclean() -> None:
    asked: list[tuple[str, Sequence[str]]] = []
    seen: list[DrillOutcome] = []

    async def run(name: str, options: Sequence[str]) -> DrillOutcome:
        asked.append((name, options))
        return DrillOutcome(name, REPORT, is_clean=name != "load")

    assert not await run_drills(["load", "unload"], URL, runner=run, on_outcome=seen.append)
    assert asked == [("load", ["--cluster", URL]), ("unload", ["--cluster", URL])]
    assert [outcome.is_clean for outcome in seen] == [False, True]
    assert await run_drills(["unload"], None, runner=run, on_outcome=seen.append)
    assert asked[2:] == [("unload", [])]


async def test_a_drill_that_cannot_run_says_why() -> None:
    outcome = await run_in_process("kill-broker", ["--seconds", "none"])
    assert (outcome.report, outcome.is_clean) == (None, False)
    assert outcome.reason.startswith("Invalid value for '--seconds'")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_line_of_json_for_each(is_clean: bool, capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(as_json=True)
    printer.show(DrillOutcome("drain", REPORT, is_clean))
    printer.end()
    line = json.loads(capsys.readouterr().out)
    assert line == {**REPORT, "clean": is_clean, "reason": ""}


def test_a_table_in_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(as_json=False)
    printer.show(DrillOutcome("drain", REPORT, is_clean=True))
    printer.show(DrillOutcome("load", None, is_clean=False, reason="no Java"))
    before = capsys.readouterr().out
    assert "drain: yes\n  it rained\nload: not run\n  no Java\n" in before
    printer.end()
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[1] == ["drain", "1,234", "0", "0", "0", "-", "yes"]
    assert table[2] == ["load", "-", "-", "-", "-", "-", "not", "run"]
