"""Mutants in the suite, by the seeds that are known to show them. ``make mutants`` finds the seeds,
and judges them by all layers."""

from __future__ import annotations

import os
from functools import partial
from types import ModuleType

import pytest
from _pytest.mark import ParameterSet

from tests.sim import test_healing_simulation, test_simulation, test_topic_simulation
from tests.sim.kinds import HEALING, LEDGERS, RESTORES, TOPICS, Kind
from tests.sim.metadata.restores import test_history as test_restores
from tests.sim.run_mutants import examine, known_seeds
from tests.sim.run_sim import Budget

SECONDS = 60.0
"""The limit of CPU time for each mutant, a hundred times what it takes."""

EVERY_SIXTH, EVERY_TWELFTH, EVERY_FORTIETH = 6, 12, 40
"""The share of a kind's mutants that `make test` tries: histories of self-healing take the longest.
All of them are tried where tests are thorough."""


def _shares(kind: Kind, played: ModuleType, step: int) -> list[ParameterSet]:
    some, every = (kind, played.BUDGET, step), (kind, played.THOROUGH, 1)
    return [
        pytest.param(*some, id=f"some of {kind.name}"),
        pytest.param(*every, id=f"all of {kind.name}", marks=pytest.mark.thorough),
    ]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "budget", "step"),
    [
        *_shares(LEDGERS, test_simulation, EVERY_SIXTH),
        *_shares(HEALING, test_healing_simulation, EVERY_FORTIETH),
        *_shares(TOPICS, test_topic_simulation, EVERY_TWELFTH),
        *_shares(RESTORES, test_restores, EVERY_SIXTH),
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
