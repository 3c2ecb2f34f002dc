"""Wrong brokers, each by the seed that is known to show it. ``make mutants`` finds the seeds."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.sim.kinds import TOPICS
from tests.sim.outcome import Result
from tests.sim.run_mutants import KNOWN_SEEDS, Row, examine

SMOKE_STEP = 2
"""The suite judges every second mutant; ``make mutants`` judges all."""

SECONDS = 60.0
"""The limit of CPU time for each mutant, a hundred times what it takes."""

MISSED = 0.25
"""A change of the code may give every seed another history, and the mutants other seeds: so many of
them may need new ones (``make mutants ARGS=--remember``)."""


@pytest.mark.timeout(1800)
def test_wrong_brokers_are_caught_by_seeds_that_are_known() -> None:
    known: dict[str, int] = json.loads(Path(KNOWN_SEEDS).read_text(encoding="utf-8"))
    rows: list[Row] = []
    for mutant in TOPICS.mutants[::SMOKE_STEP]:
        # That they are clean without a mutant is tested with all the others.
        play = partial(_play, [known.get(mutant.name, 1), 1])
        rows += examine([mutant], play, seeds=2, jobs=1, seconds=SECONDS, are_clean=True)
    missed = [str(row) for row in rows if not row.caught]
    assert len(missed) <= MISSED * len(rows), "\n".join(missed)
    # The others have to be out of seeds, not out of order.
    assert [str(row) for row in rows if not row.caught and row.says] == []


def _play(seeds: list[int], number: int) -> Result:
    return TOPICS.run_seed(seeds[number - 1])
