"""Plans of self-healing that are staged: each aims at a meeting that random seeds come to so seldom
that no few hundred of them can be relied on for it. Of five seeds in a row two have one, in
rotation."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.ledgers.limits import COPY_BYTES_PER_S
from tests.sim.healing.plan import (
    AUDITORS,
    BRIEF,
    COPYING,
    DELETE_CLOSED,
    LATE_MS,
    LOSE,
    RECENT_MS,
    THEME,
    HealingPlan,
    ordinary_plan,
)
from tests.sim.plan.draw import Draw
from tests.sim.plan.plan import Fault, Moment, Plan
from tests.sim.plan.theme import Step, Theme, clog

EVERY = 5
"""The number of seeds in a row of which those at ``PLACES`` have a story."""

PLACES = (2, 4)

_WRITERS = ("w1", "w2", "w3")

_CALM = ("kill bookie", "restart cleanly", "slow bookie", "clog", "reset", "kill client")
"""Kinds of faults that lose no data."""

_LEFT = replace(
    THEME,
    kinds=("kill bookie", "reset", "restart cleanly", "kill client"),
    events=("ack", "ensemble", "closed"),
    shapes=((3, 3, 2), (3, 3, 2), (4, 3, 2), (4, 4, 3)),
    ledgers=(2, 3),
    spares=(1, 2),
    recoverers=(0,),
    deleters=(0,),
    bursts=(10, 25),
    pauses_ms=(20, 40, 200),
    garbage_ms=(15_000,),
    storage_ends=0.0,
    haunted=0.3,
    other_kinds=(0, 0, 1),
    scenes=tuple(
        (
            *(clog(f"{writer}>m3", (3_000,), "bookie ack", nth) for writer in _WRITERS),
            Step("kill bookie", "m3", ("ack",), (6, 12), (0, 5), (300, 2_000, 6_000)),
            Step("kill bookie", "m2", ("ack",), (20, 40), (0, 5), (300, 2_000)),
        )
        for nth in (6, 15)
    ),
    scenes_played=(1,),
)
"""A bookie gets its adds late, and dies before: what it lacks is left behind when its writers
replace it, or close."""

_STILL = replace(_LEFT, scenes=(), other_kinds=(0,), slow_bookies=(0,), slow_links=(0,))


def draw_healing_plan(seed: int) -> HealingPlan:
    """Draw everything that the seed decides in advance."""
    place = seed % EVERY
    if place not in PLACES:
        return ordinary_plan(seed)
    number = seed // EVERY * len(PLACES) + PLACES.index(place)
    return STORIES[number % len(STORIES)](Random(f"story {seed}"), seed)


def _left_behind(random: Random, seed: int) -> HealingPlan:
    """Writers leave copies behind; nothing but the recent check finds them, and auditors succeed
    one another."""
    theme = replace(
        _LEFT, recoverers=(0, 1), recover_when=("ensemble",), endings=("close", "leave", "abandon")
    )
    base = _base(random, theme, seed, 2_000)
    plan = _plan(random, base, loss="returns")
    faults = [_death_of_recoverer(random)]
    for _ in range(random.choice((0, 1, 1, 2))):
        kind = random.choice(("kill client", "session expires", "session expires"))
        moment = Moment("start", 0, random.randint(500, base.length_ms))
        faults.append(Fault(moment, kind, random.choice(AUDITORS), 300, random.random()))
    if random.random() < 0.5:
        slow = f"b{random.randint(1, base.bookies)}"
        for auditor in AUDITORS:
            moment = Moment("start", 0, 10)
            faults.append(Fault(moment, "clog", f"{slow}>{auditor}", base.length_ms, 0.25))
    return replace(
        plan,
        faults=(*base.faults, *faults),
        believer=random.choice(("", "", AUDITORS[1])),
        lost_bookie_grace_ms=120_000,
        intervals_ms={},
        recent_ms=RECENT_MS,
        heal_s=120.0,
    )


def _slowly(random: Random, seed: int) -> HealingPlan:
    """Copies are made so slowly that workers, auditors, writers and garbage collection meet during
    it; workers alone end writers, and some bookies join late."""
    has_spares = random.random() < 0.7
    theme = replace(
        _LEFT,
        shapes=_LEFT.shapes if has_spares else ((3, 3, 2),),
        spares=(1, 2) if has_spares else (0,),
        endings=("close", "close", "leave", "leave", "abandon") if has_spares else ("leave",),
        pauses_ms=(40, 200, 400),
        entry_bytes=(200,),
        garbage_ms=(2_000, 4_000),
    )
    base = _base(random, theme, seed, 8_000)
    decommission = random.choice((None, "alive", "alive", "lost")) if has_spares else None
    plan = _plan(random, base, loss="for good")
    lost_ms = random.randint(500, 3_000)
    faults = list(base.faults)
    if decommission != "alive":
        faults.append(Fault(Moment("start", 0, lost_ms), LOSE, base.victim, 1, 0.5))
    for _ in range(random.choice((0, 1, 2))):
        kind = random.choice(("session expires", "session expires", "kill client", "pause client"))
        moment = Moment(COPYING, random.choice((1, 3, 6)), random.choice((0, 5, 300)))
        target = random.choice(("h1", "h2"))
        faults.append(Fault(moment, kind, target, random.choice((300, 7_000)), 0.5))
    return replace(
        plan,
        faults=tuple(faults),
        workers=2,
        open_ledger_grace_ms=random.choice((2_000, 4_000)) if has_spares else 2_000,
        lost_bookie_grace_ms=random.choice((2_000, 3_000)),
        intervals_ms={CheckName.BOOKIES: 4_000},
        recent_ms=RECENT_MS,
        copy_bytes_per_s=random.choice((300, 600)),
        check_delay_ms=1_500,
        decommission=decommission,
        decommission_ms=lost_ms + random.choice((500, 2_000)),
        are_writers_left=True,
        late_ms=LATE_MS if has_spares else 12_000,
    )


def _checked_alone(random: Random, seed: int) -> HealingPlan:
    """Self-healing is off. A checker, to which some bookies are slow to answer, reports what is
    missing, while ledgers are deleted and a bookie looks for what it has lost."""
    base = _base(random, replace(_LEFT, ledgers=(3,), endings=("close",)), seed, 4_000)
    plan = _plan(random, base, loss="returns")
    faults = list(base.faults)
    for bookie in random.sample(range(1, base.bookies + 1), 2):
        moment = Moment("start", 0, 10)
        faults.append(Fault(moment, "clog", f"b{bookie}>k1", base.length_ms, 1.0))
    for _ in range(2):
        moment = Moment("start", 0, random.randint(3_000, base.length_ms))
        faults.append(Fault(moment, DELETE_CLOSED, "all", 1, random.random()))
    if random.random() < 0.7:
        moment = Moment("closed", random.choice((1, 2)), random.choice((100, 1_000)))
        faults.append(Fault(moment, "replace disk", base.victim, 1_500, 0.5))
        for number in range(base.bookies):
            link = f"b{number + 1}>{base.victim}"
            faults.append(Fault(moment, "clog", link, base.length_ms, 1.0))
    return replace(
        plan,
        faults=tuple(faults),
        is_off=True,
        check_repeats=0,
        late_s=1.0,
    )


def _away_unseen(random: Random, seed: int) -> HealingPlan:
    """A bookie comes back while auditors cannot see it: one of them has lost its session, or all
    wait after an error."""
    base = _base(random, _STILL, seed, 9_000)
    plan = _plan(random, base, loss="returns")
    grace_ms = 3_000
    at_ms = random.randint(800, 1_500)
    bookies = [f"b{number + 1}" for number in random.sample(range(base.bookies), 2)]
    faults = []
    if random.random() < 0.4:
        believer = AUDITORS[1]
        for link in (f"{believer}>zk", f"zk>{believer}"):
            moment = Moment("start", 0, at_ms + 200)
            faults.append(Fault(moment, "metadata cut", link, 6_100, 0.5))
        for begins_ms, away_ms in ((0, random.randint(800, 1_500)), (5_500, 2_900)):
            moment = Moment("start", 0, at_ms + begins_ms)
            faults.append(Fault(moment, BRIEF, bookies[0], away_ms, 0.5))
    else:
        believer = random.choice(("", AUDITORS[1]))
        away_ms = random.choice((grace_ms + 300, random.randint(6_400, 7_600)))
        faults.append(Fault(Moment("start", 0, at_ms), BRIEF, bookies[1], away_ms, 0.5))
        for auditor in AUDITORS:
            moment = Moment("start", 0, at_ms + grace_ms - 300)
            faults.append(Fault(moment, "metadata refuses", auditor, 700, 0.5))
    return replace(
        plan,
        faults=tuple(faults),
        believer=believer,
        lost_bookie_grace_ms=grace_ms,
        intervals_ms={CheckName.BOOKIES: 500},
        recent_ms=RECENT_MS,  # for what a writer left behind
        late_s=0.3,
    )


def _recovery_dies(random: Random, seed: int) -> HealingPlan:
    """A recoverer dies, and leaves a ledger of which workers can compare nothing until they close
    it."""
    theme = replace(
        _LEFT, recoverers=(1,), recover_when=("ensemble",), endings=("leave", "abandon")
    )
    base = _base(random, theme, seed, 5_000)
    plan = _plan(random, base, loss=random.choice(("returns", "for good")))
    faults = [*base.faults, _death_of_recoverer(random)]
    if plan.loss == "for good":
        moment = Moment("start", 0, random.randint(500, 2_000))
        faults.append(Fault(moment, LOSE, base.victim, 1, 0.5))
    return replace(
        plan,
        faults=tuple(faults),
        open_ledger_grace_ms=5_000,
        copy_bytes_per_s=random.choice((COPY_BYTES_PER_S, 1_000)),
    )


Story = Callable[[Random, int], HealingPlan]

STORIES: tuple[Story, ...] = (
    _left_behind,
    _slowly,
    _checked_alone,
    _left_behind,
    _slowly,
    _away_unseen,
    _recovery_dies,
)


def _base(random: Random, theme: Theme, seed: int, further_ms: int) -> Plan:
    """Return the ledgers, the bookies, and those of the usual faults that lose no data."""
    base = Draw(random, theme).plan(seed)
    return replace(
        base,
        is_victim_synced=True,
        length_ms=min(base.length_ms, 5_000) + further_ms,
        last_deaths=(),
        faults=_of_kinds(base.faults, _CALM),
    )


def _of_kinds(faults: Collection[Fault], kinds: Collection[str]) -> tuple[Fault, ...]:
    return tuple(fault for fault in faults if fault.kind in kinds)


def _plan(random: Random, base: Plan, *, loss: str) -> HealingPlan:
    return HealingPlan(
        base=base,
        late_bookies=2,
        workers=random.choice((1, 2, 2)),
        loss=loss,
        open_ledger_grace_ms=random.choice((500, 2_000)),
        lost_bookie_grace_ms=3_000,
        believer="",
        sample_share=-1.0,
        check_delay_ms=500,
        decommission=None,
        decommission_ms=0,
        faults=(),
    )


def _death_of_recoverer(random: Random) -> Fault:
    """The recoverer dies when it has begun."""
    moment = Moment("recovering", 1, random.choice((0, 1, 3)))
    return Fault(moment, "kill client", "r1", 1, 0.5)
