"""Histories of self-healing as part of the suite: many of them, and every wrong worker."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest

from tests.sim.healing.plan import HEALING_TARGETS
from tests.sim.healing.stories import draw_healing_plan
from tests.sim.kinds import HEALING
from tests.sim.run_mutants import examine, known_seeds
from tests.sim.run_sim import Budget, RunStats, describe, play_within, say

BUDGET = Budget(at_least=150, cpu_s=60, wall_s=900)
"""Less than a minute on two idle cores."""

SMOKE_STEP = 3
"""The suite judges every third mutant, a minute of CPU time; ``make mutants`` judges all."""

SECONDS = 60.0
"""The limit of CPU time for each mutant."""

MISSED = 0.25
"""The share of mutants that may need new seeds after a change of the code (``make mutants
ARGS=--remember``)."""


@pytest.mark.timeout(1800)
def test_no_history_of_self_healing_violates_an_invariant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stats, started = RunStats(HEALING), time.monotonic()
    for result in play_within(HEALING, BUDGET, jobs=os.cpu_count() or 1):
        stats.add(result)
    with capsys.disabled():
        say(["", *stats.lines(time.monotonic() - started)])
    failures = ["\n".join(describe(HEALING, result, shrink=False)) for result in stats.failed]
    assert failures == []
    assert stats.counts["healed"] == stats.passed
    missing = set(HEALING_TARGETS) - stats.kinds.keys()
    assert not missing, f"faults that never happened: {sorted(missing)}"
    for event in (
        "bookies replaced",
        "copies left behind",
        "entries copied by workers",
        "copies verified",
        "repairs",
    ):
        assert stats.counts[event] > stats.passed, f"too seldom: {event}"


@pytest.mark.timeout(1800)
def test_wrong_workers_are_caught_by_seeds_that_are_known() -> None:
    mutants = HEALING.mutants[::SMOKE_STEP]
    rows = list(
        examine(
            mutants,
            partial(HEALING.run_seed, until_wrong=True),
            seeds=1,
            jobs=os.cpu_count() or 1,
            seconds=SECONDS,
            clean_up_to=BUDGET.at_least,  # which are played without them above
            known=known_seeds(),
        )
    )
    assert len(rows) == len(mutants)
    missed = [str(row) for row in rows if not row.caught]
    assert len(missed) <= MISSED * len(rows), "\n".join(missed)
    assert [str(row) for row in rows if not row.caught and row.says] == []


@pytest.mark.parametrize("seed", [2, 13])
def test_a_seed_of_self_healing_gives_one_trace(seed: int) -> None:
    first, second = HEALING.run_seed(seed), HEALING.run_seed(seed)
    assert (first.digest, first.counts, first.fired) == (
        second.digest,
        second.counts,
        second.fired,
    )


def test_plans_of_self_healing_differ() -> None:
    assert len({str(draw_healing_plan(seed)) for seed in range(1, 200)}) == 199
