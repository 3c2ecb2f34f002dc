"""``make sim SEEDS=n SEED=k``: play n histories from seed k on, two at a time, and say what came.

A failing seed prints what was violated, the one command that repeats it, and the faults that it
takes. The last line is ``N passed, N failed``.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from multiprocessing import get_context

from plan import TARGETS, Fault
from runner import Result, run_seed
from shrink import shortened

MAX_SHRUNK = 3
"""Failing seeds whose faults are shortened; it takes dozens of runs each."""


@dataclass(slots=True)
class Figures:
    """What a number of histories add up to."""

    passed: int = 0
    failed: list[Result] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    virtual_s: float = 0.0

    def add(self, result: Result) -> None:
        if result.violations:
            self.failed.append(result)
        else:
            self.passed += 1
        self.counts += result.counts
        self.virtual_s += result.virtual_s
        fired = Counter(fault.kind for fault in result.fired)
        self.kinds += fired
        self.pairs |= set(combinations(sorted(fired), 2))

    def lines(self, seconds: float) -> Iterator[str]:
        seeds = self.passed + len(self.failed)
        yield (
            f"{seeds} histories in {seconds:.0f} s, {seeds / max(seconds, 1e-9):.1f}/s; "
            f"{self.virtual_s / 3600:.1f} simulated hours"
        )
        yield ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items()))
        yield f"faults: {sum(self.kinds.values())} of {len(self.kinds)} of {len(TARGETS)} kinds"
        for kind in sorted(TARGETS):
            yield f"  {kind:<24}{self.kinds[kind]:>8}"
        possible = len(TARGETS) * (len(TARGETS) - 1) // 2
        yield f"pairs of kinds in one history: {len(self.pairs)} of {possible}"


def repeat_command(seed: int) -> str:
    return f"make sim SEEDS=1 SEED={seed}"


def describe(result: Result, *, shrink: bool) -> Iterator[str]:
    """A failing seed, for a person."""
    yield f"seed {result.seed} failed: {repeat_command(result.seed)}"
    for violation in result.violations[:5]:
        yield f"  {violation}"
    faults: list[Fault] = list(result.faults)
    if shrink:
        first = result.violations[0].partition(":")[0]

        def fails(candidate: object) -> bool:
            violations = run_seed(result.seed, candidate).violations  # type: ignore[arg-type]
            return any(violation.startswith(first) for violation in violations)

        faults = shortened(faults, fails)
    yield f"  with {len(faults)} of {len(result.faults)} faults:"
    for fault in faults:
        yield f"    {fault}"


def play(seeds: range, jobs: int) -> Iterator[Result]:
    """The results, in the order of the seeds."""
    if jobs == 1 or len(seeds) == 1:
        yield from map(run_seed, seeds)
        return
    context = get_context("fork")
    gc.freeze()
    with context.Pool(jobs, maxtasksperchild=200) as pool:
        yield from pool.imap(_brief, seeds, chunksize=4)


def _brief(seed: int) -> Result:
    result = run_seed(seed)
    result.trace = []
    return result


def say(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="print the trace of each history")
    options = parser.parse_args(arguments)
    figures, started = Figures(), time.monotonic()
    seeds = range(options.seed, options.seed + options.seeds)
    if options.verbose:
        results: Iterator[Result] = (run_seed(seed, verbose=True) for seed in seeds)
    else:
        results = play(seeds, options.jobs)
    for result in results:
        figures.add(result)
        if result.violations:
            shrink = len(figures.failed) <= MAX_SHRUNK
            say(describe(result, shrink=shrink))
    say(figures.lines(time.monotonic() - started))
    say([f"{figures.passed} passed, {len(figures.failed)} failed"])
    return 1 if figures.failed else 0


if __name__ == "__main__":
    sys.exit(main())
