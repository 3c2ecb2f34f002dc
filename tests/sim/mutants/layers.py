"""The other layers that check whether a rule is broken, besides the histories of the simulator; and
which rules are held by one layer alone.

A layer judges mutants: its own, or those of the simulator that it can see. To add one, give
``LAYERS`` a name and a function that yields a ``Verdict`` for each mutant it has tried.
"""

from __future__ import annotations

import gc
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context

from tests.sim.mutants import unit_layer

SIMULATOR = "simulator"

WALK_S = 30.0
SEARCHED_STATES = 30_000
"""The states that small worlds may take for each mutant; `make explore ARGS=--mutants` allows
more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a layer on a mutant."""

    layer: str
    mutant: str
    rule: str
    caught: bool


Layer = Callable[[int], Iterator[Verdict]]
"""Judges all that it can, with so many processes."""


def rules_of(text: str) -> tuple[str, ...]:
    """The rules that a mutant names: one of the protocol by its number, one of another document by
    its heading. Where it names none, its text is the rule."""
    numbered = [
        f"PROTOCOL.md rule {number}"
        for numbers in re.findall(r"PROTOCOL\.md rules? ([\d ,and]+)", text)
        for number in re.findall(r"\d+", numbers)
    ]
    bare = [f"PROTOCOL.md rule {n}" for n in re.findall(r"(?:^|; )rule (\d+)", text)]
    headings = re.findall(r"[A-Z]+\.md: [^;]+", text)
    return tuple(dict.fromkeys([*numbered, *bare, *map(str.strip, headings)])) or (text,)


def table(verdicts: Iterable[Verdict], layers: Sequence[str]) -> Iterator[str]:
    """Yield how many mutants of each rule each layer catches; who alone holds one is named behind
    it."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        for rule in rules_of(verdict.rule):
            counts[rule][verdict.layer] += verdict.caught
    yield f"{'mutants caught, by rule':<44}" + "".join(f"{layer:>15}" for layer in layers)
    for rule in sorted(counts, key=_order):
        found = counts[rule]
        holding = [layer for layer in layers if found[layer]]
        row = f"{rule:<44}" + "".join(f"{found[layer] or '-':>15}" for layer in layers)
        alone = f"  {holding[0]} alone" if len(holding) == 1 else ""
        yield row + (alone if holding else "  NOBODY")


def _order(rule: str) -> tuple[str, int]:
    """Rule 10 comes behind rule 9."""
    name, _, number = rule.rpartition(" ")
    return (name, int(number)) if number.isdigit() else (rule, 0)


def crash_images(jobs: int) -> Iterator[Verdict]:
    """The wrong orders of writing and syncing, by the images that crashes leave."""
    from tests.crash.mutants import MUTANTS

    cases = [(workload, at) for workload, some in MUTANTS.items() for at in range(len(some))]
    gc.freeze()
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for workload, at, caught in pool.imap_unordered(_crash_image, cases):
            mutant = MUTANTS[workload][at]
            yield Verdict("crash images", mutant.name, mutant.rule, caught)


def _crash_image(case: tuple[str, int]) -> tuple[str, int, bool]:
    from tests.crash.mutants import MUTANTS, first_failure

    workload, at = case
    return workload, at, first_failure(workload, MUTANTS[workload][at]) is not None


def unit_tests(jobs: int) -> Iterator[Verdict]:
    """Mutants of the simulator that a test of the part they break is known to catch."""
    for mutant, caught in unit_layer.judge(jobs):
        yield Verdict("unit tests", mutant.name, mutant.rule, caught)


def small_worlds(jobs: int) -> Iterator[Verdict]:
    """Wrong writers, recoveries and readers, by random walks and small worlds that are searched
    completely."""
    from tests.explore.mutants import JUDGED

    rules = {mutant.name: mutant.rule for mutant in JUDGED}
    gc.freeze()
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for name, caught in pool.imap_unordered(_small_world, list(rules)):
            yield Verdict("small worlds", name, rules[name], caught)


def _small_world(name: str) -> tuple[str, bool]:
    from tests.explore.mutants import JUDGED, judge

    (mutant,) = (mutant for mutant in JUDGED if mutant.name == name)
    return name, bool(judge(mutant, walk_s=WALK_S, search_states=SEARCHED_STATES).how)


LAYERS: dict[str, Layer] = {
    "small worlds": small_worlds,
    "crash images": crash_images,
    "unit tests": unit_tests,
}
"""Layers by name; the simulator itself is not among them."""
