"""The outcome of a history, of either kind."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.sim.engine.engine import Engine
from tests.sim.engine.loop import SimEnded, SimStuck, SimTimeout
from tests.sim.oracle.history import History
from tests.sim.plan.plan import Fault


@dataclass(slots=True)
class Result:
    """The outcome of one seed."""

    seed: int
    violations: list[str]
    faults: tuple[Fault, ...]
    """The faults of the plan."""
    fired: tuple[Fault, ...]
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    """The CPU time of the history, which differs from run to run."""
    trace: list[str] = field(default_factory=list)


class Play(Protocol):
    """The course of one history."""

    history: History
    fired: list[Fault]

    def run(self, faults: tuple[Fault, ...]) -> Coroutine[Any, Any, None]: ...


def outcome_of(
    engine: Engine,
    play: Play,
    faults: tuple[Fault, ...],
    *,
    budget_s: float,
    until_wrong: bool = False,
) -> Result:
    """Play it to its end, which has to come within so many virtual seconds. ``until_wrong``: the
    first violation is the end."""
    if until_wrong:
        play.history.on_violation = engine.loop.on_failure = engine.end
    log = logging.getLogger("fencelog")
    level = log.level
    begun_s = time.process_time()
    log.setLevel(logging.CRITICAL)  # what it would log, the trace has
    try:
        with suppress(SimEnded):
            engine.run(play.run(faults), budget_s=budget_s)
    except (SimTimeout, SimStuck) as error:
        play.history.violate(22, f"no end: {type(error).__name__}: {error}")
    finally:
        log.setLevel(level)
    for process in engine.processes:
        for failure in process.failures:
            play.history.violate(22, f"{process.machine}: {failure}")
    return Result(
        seed=engine.seed,
        violations=play.history.violations,
        faults=faults,
        fired=tuple(play.fired),
        counts=play.history.counts,
        digest=engine.trace.digest,
        virtual_s=engine.now_us / 1e6,
        cpu_s=time.process_time() - begun_s,
        trace=list(engine.trace.notes),
    )
