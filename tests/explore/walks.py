"""Seeded random walks through worlds that are too large to be searched.

A walk draws how fast each link and each party is, so that some answers come very late, and how
often something goes wrong. The same seed walks the same way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - seeded: the same walk each time

from tests.explore.config import World
from tests.explore.judge import Judge
from tests.explore.model import Model, Step, is_end
from tests.explore.shorten import shorter
from tests.explore.story import Path, Story, told

_MOST_STEPS = 600
_MOST_VALUES = 60_000
"""A model that has seen so many values is made anew: memory."""

_SPEEDS = (1.0, 1.0, 1.0, 0.2, 0.02)
_BEGINNINGS = (0.3, 0.03, 0.003)
"""The rates at which recoveries begin: interesting events need time to happen before them."""


@dataclass(frozen=True, slots=True)
class Walk:
    """One walk. ``befell`` counts the faults."""

    world: World
    seed: int
    steps: int
    befell: Counter[str]
    violation: str = ""
    story: Story = field(default_factory=list)


class Walker:
    """Walks through the worlds in turn: seed ``n`` through the ``n``-th of them."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self._worlds = worlds
        self._models: dict[str, tuple[Model, Judge]] = {}

    def walk(self, seed: int, *, always_told: bool = False) -> Walk:
        """A walk. Its story is told if something is wrong, or always."""
        world = self._worlds[seed % len(self._worlds)]
        model, judge = self._model(world)
        chance = Random(seed)
        speeds: dict[tuple[object, ...], float] = {}
        befell, path = Counter[str](), Path()
        state, violation = model.initial, ""
        often = chance.choice((0.01, 0.03, 0.1))
        while not violation and len(path) < _MOST_STEPS:
            steps = model.steps(state)
            faults = model.fault_steps(state) if chance.random() < often else []
            if is_end(steps):
                violation = judge.end(state)
                break
            if faults:
                kind = chance.choice(sorted({kind_of(step) for step in faults}))
                step = chance.choice([step for step in faults if kind_of(step) == kind])
            else:
                step = _drawn(steps, speeds, chance)
            ways = model.after(state, step)
            if not ways:
                continue  # nothing was changed, so no answer could be lost
            befell.update([kind_of(step)] if faults else [])
            after = chance.choice(ways)
            path.append((state, step, after))
            violation = judge.step(state, after) or judge.state(after)
            state = after
        shown = shorter(model, judge, path) if violation else path
        story = told(model, shown) if violation or always_told else []
        return Walk(world, seed, len(path), befell, violation, story)

    def _model(self, world: World) -> tuple[Model, Judge]:
        known = self._models.get(world.name)
        if known is None or len(known[0].table.values) > _MOST_VALUES:
            model = Model(world, with_symmetry=False)
            known = self._models[world.name] = model, Judge(model)
        return known


def kind_of(step: Step) -> str:
    """Return the kind of a step; that of a fault, if it is one."""
    return str(step[3] if step[0] == "move" else step[0])


def _drawn(steps: list[Step], speeds: dict[tuple[object, ...], float], chance: Random) -> Step:
    """One of them, by the speed of whoever makes it, drawn when it is first needed."""
    weights = []
    for step in steps:
        maker = step[: 2 if step[0] in ("move", "stray", "back", "garbage") else 3]
        begins = step[0] == "move" and step[2][0] == "begin"
        if begins:
            maker = ("begin", *maker)
        if maker not in speeds:
            speeds[maker] = chance.choice(_BEGINNINGS if begins else _SPEEDS)
        weights.append(speeds[maker])
    return chance.choices(steps, weights)[0]


@dataclass(slots=True)
class Played:
    """The result of walks."""

    walks: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    befell: Counter[str] = field(default_factory=Counter)
    violation: Walk | None = None

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.befell.items()))
        return (
            f"{self.walks:,} random walks of {self.steps:,} steps, {self.cpu_s:.1f} s of CPU "
            f"(faults: {faults or 'none'})"
        )


def play(
    worlds: Sequence[World], *, first_seed: int = 1, cpu_s: float, most: int = 1 << 62
) -> Played:
    """Walk until that time is used up, so many walks are done, or something is wrong."""
    began, walker, played = time.process_time(), Walker(worlds), Played()
    while played.cpu_s < cpu_s and played.walks < most and played.violation is None:
        walk = walker.walk(first_seed + played.walks)
        played.walks += 1
        played.steps += walk.steps
        played.befell += walk.befell
        played.cpu_s = time.process_time() - began
        if walk.violation:
            played.violation = walk
    return played
