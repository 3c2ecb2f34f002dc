"""``make explore``: search small worlds completely, walk through larger ones, judge wrong cores.

    make explore                                  every world that is complete in minutes
    make explore ARGS="--world limbo 'two entries'"
    make explore ARGS="--huge"                    those with millions of states
    make explore ARGS="--walks 600"               random walks for so many seconds of CPU
    make explore ARGS="--walk 134"                one of them again, step by step
    make explore ARGS="--mutants"                 each wrong core: does it show?

Each world is a line with its states and its CPU time. What is wrong is told as a story, step by
step. The last line is ``N passed, N failed``.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context

from tests.explore.config import World
from tests.explore.mutants import BEYOND, CANDIDATES, JUDGED, Verdict, judge
from tests.explore.search import Found, Search
from tests.explore.walks import Walk, Walker, play
from tests.explore.worlds import HUGE, LARGE, SMALL, WALKED
from tests.sim.mutants.mutation import Mutant

SEARCHED = {world.name: world for world in (*SMALL, *LARGE, *HUGE)}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.mutants or options.only:
        return _judge_mutants(options)
    if options.walk is not None:
        return _walk_again(options.walk)
    if options.walks:
        return _walk(options.walks, options.seed)
    chosen = [SEARCHED[name] for name in options.world]
    if not chosen:
        chosen = [*HUGE] if options.huge else [*SMALL, *LARGE]
    failed = 0
    for found in _searched(chosen, options.max_states, options.jobs):
        say([str(found)])
        if found.violation:
            failed += 1
            say(["", found.violation, *found.story, ""])
    return _count(len(chosen) - failed, failed)


def _searched(worlds: Sequence[World], max_states: int, jobs: int) -> Iterator[Found]:
    """Each in a process of its own, which gives its memory back."""
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap(partial(search, max_states=max_states), worlds)


def search(world: World, max_states: int) -> Found:
    found = Search(world).run(max_states=max_states)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    say([f"{world.name}: {megabytes} MB"] if megabytes > 1024 else [])
    return found


def _walk(cpu_s: float, seed: int) -> int:
    played = play(WALKED, first_seed=seed, cpu_s=cpu_s)
    say([str(played)])
    if played.violation is not None:
        say(_told(played.violation))
    failed = int(played.violation is not None)
    return _count(played.walks - failed, failed)


def _walk_again(seed: int) -> int:
    walk = Walker(WALKED).walk(seed, always_told=True)
    say(_told(walk))
    return _count(int(not walk.violation), int(bool(walk.violation)))


def _told(walk: Walk) -> Iterator[str]:
    yield f"walk {walk.seed}, {walk.world.name}: make explore ARGS='--walk {walk.seed}'"
    yield walk.violation or "nothing is wrong"
    yield from walk.story


def _judge_mutants(options: argparse.Namespace) -> int:
    chosen = [one for one in CANDIDATES if one.name in options.only] or list(JUDGED)
    how = partial(_verdict, walk_s=options.walk_s, search_states=options.search_states)
    caught = 0
    with get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        for verdict in pool.imap(how, [mutant.name for mutant in chosen]):
            caught += bool(verdict.how)
            say([str(verdict), *(verdict.story if options.only else [])])
    if not options.only:
        say(f"{name:42} not judged: {why}" for name, why in BEYOND.items())
    return _count(caught, len(chosen) - caught)


def _verdict(name: str, *, walk_s: float, search_states: int) -> Verdict:
    mutant: Mutant = next(one for one in CANDIDATES if one.name == name)
    return judge(mutant, walk_s=walk_s, search_states=search_states)


def _count(passed: int, failed: int) -> int:
    say([f"{passed} passed, {failed} failed"])
    return int(failed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make explore",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--world", nargs="+", default=[], choices=SEARCHED, metavar="NAME")
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--max-states", type=int, default=1 << 40, help="give up after so many")
    parser.add_argument("--walks", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1, help="of the first walk")
    parser.add_argument("--walk", type=int, metavar="SEED")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument(
        "--only", nargs="+", default=[], choices=[one.name for one in CANDIDATES], metavar="MUTANT"
    )
    parser.add_argument("--walk-s", type=float, default=60.0, help="walks for each mutant")
    parser.add_argument("--search-states", type=int, default=60_000, help="of each world, for each")
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def say(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
