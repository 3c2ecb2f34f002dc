"""Wrong brokers, each by the seed that is known to show it. ``make mutants`` finds the seeds."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.sim.kinds import TOPICS
from tests.sim.run_mutants import examine, known_seeds
from tests.sim.test_topic_simulation import BUDGET

SMOKE_STEP = 2
"""The suite judges every second mutant; ``make mutants`` judges all."""

SECONDS = 60.0
"""The limit of CPU time for each mutant, a hundred times what it takes."""

MISSED = 0.25
"""A change of the code may give every seed another history, and the mutants other seeds: so many of
them may need new ones (``make mutants ARGS=--remember``)."""


@pytest.mark.timeout(1800)
def test_wrong_brokers_are_caught_by_seeds_that_are_known() -> None:
    mutants = TOPICS.mutants[::SMOKE_STEP]
    rows = list(
        examine(
            mutants,
            partial(TOPICS.run_seed, until_wrong=True),
            seeds=1,
            jobs=os.cpu_count() or 1,
            seconds=SECONDS,
            clean_up_to=BUDGET.at_least,  # which test_topic_simulation plays without them
            known=known_seeds(),
        )
    )
    assert len(rows) == len(mutants)
    missed = [str(row) for row in rows if not row.caught]
    assert len(missed) <= MISSED * len(rows), "\n".join(missed)
    # The others have to be out of seeds, not out of order.
    assert [str(row) for row in rows if not row.caught and row.says] == []
