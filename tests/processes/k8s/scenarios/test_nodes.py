"""A fault that was not seen to happen proves nothing, and is mended all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.k8s.cluster import CommandFailed
from tests.processes.k8s.scenarios.nodes import broken


class Recorded:
    """An installation whose broker answers, or does not, and that notes faults of nodes."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self.cluster = self
        self.faults: list[tuple[str, ...]] = []

    def fault(self, verb: str, *nodes: str) -> None:
        self.faults.append((verb, *nodes))

    def answers(self, address: str) -> bool:
        return self._answers


def break_nodes(installed: Any, *, fails: bool = False) -> None:
    with broken(installed, "cut", "heal", ["node1", "node2"], "10.0.0.1"):
        if fails:
            raise CommandFailed("in between")


MENDED = [("cut", "node1", "node2"), ("heal", "node1", "node2")]


def test_nodes_are_mended_at_the_end() -> None:
    installed = Recorded(answers=False)
    break_nodes(installed)
    assert installed.faults == MENDED


def test_nodes_are_mended_when_the_scenario_fails() -> None:
    installed = Recorded(answers=False)
    with pytest.raises(CommandFailed, match="in between"):
        break_nodes(installed, fails=True)
    assert installed.faults == MENDED


def test_a_fault_without_an_effect_fails_the_scenario() -> None:
    installed = Recorded(answers=True)
    with pytest.raises(CommandFailed, match="answers although cut was done to node1, n"):
        break_nodes(installed)
    assert installed.faults == MENDED
