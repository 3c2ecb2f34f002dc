"""The comparison of both forms, without the compiled one, which takes minutes to make."""

from __future__ import annotations

import sys
from subprocess import PIPE, Popen

import pytest

from tests.conformance import compiled_traces
from tests.conformance.compiled_traces import compare, count, lines_of


def test_a_line_that_differs_is_counted_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert count(["ledgers 1 aa", "ledgers 2 bb"], ["ledgers 1 aa", "ledgers 2 bc"]) == (2, 1)
    assert capsys.readouterr().out == "pure      ledgers 2 bb\ncompiled  ledgers 2 bc\n"


def test_histories_that_one_form_does_not_have_differ() -> None:
    assert count(["ledgers 1 aa"], ["ledgers 1 aa", "ledgers 2 bb"]) == (2, 1)
    assert count(["ledgers 1 aa"], []) == (1, 1)


def test_a_process_that_fails_gives_a_line_that_the_other_has_not() -> None:
    code = "print('ledgers 1 aa'); raise SystemExit(3)"
    with Popen([sys.executable, "-c", code], stdout=PIPE, text=True) as process:
        assert list(lines_of(process)) == ["ledgers 1 aa", "exit code 3"]


def test_two_processes_of_the_same_form_are_no_comparison(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled_traces, "SITE", None)
    assert compare(["--kind", "ledgers", "--seeds", "1"]) == 1
    assert capsys.readouterr().out == "the two processes are pure and pure\n"
