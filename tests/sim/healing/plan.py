"""The plan of a history of self-healing: that of a history of ledgers, and what heals it
(``healing/stories.py`` has plans that are staged).

Some bookies join only after a while. They are in no ensemble by then, so a worker copies to them,
and their disk may be lost in the middle of it without the loss of anything acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.ledgers.limits import COPY_BYTES_PER_S
from tests.sim.plan.draw import Draw
from tests.sim.plan.plan import TARGETS, Fault, Moment, Plan
from tests.sim.plan.theme import Step, Theme

_BAD_DATA = ("rot entry log", "rot journal", "rot journal, crash", "bad memory")
"""Faults of the bookie that is lost anyway: a second one has to be whole."""

LOSE, LOSE_TARGET, MARK, DELETE = "lose bookie", "lose target", "mark at random", "delete copied"
DELETE_CLOSED = "delete closed"
FLIP = "bits flip"
BRIEF, RETURN, ANEW = "away for a moment", "comes back", "begins anew"
STALLED, UNSYNCED = "slow journal", "power loss before a sync"

HEALING_TARGETS = {
    LOSE: "victim",
    LOSE_TARGET: "all",
    MARK: "all",
    DELETE: "all",
    DELETE_CLOSED: "all",
    FLIP: "bookie",
    BRIEF: "bookie",
    STALLED: "bookie",
    UNSYNCED: "all",
    RETURN: "victim",
    ANEW: "victim",
}
"""Kinds of faults of these histories alone."""

WORKER_FAULTS = (
    "kill client",
    "kill client",
    "pause client",
    "metadata reply lost",
    "metadata reply lost",
    "session expires",
    "metadata refuses",
    "slow metadata",
    "metadata cut",
    "cut",
    "clog",
    "reset",
)
"""Kinds of faults that befall workers."""

SESSION_FAULTS = (
    "metadata reply lost",
    "session expires",
    "session expires",
    "metadata refuses",
    "slow metadata",
    "metadata cut",
)
"""Kinds of faults that befall auditors, beside those of their processes."""

AUDITORS = ("a1", "a2")

GRACE_MS = (2_000, 3_000)
"""The time after which a bookie is lost: longer than a restart takes."""

_LATE = Moment("start", 0, 1_600)
"""When all bookies have joined."""

HEALING_FAULTS = {*TARGETS, *HEALING_TARGETS} - {*_BAD_DATA}
"""Every kind of fault that these histories may draw."""

STAGED_EVERY, STAGED_AT = 10, 3
"""The place, in so many seeds in a row, of the staged one."""

INTERVALS_MS: Mapping[CheckName, int] = {CheckName.BOOKIES: 4_000, CheckName.LEDGERS: 1_000}
"""The intervals of the auditor's checks."""

RECENT_MS = 1_000
"""The interval of the recent check, and the time between two of its looks at a ledger that lacks
copies."""

LATE_S = 20.0
"""The time that an auditor or a checker may take from its last look to what it says: it may be
paused, and its requests may wait."""

LATE_MS = 1_500
"""The time at which further bookies join."""

HEAL_S = 400.0
"""The time until all copies are there, when all faults are over."""

COPYING = "recovery add"
"""The event of a copy that comes to a bookie, also in a recovery."""

