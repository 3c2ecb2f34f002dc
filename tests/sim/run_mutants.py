"""Does the simulator see what is wrong? Runs it over each mutant until it reports a violation.

    python -m tests.sim.run_mutants [--seeds N] [--only NAME ...] [--jobs N] [--seconds N]
                                    [--fresh] [--remember] [--layers NAME ...]

A mutant is caught by a seed whose run reports a violation with the mutant and none without it:
first the one that is known to have caught it (not with ``--fresh``), then those from 1 on. Each
runs in a process of its own, so that one that hangs or crashes costs its limit of CPU time and
nothing else. First a few seeds run over the code as it is, and have to be clean. A row is printed
as each mutant ends. Then the other layers (``mutants/layers.py``) have their turn, and a table says
which of them holds which rule. The last line says how many passed (were caught) and failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import ceil
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

from tests.sim.mutants.catalogue import MUTANTS
from tests.sim.mutants.layers import LAYERS, SIMULATOR, Verdict, table
from tests.sim.mutants.mutation import Mutant, applied

KNOWN_SEEDS = Path(__file__).parent / "mutants" / "known_seeds.json"
"""The seed that showed each mutant, of whatever kind, when they were last looked for."""

CLEAN_SEEDS = 5
_SHOWN_CHARACTERS = 110

_WALL_PER_CPU = 15
"""The factor by which a mutant may take longer on the clock than its limit of CPU time, since
others use the machine too. It ends mutants that wait for ever, which takes no CPU."""


class _Result(Protocol):
    @property
    def violations(self) -> list[str]: ...


RunSeed = Callable[[int], _Result]

AS_IT_IS = Mutant("(none)", "all of them", "The code as it is.", ())


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one mutant."""

    mutant: Mutant
    caught: bool
    seeds: int
    """The one that caught it, or how many did not."""
    seconds: float
    says: str
    """The first violation, or why there is none."""
    was_known: bool = False
    """True if the known seed has caught it."""

    def __str__(self) -> str:
        caught = f"{self.seeds:5d}{' known' if self.was_known else '      '}"
        taken = caught if self.caught else f"SURVIVED after {self.seeds} seeds"
        says = " ".join(self.says.split())
        if len(says) > _SHOWN_CHARACTERS:
            says = says[: _SHOWN_CHARACTERS - 1] + "…"
        name, rule = self.mutant.name, self.mutant.rule
        return f"{name:42} {rule:38} {taken} {self.seconds:6.1f} s  {says}"


@dataclass(frozen=True, slots=True)
class _Report:
    """A report from the process of a mutant: after each seed, and ``ended`` with the last."""

    seeds: int
    ended: bool = False
    caught: bool = False
    says: str = ""
    was_known: bool = False


def examine(
    mutants: Sequence[Mutant],
    run_seed: RunSeed,
    *,
    seeds: int,
    jobs: int,
    seconds: float,
    clean_up_to: int = 0,
    known: Mapping[str, int] | None = None,
) -> Iterator[Row]:
    """A row for each mutant as it ends; ``jobs`` of them run at a time, each for at most so many
    ``seconds`` of CPU time. ``clean_up_to``: it is known that seeds up to this one show nothing
    without a mutant. ``known``: the seed to try first, by the mutant's name.

    Processes that still run when the iteration is given up are killed.
    """
    gc.freeze()  # the processes' collections do not look at what they have from this one
    waiting = list(reversed(mutants))
    running: list[_Examination] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                first = (known or {}).get(mutant.name)
                work = partial(_work, mutant, run_seed, seeds, first, clean_up_to, seconds)
                running.append(_Examination(mutant, work, seconds))
            next_deadline = min(one.deadline for one in running)
            wait([one.pipe for one in running], max(0.0, next_deadline - time.monotonic()))
            for one in list(running):
                row = one.look()
                if row is not None:
                    running.remove(one)
                    yield row
    finally:
        for one in running:
            one.kill()


class _Examination:
    """One mutant in its process."""

    def __init__(self, mutant: Mutant, work: Callable[[Connection], None], seconds: float) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self._mutant = mutant
        self._begun = time.monotonic()
        self._seconds = seconds
        self._last = _Report(0)
        self._process = context.Process(target=work, args=(theirs,))
        self._process.start()
        theirs.close()

    @property
    def deadline(self) -> float:
        return self._begun + _WALL_PER_CPU * self._seconds

    def look(self) -> Row | None:
        """Take what the process has sent; the row if that was all, or its time is over."""
        try:
            while not self._last.ended and self.pipe.poll():
                self._last = self.pipe.recv()
        except EOFError:
            self._process.join()
            says = f"its process died with exit code {self._process.exitcode}"
            if self._process.exitcode == -signal.SIGXCPU:
                says = f"over {self._seconds:g} s of CPU"
            return self._end(_Report(self._last.seeds, says=says))
        if self._last.ended:
            return self._end(self._last)
        if time.monotonic() >= self.deadline:
            return self._end(_Report(self._last.seeds, says="it does not end"))
        return None

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def _end(self, report: _Report) -> Row:
        self.kill()
        taken = time.monotonic() - self._begun
        return Row(self._mutant, report.caught, report.seeds, taken, report.says, report.was_known)


