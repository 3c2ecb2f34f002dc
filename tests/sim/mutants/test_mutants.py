"""Mutants in the suite, a share of each kind by the seeds that are known to show them. ``make
mutants`` finds the seeds, and judges all of them."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.sim import test_healing_simulation, test_simulation, test_topic_simulation
from tests.sim.kinds import HEALING, LEDGERS, RESTORES, TOPICS, Kind
from tests.sim.metadata.restores import test_history as test_restores
from tests.sim.run_mutants import examine, known_seeds
from tests.sim.run_sim import Budget

SECONDS = 60.0
"""The limit of CPU time for each mutant, a hundred times what it takes."""

EACH, EVERY_THIRD, EVERY_FIFTH = 1, 3, 5
"""The share of a kind's mutants: histories of self-healing take the longest."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "budget", "step"),
    [
        pytest.param(LEDGERS, test_simulation.BUDGET, EACH, id="ledgers"),
        pytest.param(HEALING, test_healing_simulation.BUDGET, EVERY_FIFTH, id="healing"),
        pytest.param(TOPICS, test_topic_simulation.BUDGET, EVERY_THIRD, id="topics"),
        pytest.param(RESTORES, test_restores.BUDGET, EACH, id="restores"),
    ],
)
def test_what_is_broken_is_seen_by_the_seeds_that_are_known(
    kind: Kind, budget: Budget, step: int
) -> None:
    """A change of the code may give every seed another history: a mutant that its seed does not
    show any more needs another one."""
    mutants = kind.mutants[::step]
    rows = list(
        examine(
            mutants,
            partial(kind.run_seed, until_wrong=True),
            seeds=0,  # none but the known one
            jobs=os.cpu_count() or 1,
            seconds=SECONDS,
            clean_up_to=budget.at_least,  # which a test of each kind plays without mutants
            known=known_seeds(),
        )
    )
    assert len(rows) == len(mutants)
    missed = [row for row in rows if not row.caught]
    told = "\n".join(map(str, missed))
    names = " ".join(row.mutant.name for row in missed)
    assert not missed, f"{told}\nmake mutants ARGS='--remember --only {names}'"
