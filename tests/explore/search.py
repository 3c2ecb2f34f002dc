"""Every state of a small world, breadth first: what is found first has the shortest story."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.explore.config import World
from tests.explore.judge import Judge
from tests.explore.model import Model, State, Step, is_end
from tests.explore.story import Path, Story, told

_LATE_STATES = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search. ``is_complete``: there are no more states."""

    world: World
    states: int
    steps: int
    ends: int
    depth: int
    cpu_s: float
    is_complete: bool
    violation: str = ""
    story: Story = field(default_factory=list)

    def __str__(self) -> str:
        how = "complete" if self.is_complete else "given up"
        stats = (
            f"{self.states:,} states, {self.steps:,} steps, {self.ends:,} ends, {self.depth} deep"
        )
        return f"{self.world.name:24} {how}: {stats}, {self.cpu_s:.1f} s of CPU"


class Search:
    """One search. A state is known by its key; how it was reached, by the number of the state
    before it and by which of that state's successors it is."""

    def __init__(self, world: World) -> None:
        self.model = Model(world)
        self._judge = Judge(self.model)
        self._known: set[int] = set()
        self._late: set[int] = set()
        self._before = array("q")
        self._which = array("H")
        self.steps = self.ends = self.depth = 0

    def run(self, *, max_states: int = 1 << 62, cpu_s: float = float("inf")) -> Found:
        """Search until all states are known, a violation is found, or the limit is reached."""
        began, model = time.process_time(), self.model
        self._note(model.key(model.initial), 0, 0)
        queue: deque[tuple[int, State]] = deque([(0, model.initial)])
        depths, violation, at, is_complete = deque([0]), "", 0, True
        while queue and not violation:
            number, state = queue.popleft()
            self.depth = depths.popleft()
            steps = model.steps(state)
            at, violation = number, self._end(state, steps)
            for which, (_, after) in enumerate(self._ways(state, steps)):
                self.steps += 1
                violation = violation or self._judge.step(state, after)
                key = self._new_key(after)
                if key is not None:
                    violation = violation or self._judge.state(after)
                if key is not None or violation:
                    at = self._note(key or 0, number, which)
                    queue.append((at, after))
                    depths.append(self.depth + 1)
                if violation:
                    break
            if number % 256 == 0 and time.process_time() - began > cpu_s:
                is_complete = False
            if len(self._known) >= max_states:
                is_complete = False
            if not is_complete:
                break
        return Found(
            model.world,
            len(self._known),
            self.steps,
            self.ends,
            self.depth,
            time.process_time() - began,
            is_complete and not violation,
            violation,
            told(model, self._path(at)) if violation else [],
        )

    def _end(self, state: State, steps: list[Step]) -> str:
        if not is_end(steps):
            return ""
        self.ends += 1
        return self._judge.end(state)

    def _ways(self, state: State, steps: list[Step]) -> Iterator[tuple[Step, State]]:
        model = self.model
        for step in [*steps, *model.fault_steps(state)]:
            for after in model.after(state, step):
                yield step, after

    def _new_key(self, state: State) -> int | None:
        """Its key, None if the state is known. Many steps lead to the very same state: those that
        came lately are told apart without their keys."""
        same = hash(state)
        if same in self._late:
            return None
        if len(self._late) >= _LATE_STATES:
            self._late.clear()
        self._late.add(same)
        key = self.model.key(state)
        return None if key in self._known else key

    def _note(self, key: int, before: int, which: int) -> int:
        self._known.add(key)
        self._before.append(before)
        self._which.append(which)
        return len(self._before) - 1

    def _path(self, number: int) -> Path:
        """The steps to a state, from the beginning."""
        turns = list[int]()
        while number:
            turns.append(self._which[number])
            number = self._before[number]
        state, path = self.model.initial, Path()
        for which in reversed(turns):
            step, after = list(self._ways(state, self.model.steps(state)))[which]
            path.append((state, step, after))
            state = after
        return path