def _work(
    mutant: Mutant,
    run_seed: RunSeed,
    seeds: int,
    first: int | None,
    clean_up_to: int,
    seconds: float,
    pipe: Connection,
) -> None:
    """Run in the process of a mutant."""
    _limit_cpu(seconds)
    seed, violations = 0, list[str]()
    try:
        with _in_force(mutant):
            if first is not None:
                seed, violations = first, run_seed(first).violations
            was_known = bool(violations)
            seed = seed if was_known else 0
            while seed < seeds and not violations:
                seed += 1
                violations = run_seed(seed).violations
                pipe.send(_Report(seed))
        if not violations:
            pipe.send(_Report(seeds, ended=True))
        elif mutant.edits and seed > clean_up_to and (own := run_seed(seed).violations):
            says = f"seed {seed} has a violation without the mutant: {own[0]}"
            pipe.send(_Report(seed, ended=True, says=says))
        else:
            says = violations[0]
            pipe.send(_Report(seed, ended=True, caught=True, says=says, was_known=was_known))
    except Exception as error:  # the simulator reports violations; this is a fault of its own
        pipe.send(_Report(seed, ended=True, says=f"seed {seed} raised {error!r}"))


def _limit_cpu(seconds: float) -> None:
    """Let this process die of SIGXCPU, without a core, after so many seconds of CPU time."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(time.process_time() + seconds), most))


def _in_force(mutant: Mutant) -> AbstractContextManager[None]:
    return applied(mutant) if mutant.edits else nullcontext()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    rows, expected = list[Row](), 0
    if SIMULATOR in options.layers:
        rows, expected = _simulated(options)
        if options.remember:
            _remember({row.mutant.name: row.seeds for row in rows if row.caught})
    verdicts = [Verdict(SIMULATOR, row.mutant.name, row.mutant.rule, row.caught) for row in rows]
    if not options.only:
        for name in options.layers:
            if name != SIMULATOR:
                started = time.monotonic()
                found = list(LAYERS[name](options.jobs))
                caught = sum(verdict.caught for verdict in found)
                seconds = time.monotonic() - started
                _say(f"{name}: {caught} of {len(found)} caught, {seconds:.0f} s")
                for verdict in found:
                    if not verdict.caught:
                        _say(f"  {verdict.mutant:42} {verdict.rule:38} SURVIVED")
                expected += len(found)
                verdicts += found
        _say("")
        for line in table(verdicts, options.layers):
            _say(line)
    caught = sum(verdict.caught for verdict in verdicts)
    _say(f"{caught} passed, {expected - caught} failed")
    return int(caught < expected)


def _simulated(options: argparse.Namespace) -> tuple[list[Row], int]:
    """Every mutant by the histories of its kind; and how many were to be caught."""
    from tests.sim.kinds import KINDS  # late: ``--help`` and the tests of this module do without it

    rows, expected = list[Row](), 0
    known = {} if options.fresh else known_seeds()
    for kind in KINDS.values():
        chosen = [one for one in kind.mutants if not options.only or one.name in options.only]
        if not chosen:
            continue
        expected += len(chosen)
        limits = {"seeds": CLEAN_SEEDS, "seconds": CLEAN_SEEDS * options.seconds}
        run_seed = partial(kind.run_seed, until_wrong=True)
        (clean,) = examine([AS_IT_IS], run_seed, jobs=1, **limits)
        if clean.says:
            _say(f"{kind.name} as they are, {clean.seeds} seeds: {clean.says}")
            continue
        limits = {"seeds": options.seeds, "seconds": options.seconds}
        for row in examine(chosen, run_seed, jobs=options.jobs, known=known, **limits):
            _say(str(row))
            rows.append(row)
    return rows, expected


def known_seeds() -> dict[str, int]:
    """Return the known seeds by the mutant's name."""
    if not KNOWN_SEEDS.exists():
        return {}
    seeds: dict[str, int] = json.loads(KNOWN_SEEDS.read_text(encoding="utf-8"))
    return seeds


def _remember(seeds: dict[str, int]) -> None:
    known = known_seeds() | seeds
    kept = {one.name: known[one.name] for one in MUTANTS if one.name in known}
    KNOWN_SEEDS.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the simulator over mutants of the code.")
    parser.add_argument("--seeds", type=int, default=3000, help="at most so many for each mutant")
    parser.add_argument("--fresh", action="store_true", help="not the known seeds first")
    parser.add_argument("--remember", action="store_true", help="write down the seeds that caught")
    parser.add_argument(
        "--layers",
        nargs="+",
        metavar="NAME",
        choices=[SIMULATOR, *LAYERS],
        default=[SIMULATOR, *LAYERS],
        help=f"who looks: {', '.join([SIMULATOR, *LAYERS])}",
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--seconds", type=float, default=600.0, help="CPU time of each mutant")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=[mutant.name for mutant in MUTANTS],
        help="these mutants instead of all",
    )
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
