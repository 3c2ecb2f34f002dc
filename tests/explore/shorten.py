"""A walk that went wrong, without the steps that it does not take."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.explore.judge import Judge
from tests.explore.model import Model, State, is_end
from tests.explore.story import Path, said
from tests.sim.plan.shrink import shortened

_MAX_RUNS = 400

Line = tuple[str, State]
"""A step as it is told, which outlives the loss of steps before it (numbers in steps do not), and
where it led: of several ways that one is taken again which differs the least."""


def shorter(model: Model, judge: Judge, path: Path) -> Path:
    """A path that ends in the same kind of violation, with steps left out."""
    lines = [(said(model, before, step), after) for before, step, after in path]
    wanted = kind_of(_judged(model, judge, path))

    def fails(some: Sequence[Line]) -> bool:
        return kind_of(_judged(model, judge, _replayed(model, judge, some))) == wanted

    return _replayed(model, judge, shortened(lines, fails, max_runs=_MAX_RUNS))


def kind_of(violation: str) -> str:
    """The violation without its numbers."""
    return re.sub(r"-?\d+", "#", violation)


def _replayed(model: Model, judge: Judge, lines: Sequence[Line]) -> Path:
    """The steps that can still be made, up to a violation."""
    state, path = model.initial, Path()
    for line, led_to in lines:
        steps = [*model.steps(state), *model.fault_steps(state)]
        step = next((one for one in steps if said(model, state, one) == line), None)
        ways = [] if step is None else model.after(state, step)
        if step is None or not ways:
            continue
        after = min(ways, key=lambda way: sum(a != b for a, b in zip(way, led_to, strict=True)))
        path.append((state, step, after))
        if judge.step(state, after) or judge.state(after):
            break
        state = after
    return path


def _judged(model: Model, judge: Judge, path: Path) -> str:
    """Return what is wrong at the end of a path."""
    if not path:
        return ""
    before, _, after = path[-1]
    wrong = judge.step(before, after) or judge.state(after)
    return wrong or (judge.end(after) if is_end(model.steps(after)) else "")
