"""The quickest of the mutants, in the suite; ``make mutants`` runs them all."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.sim.ledgers.runner import run_seed
from tests.sim.mutants.catalogue import LEDGER_MUTANTS
from tests.sim.run_mutants import examine, known_seeds
from tests.sim.test_simulation import BUDGET

SEEDS = 8
"""Half of all are caught by so many; the others would take the time of hundreds."""

SECONDS = 60.0
"""The limit of CPU time for each mutant, a hundred times what it takes."""

QUICK = 40
"""The seeds within which most mutants have to be caught."""


@pytest.mark.timeout(1800)
def test_the_simulator_sees_what_is_broken() -> None:
    rows = list(
        examine(
            LEDGER_MUTANTS,
            partial(run_seed, until_wrong=True),
            seeds=SEEDS,
            jobs=os.cpu_count() or 1,
            seconds=SECONDS,
            clean_up_to=BUDGET.at_least,  # which test_simulation plays without them
            known=known_seeds(),
        )
    )
    caught = [row for row in rows if row.caught]
    told = "\n".join(str(row) for row in rows)
    assert len(rows) == len(LEDGER_MUTANTS)
    assert len(caught) >= QUICK, told
    # The others have to be out of seeds, not out of order.
    assert [str(row) for row in rows if not row.caught and row.says] == []
