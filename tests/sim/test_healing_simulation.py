"""Histories of self-healing as part of the suite: many of them, and that they can be trusted."""

from __future__ import annotations

import os
import time

import pytest

from tests.sim.healing.plan import HEALING_TARGETS
from tests.sim.healing.stories import draw_healing_plan
from tests.sim.kinds import HEALING
from tests.sim.run_sim import Budget, RunStats, describe, play_within, say

BUDGET = Budget(at_least=25, cpu_s=12, wall_s=900)
"""Seed 24 is the first one in which a ledger is deleted after it was closed."""
THOROUGH = Budget(at_least=60, cpu_s=50, wall_s=900)
BUDGETS = [BUDGET, pytest.param(THOROUGH, marks=pytest.mark.thorough)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("budget", BUDGETS, ids=["some", "many"])
def test_no_history_of_self_healing_violates_an_invariant(
    capsys: pytest.CaptureFixture[str], budget: Budget
) -> None:
    stats, started = RunStats(HEALING), time.monotonic()
    for result in play_within(HEALING, budget, jobs=os.cpu_count() or 1):
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
