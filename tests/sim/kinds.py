"""The kinds of histories that there are: of ledgers, self-healing, topics, and restores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.sim.healing.plan import HEALING_FAULTS
from tests.sim.healing.runner import run_healing_seed
from tests.sim.healing.stories import draw_healing_plan
from tests.sim.ledgers.runner import run_seed
from tests.sim.metadata.restores.plan import RESTORE_TARGETS, draw_restore_plan
from tests.sim.metadata.restores.runner import run_restore_seed
from tests.sim.mutants import catalogue as mutants
from tests.sim.mutants.mutation import Mutant
from tests.sim.outcome import Result
from tests.sim.plan.draw import draw_plan
from tests.sim.plan.plan import STAGED_TARGETS, TARGETS, Fault
from tests.sim.plan.topic_bookies import DISK_TARGETS
from tests.sim.plan.topic_forwards import CUT_ANSWERS, HTTP_TARGETS
from tests.sim.plan.topic_plan import TOPIC_TARGETS
from tests.sim.topics.runner import plan_of, run_topic_seed


class Drawn(Protocol):
    """What a seed decides in advance."""

    @property
    def faults(self) -> tuple[Fault, ...]: ...


class RunSeed(Protocol):
    """Plays one history; ``faults``: these instead of the plan's own; ``until_wrong``: its first
    violation is its end."""

    def __call__(
        self,
        seed: int,
        faults: Sequence[Fault] | None = None,
        *,
        verbose: bool = False,
        until_wrong: bool = False,
    ) -> Result: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """Seeds of different kinds have nothing to do with each other."""

    name: str
    run_seed: RunSeed
    plan_of: Callable[[int], Drawn]
    faults: Collection[str]
    """Every kind of fault that may happen."""
    mutants: tuple[Mutant, ...]


TOPIC_FAULTS = {**TOPIC_TARGETS, **DISK_TARGETS, **HTTP_TARGETS, CUT_ANSWERS: "broker"}

LEDGER_FAULTS = {**TARGETS, **STAGED_TARGETS}

LEDGERS = Kind("ledgers", run_seed, draw_plan, LEDGER_FAULTS, mutants.LEDGER_MUTANTS)
HEALING = Kind(
    "healing", run_healing_seed, draw_healing_plan, HEALING_FAULTS, mutants.HEALING_MUTANTS
)
TOPICS = Kind("topics", run_topic_seed, plan_of, TOPIC_FAULTS, mutants.TOPIC_MUTANTS)
RESTORES = Kind(
    "restores", run_restore_seed, draw_restore_plan, RESTORE_TARGETS, mutants.RESTORE_MUTANTS
)

KINDS = {kind.name: kind for kind in (LEDGERS, HEALING, TOPICS, RESTORES)}