THEME = Theme(
    kinds=(
        "kill bookie",
        "kill bookie",
        "restart cleanly",
        "power loss",
        "silent power loss",
        "pause bookie",
        "isolate",
        "cut",
        "reset",
        "read only",
        "slow bookie",
        "slow network",
        "spikes",
        "replace disk",
        "die at an effect",
        "metadata cut",
        "metadata reply lost",
        "kill client",
        "pause client",
    ),
    events=("ack", "ensemble", "closed", COPYING, COPYING, "moved", "marked", "recovering"),
    pauses_ms=(5, 40, 200),
    recoverers=(0, 1, 1, 2),
    slow_bookies=(0, 0, 1),
    slow_links=(0, 0, 2),
    shapes=((3, 3, 2), (3, 3, 2), (4, 3, 2), (3, 2, 2), (4, 4, 3), (2, 2, 2)),
    ledgers=(2, 3, 3),
    deleters=(0, 0, 1),
    garbage_ms=(4_000, 15_000),
    storage_ends=0.1,
    spares=(0, 0, 1),
    readers=(1, 1, 2),
    endings=("close", "close", "close", "leave", "abandon"),
    bursts=(4, 10, 25),
    other_kinds=(0, 1, 2),
    haunted=0.7,
    askers=1,
    scenes=(
        (Step("kill bookie", "a", ("ack",), (3, 10), (0, 5), (300, 2_000)),),
        (Step("isolate", "a", ("ack",), (3, 10), (0, 5), (300, 2_000)),),
    ),
    scenes_played=(0, 1, 2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingPlan:
    """``base``: the ledgers, the bookies that are there from the start, and the usual faults. The
    victim may be lost for good."""

    base: Plan
    late_bookies: int
    workers: int
    loss: str
    """``for good``, ``returns`` (with its disk) or ``returns empty``."""
    open_ledger_grace_ms: int
    lost_bookie_grace_ms: int
    believer: str
    """The auditor that works without having been elected; "" if none does."""
    sample_share: float
    check_delay_ms: int
    decommission: str | None
    """The state of the victim when its decommission begins: ``lost``, or ``alive``; None: there is
    none."""
    decommission_ms: int
    faults: tuple[Fault, ...]
    """All faults."""
    intervals_ms: Mapping[CheckName, int] = field(default_factory=lambda: INTERVALS_MS)
    recent_ms: int = 0
    """The interval of the recent check; 0: there is none."""
    copy_bytes_per_s: int = COPY_BYTES_PER_S
    """The rate at which a worker copies."""
    is_off: bool = False
    """Self-healing is off until the faults are over."""
    are_writers_left: bool = False
    """Workers alone recover ledgers, until the faults are over."""
    check_repeats: int = 2
    checked_at_once: int = 32
    late_ms: int = LATE_MS
    late_s: float = LATE_S
    heal_s: float = HEAL_S

    @property
    def settle_s(self) -> float | None:
        """Return the time between two looks of the recent check, where no other check finds missing
        copies."""
        is_alone = self.recent_ms > 0 and not self.intervals_ms.get(CheckName.LEDGERS, 0)
        return self.recent_ms / 1000 if is_alone else None


def ordinary_plan(seed: int) -> HealingPlan:
    random = Random(f"healing {seed}")
    base = Draw(random, THEME).plan(seed)
    base = replace(
        base,
        is_victim_synced=True,
        length_ms=base.length_ms + 6_000,
        last_deaths=tuple(death for death in base.last_deaths if death.bookie != base.victim),
    )
    workers = random.choice((1, 2, 2))
    lost_ms = random.randint(500, 4_000)
    faults = [fault for fault in base.faults if fault.kind not in _BAD_DATA]
    loss = Fault(Moment("start", 0, lost_ms), LOSE, base.victim, 1, random.random())
    faults += _aimed(random, base)
    faults += _on_workers(random, base, workers)
    plan = HealingPlan(
        base=base,
        late_bookies=random.choice((2, 2, 3)),
        workers=workers,
        loss=random.choice(("for good", "for good", "returns", "returns empty")),
        open_ledger_grace_ms=random.choice((500, 2_000, 5_000)),
        lost_bookie_grace_ms=random.choice(GRACE_MS),
        believer=random.choice(("", "", AUDITORS[1])),
        sample_share=random.choice((-1.0, 0.0, 0.5)),
        check_delay_ms=random.choice((500, 1_500)),
        decommission=random.choice((None, None, "lost", "alive")),
        decommission_ms=lost_ms + random.choice((500, 2_000)),
        faults=(*faults, *_on_auditors(random, base)),
        recent_ms=RECENT_MS * (seed % 2),
    )
    if seed % STAGED_EVERY == STAGED_AT:
        return _unsynced(Random(f"healing staged {seed}"), plan, loss)
    if plan.decommission is None:
        return replace(plan, faults=(*plan.faults, loss))
    if plan.decommission == "lost":
        plan = replace(plan, faults=(*plan.faults, loss))
    return replace(plan, loss="for good", faults=(*plan.faults, *_on_leaving(random, base)))


def _aimed(random: Random, base: Plan) -> list[Fault]:
    """Faults that meet the copying."""
    faults: list[Fault] = []
    if random.random() < 0.6:
        when = random.choice((COPYING, COPYING, "list", "list", "moved"))
        moment = Moment(when, random.choice((1, 1, 2, 3, 6)), random.choice((0, 0, 1, 3)))
        faults.append(Fault(moment, LOSE_TARGET, "all", 1, random.random()))
    for _ in range(random.choice((0, 1, 3))):
        moment = Moment("start", 0, random.randint(1_000, base.length_ms))
        faults.append(Fault(moment, MARK, "all", 1, random.random()))
    if random.random() < 0.2:
        moment = Moment(COPYING, random.choice((1, 3, 10)), random.choice((0, 1)))
        faults.append(Fault(moment, DELETE, "all", 1, random.random()))
    if random.random() < 0.5:
        others = [f"b{n + 1}" for n in range(base.bookies) if f"b{n + 1}" != base.victim]
        moment = Moment("start", 0, random.randint(500, 3_000))
        faults.append(Fault(moment, FLIP, random.choice(others), 6_000, random.random()))
    return faults


def _on_workers(random: Random, base: Plan, workers: int) -> list[Fault]:
    faults: list[Fault] = []
    for _ in range(random.choice((0, 1, 2, 4))):
        kind = random.choice(WORKER_FAULTS)
        target = machine = f"h{random.randint(1, workers)}"
        if kind in ("cut", "clog", "reset"):
            bookie = f"b{random.randint(1, base.bookies)}"
            target = random.choice((f"{machine}>{bookie}", f"{bookie}>{machine}"))
        elif kind == "metadata cut":
            target = random.choice((f"{machine}>zk", f"zk>{machine}"))
        when = random.choice((COPYING, COPYING, "moved", "marked", "list"))
        moment = Moment(when, random.choice((1, 2, 5, 20)), random.choice((0, 0, 1, 5, 300)))
        duration_ms = random.choice((20, 300, 2_000, 7_000))
        faults.append(Fault(moment, kind, target, duration_ms, random.random()))
    return faults


def _on_auditors(random: Random, base: Plan) -> list[Fault]:
    """Faults of auditors; and bookies that are away for less than the grace time, some at once."""
    faults: list[Fault] = []
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        kind = random.choice(("kill client", "pause client", *SESSION_FAULTS))
        target = machine = random.choice(AUDITORS)
        if kind == "metadata cut":
            target = random.choice((f"{machine}>zk", f"zk>{machine}"))
        when = random.choice(("start", "marked", "list", "removing", "draining"))
        delay_ms = random.randint(0, base.length_ms) if when == "start" else random.choice((0, 5))
        moment = Moment(when, 0 if when == "start" else random.choice((1, 2, 5)), delay_ms)
        duration_ms = random.choice((300, 2_000, 7_000))
        faults.append(Fault(moment, kind, target, duration_ms, random.random()))
    if random.random() < 0.4:
        at_ms = random.randint(500, base.length_ms)
        for number in random.sample(range(base.bookies), 2):
            moment = Moment("start", 0, at_ms + random.choice((0, 50, 500)))
            faults.append(Fault(moment, BRIEF, f"b{number + 1}", 300, random.random()))
    return faults


def _unsynced(random: Random, plan: HealingPlan, loss: Fault) -> HealingPlan:
    """A bookie is lost, and the one that can take its place takes seconds to sync what it gets: its
    power fails while it holds copies that are not durable yet. Workers lose their locks meanwhile,
    and others go on where they were."""
    target = f"b{plan.base.bookies + 1}"
    length_ms = plan.base.length_ms
    faults = [Fault(_LATE, STALLED, target, length_ms, random.choice((0.3, 1.0)))]
    for nth in (1, 2, 4, 7, 11, 16):
        moment = Moment(COPYING, nth, random.choice((0, 5)))
        workers = [f"h{number + 1}" for number in range(plan.workers)]
        faults += [Fault(moment, "session expires", worker, 1, 0.5) for worker in workers]
        stalled = random.choice((0.1, 0.2, 0.3))
        faults.append(Fault(moment, UNSYNCED, "all", random.choice((20, 300)), stalled))
    return replace(plan, late_bookies=1, loss="for good", decommission=None, faults=(*faults, loss))


def _on_leaving(random: Random, base: Plan) -> list[Fault]:
    """A bookie that is to go comes back at the last moment, with its disk or with an empty one."""
    faults: list[Fault] = []
    for kind in random.sample((RETURN, ANEW), random.choice((0, 1, 1, 2))):
        moment = Moment("removing", random.choice((1, 1, 2)), random.choice((0, 20, 100, 300)))
        faults.append(Fault(moment, kind, base.victim, 1, random.random()))
    if random.random() < 0.5:
        slow = Moment("removing", 1, 0)
        faults += [
            Fault(slow, "slow metadata", auditor, 3_000, random.choice((0.02, 0.05)))
            for auditor in AUDITORS
        ]
    return faults
