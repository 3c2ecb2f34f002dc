"""``make sim SEEDS=n SEED=k KIND=topics``: play n histories from seed k on, two at a time, and say
what came; without a kind so many of each.

A failing seed prints what was violated, the one command that repeats it, and the faults that it
takes. The last line is ``N passed, N failed``.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from multiprocessing import get_context
from multiprocessing.pool import Pool

from tests.sim.kinds import KINDS, Kind
from tests.sim.outcome import Result
from tests.sim.plan.plan import Fault
from tests.sim.plan.shrink import shortened

_ROUND = 50
"""Seeds between two looks at what is left of a budget."""

SEVERAL = 3
"""The plans that have to have a fault, for it to happen in one of them: some come too late."""

MAX_SHRUNK = 3
"""Failing seeds whose faults are shortened; it takes dozens of runs each."""


@dataclass(slots=True)
class RunStats:
    """The sum of a number of histories of one kind."""

    kind: Kind
    passed: int = 0
    failed: list[Result] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    virtual_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, result: Result) -> None:
        if result.violations:
            self.failed.append(result)
        else:
            self.passed += 1
        self.counts += result.counts
        self.virtual_s += result.virtual_s
        self.cpu_s += result.cpu_s
        fired = Counter(fault.kind for fault in result.fired)
        self.kinds += fired
        self.pairs |= set(combinations(sorted(fired), 2))

    def lines(self, seconds: float) -> Iterator[str]:
        seeds = self.passed + len(self.failed)
        yield (
            f"{seeds} histories of {self.kind.name} in {seconds:.0f} s, "
            f"{self.cpu_s:.0f} s of CPU, {seeds / max(self.cpu_s, 1e-9):.1f} per CPU second; "
            f"{self.virtual_s / 3600:.1f} simulated hours"
        )
        yield ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items()))
        possible = len(self.kind.faults)
        yield f"faults: {sum(self.kinds.values())} of {len(self.kinds)} of {possible} kinds"
        for kind in sorted(self.kind.faults):
            yield f"  {kind:<24}{self.kinds[kind]:>8}"
        possible = possible * (possible - 1) // 2
        yield f"pairs of kinds in one history: {len(self.pairs)} of {possible}"


def repeat_command(kind: Kind, seed: int) -> str:
    return f"make sim KIND={kind.name} SEEDS=1 SEED={seed}"


def describe(kind: Kind, result: Result, *, shrink: bool) -> Iterator[str]:
    """A failing seed, for a person."""
    yield f"seed {result.seed} of {kind.name} failed: {repeat_command(kind, result.seed)}"
    for violation in result.violations[:5]:
        yield f"  {violation}"
    faults: list[Fault] = list(result.faults)
    if shrink:
        first = result.violations[0].partition(":")[0]

        def fails(candidate: Sequence[Fault]) -> bool:
            violations = kind.run_seed(result.seed, candidate).violations
            return any(violation.startswith(first) for violation in violations)

        faults = shortened(faults, fails)
    yield f"  with {len(faults)} of {len(result.faults)} faults:"
    for fault in faults:
        yield f"    {fault}"


def play(kind: Kind, seeds: range, jobs: int) -> Iterator[Result]:
    """The results, in the order of the seeds."""
    if len(seeds) == 1:
        yield kind.run_seed(seeds.start)
        return
    with _workers(jobs) as pool:
        yield from pool.imap(partial(_brief, kind.name), seeds, chunksize=4)


@dataclass(frozen=True, slots=True)
class Budget:
    """The number of histories that are played within a budget of time."""

    at_least: int
    """The number of histories that are played in any case: the same on every machine."""
    cpu_s: float
    """The CPU time until which more are played: a busy machine plays no fewer."""
    wall_s: float
    """The time on the clock after which none is begun."""
    rare_up_to: int = 0
    """Of the seeds up to this one those are played in any case, too, whose plan has a kind of fault
    that was in fewer than ``SEVERAL`` plans before."""
    also: tuple[int, ...] = ()
    """Seeds that are played in any case, too."""

    def certain(self, kind: Kind) -> list[int]:
        """The seeds that are played in any case."""
        seeds = list(range(1, self.at_least + 1))
        planned = Counter[str]()
        for seed in seeds:
            planned.update(_planned(kind, seed))
        for seed in range(self.at_least + 1, self.rare_up_to + 1):
            faults = _planned(kind, seed)
            if any(planned[fault] < SEVERAL for fault in faults):
                planned.update(faults)
                seeds.append(seed)
        return sorted({*seeds, *self.also})


def _planned(kind: Kind, seed: int) -> set[str]:
    return {fault.kind for fault in kind.plan_of(seed).faults}


def play_within(kind: Kind, budget: Budget, jobs: int) -> Iterator[Result]:
    """The results of seeds, in their order, of as many as the budget allows."""
    began_s, spent_s = time.monotonic(), 0.0
    seeds: Sequence[int] = budget.certain(kind)
    with _workers(jobs) as pool:
        while seeds:
            for result in pool.imap(partial(_brief, kind.name), seeds, chunksize=4):
                spent_s += result.cpu_s
                yield result
            is_over = spent_s >= budget.cpu_s or time.monotonic() - began_s >= budget.wall_s
            seeds = () if is_over else range(seeds[-1] + 1, seeds[-1] + 1 + _ROUND)


def _workers(jobs: int) -> Pool:
    """Processes that end after a while: a history leaves 0.2 MB of garbage that the next one's
    collections do not look at."""
    gc.freeze()
    return get_context("fork").Pool(jobs, maxtasksperchild=200)


def _brief(kind: str, seed: int) -> Result:
    result = KINDS[kind].run_seed(seed)
    result.trace = []
    return result


def say(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="print the trace of each history")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.seeds)
    kinds = KINDS.values() if options.kind == "all" else [KINDS[options.kind]]
    stats = [_played(kind, seeds, options.jobs, verbose=options.verbose) for kind in kinds]
    failed = sum(len(some.failed) for some in stats)
    say([f"{sum(some.passed for some in stats)} passed, {failed} failed"])
    return 1 if failed else 0


def _played(kind: Kind, seeds: range, jobs: int, *, verbose: bool) -> RunStats:
    """Play them all, and say what came of them."""
    stats, started = RunStats(kind), time.monotonic()
    if verbose:
        results: Iterator[Result] = (kind.run_seed(seed, verbose=True) for seed in seeds)
    else:
        results = play(kind, seeds, jobs)
    for result in results:
        stats.add(result)
        if result.violations:
            shrink = len(stats.failed) <= MAX_SHRUNK
            say(describe(kind, result, shrink=shrink))
    say(stats.lines(time.monotonic() - started))
    return stats


if __name__ == "__main__":
    sys.exit(main())
