"""The simulator as part of the suite: many histories, and that they can be trusted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fencelog.ledgers.format.run import build_run
from tests.sim.engine.engine import Engine
from tests.sim.kinds import KINDS, LEDGERS
from tests.sim.ledgers.runner import run_seed
from tests.sim.mutants.mutation import applied
from tests.sim.oracle.history import History
from tests.sim.oracle.observed_bookie import entry_digests
from tests.sim.outcome import Result, outcome_of
from tests.sim.plan.draw import draw_plan
from tests.sim.plan.plan import Fault, Moment, Plan
from tests.sim.plan.shrink import shortened
from tests.sim.run_mutants import known_seeds
from tests.sim.run_sim import Budget, RunStats, describe, play_within, repeat_command, say

BUDGET = Budget(at_least=50, cpu_s=12, wall_s=900, rare_up_to=250)
"""Seconds on two idle cores. Every kind of fault has its turn."""

THOROUGH = Budget(at_least=250, cpu_s=40, wall_s=900)

BUDGETS = [BUDGET, pytest.param(THOROUGH, marks=pytest.mark.thorough)]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("budget", BUDGETS, ids=["some", "many"])
def test_no_history_violates_an_invariant(
    capsys: pytest.CaptureFixture[str], budget: Budget
) -> None:
    stats, surely, started = RunStats(LEDGERS), RunStats(LEDGERS), time.monotonic()
    certain = set(budget.certain(LEDGERS))
    for result in play_within(LEDGERS, budget, jobs=os.cpu_count() or 1):
        stats.add(result)
        if result.seed in certain:
            surely.add(result)
    with capsys.disabled():
        say(["", *stats.lines(time.monotonic() - started)])
    failures = ["\n".join(describe(LEDGERS, result, shrink=False)) for result in stats.failed]
    assert failures == []
    assert surely.passed == len(certain)
    missing = set(LEDGERS.faults) - surely.kinds.keys()
    assert not missing, f"faults that never happened: {sorted(missing)}"


def test_a_budget_is_a_number_of_histories_and_then_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time on the clock ends it too, but never below that number."""

    def played(*, cpu_s: float = 0.0, wall_s: float = 1000.0) -> int:
        budget = Budget(at_least=60, cpu_s=cpu_s, wall_s=wall_s)
        results = list(play_within(costly, budget, jobs=2))
        assert [result.seed for result in results] == list(range(1, len(results) + 1))
        return len(results)

    costly = replace(LEDGERS, run_seed=one_that_costs_a_second)
    monkeypatch.setitem(KINDS, LEDGERS.name, costly)
    assert played() == 60
    assert played(cpu_s=149) == 160
    assert played(cpu_s=149, wall_s=0) == 60


def one_that_costs_a_second(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    verbose: bool = False,
    until_wrong: bool = False,
) -> Result:
    return Result(seed, [], (), (), cpu_s=1.0)


def test_histories_of_rare_faults_are_played_in_any_case() -> None:
    def plan_of(seed: int) -> Plan:
        return replace(draw_plan(seed), faults=(fault("usual" if seed % 10 else "rare"),))

    kind = replace(LEDGERS, plan_of=plan_of)
    some = list(range(1, 16))
    assert Budget(at_least=15, cpu_s=0, wall_s=0).certain(kind) == some
    assert Budget(at_least=15, cpu_s=0, wall_s=0, rare_up_to=90).certain(kind) == [*some, 20, 30]
    assert Budget(at_least=15, cpu_s=0, wall_s=0, also=(99, 3)).certain(kind) == [*some, 99]


@pytest.mark.parametrize("seed", [1, 7, 19, 42])
def test_a_seed_gives_one_trace(seed: int) -> None:
    first, second = run_seed(seed), run_seed(seed)
    assert (first.digest, first.counts, first.fired) == (
        second.digest,
        second.counts,
        second.fired,
    )


def test_another_interpreter_gives_the_same_trace() -> None:
    code = "from tests.sim.ledgers.runner import run_seed; print(run_seed(7).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == run_seed(7).digest


def test_seeds_differ() -> None:
    assert len({run_seed(seed).digest for seed in range(1, 9)}) == 8
    assert len({draw_plan(seed) for seed in range(1, 200)}) == 199


def test_a_history_can_end_with_its_first_violation() -> None:
    mutant = next(one for one in LEDGERS.mutants if one.name == "timeout-is-an-ack")
    seed = known_seeds()[mutant.name]
    with applied(mutant):
        whole, ended = run_seed(seed), run_seed(seed, until_wrong=True)
    assert ended.violations == whole.violations[:1] != []
    assert ended.virtual_s < whole.virtual_s


class Failing:
    """A history in which a callback fails, and nothing more happens for a long time."""

    def __init__(self) -> None:
        self.history = History()
        self.fired: list[Fault] = []

    async def run(self, faults: tuple[Fault, ...]) -> None:
        asyncio.get_running_loop().call_soon(list[int]().pop)
        await asyncio.sleep(100)


@pytest.mark.parametrize("until_wrong", [False, True])
def test_a_failure_of_a_process_is_a_violation(until_wrong: bool) -> None:
    found = outcome_of(Engine(1), Failing(), (), budget_s=1000, until_wrong=until_wrong)
    (violation,) = found.violations
    assert "IndexError" in violation
    assert (found.virtual_s < 1) is until_wrong


@pytest.mark.parametrize(("place", "is_same"), [(-1, True), (-8, False)])
def test_the_padding_of_an_entry_is_no_part_of_it(place: int, is_same: bool) -> None:
    """Bad memory may flip a bit of it, and copies of that are as good as any."""
    run = build_run(1, 7, [b"body"] * 3, lac=-1, length_before=0)
    damaged = bytearray(run)
    damaged[place] ^= 1
    assert (entry_digests(bytes(damaged)) == entry_digests(run)) == is_same


def fault(kind: str) -> Fault:
    return Fault(Moment("start", 0, 1), kind, "b1", 1, 0.5)


def test_shortening_keeps_the_faults_that_matter() -> None:
    faults = [fault(f"kind {number}") for number in range(12)]
    needed = {"kind 3", "kind 9"}
    short = shortened(faults, lambda some: needed <= {fault.kind for fault in some})
    assert {fault.kind for fault in short} == needed


def test_a_failing_seed_says_how_to_repeat_it() -> None:
    assert repeat_command(LEDGERS, 77) == "make sim KIND=ledgers SEEDS=1 SEED=77"
