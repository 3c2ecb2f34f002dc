"""The simulator as part of the suite: many histories, and that they can be trusted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from draw import draw_plan
from kinds import LEDGERS
from observed_bookie import entry_digests
from plan import TARGETS, Fault, Moment
from run_sim import Figures, describe, play, repeat_command, say
from runner import run_seed
from shrink import shortened

from fencelog.ledgers.run import build_run

SEEDS = range(1, 2001)
"""Less than four minutes on two cores."""


@pytest.mark.timeout(1500)
def test_no_history_violates_an_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    figures, started = Figures(LEDGERS), time.monotonic()
    for result in play(LEDGERS, SEEDS, jobs=os.cpu_count() or 1):
        figures.add(result)
    with capsys.disabled():
        say(["", *figures.lines(time.monotonic() - started)])
    failures = ["\n".join(describe(LEDGERS, result, shrink=False)) for result in figures.failed]
    assert failures == []
    missing = set(TARGETS) - figures.kinds.keys()
    assert not missing, f"faults that never happened: {sorted(missing)}"


@pytest.mark.parametrize("seed", [1, 7, 19, 42])
def test_a_seed_gives_one_trace(seed: int) -> None:
    first, second = run_seed(seed), run_seed(seed)
    assert (first.digest, first.counts, first.fired) == (
        second.digest,
        second.counts,
        second.fired,
    )


def test_another_interpreter_gives_the_same_trace() -> None:
    code = "from runner import run_seed; print(run_seed(7).digest)"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "12345",
        "PYTHONPATH": str(Path(__file__).parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == run_seed(7).digest


def test_seeds_differ() -> None:
    assert len({run_seed(seed).digest for seed in range(1, 9)}) == 8
    assert len({draw_plan(seed) for seed in range(1, 200)}) == 199


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
