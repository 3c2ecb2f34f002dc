"""Drawing a plan from a seed.

Swarm testing: each seed draws which kinds of faults it has at all, so that rare ones are not
drowned by common ones, and a theme that says which go together: what breaks an ensemble change is
not what breaks a replay. A fifth of the seeds has no theme.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from plan import EVENTS, TARGETS, Burst, Death, Fault, LedgerPlan, Moment, Plan, Visit

from fencelog.ledgers.client import Replication

SHAPES = ((3, 3, 2), (3, 3, 2), (4, 3, 2), (5, 3, 2), (3, 2, 2), (2, 2, 2), (4, 4, 3), (3, 3, 3))
"""(E, Qw, Qa). The first is the default of the service."""


RECOVER_WHEN = ("ack", "bookie ack", "bookie ack", "ensemble", "recovering")
"""Mostly in the middle of writing, or of another recovery."""


DELETE_WHEN = ("created", "ack", "closed", "closed", "recovering")
"""Also ledgers that are still written, or just recovered."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Kinds of faults that meet each other, when they happen, and how busy the clients are."""

    kinds: tuple[str, ...]
    events: tuple[str, ...]
    pauses_ms: tuple[int, ...]
    recoverers: tuple[int, ...]
    slow_bookies: tuple[int, ...]
    slow_links: tuple[int, ...]
    shapes: tuple[tuple[int, int, int], ...] = SHAPES
    read_when: tuple[str, ...] = ("ack", "closed", "ensemble", "recovering")
    ledgers: tuple[int, ...] = (1, 1, 2, 3)
    deleters: tuple[int, ...] = (0, 0, 0, 0, 0, 1)
    garbage_ms: tuple[int, ...] = (4_000, 15_000)
    storage_ends: float = 0.2
    """The share of histories that end with the end of all ledgers."""


ANYTHING = Theme(
    kinds=tuple(TARGETS),
    events=EVENTS,
    pauses_ms=(2, 20, 150),
    recoverers=(0, 1, 1, 2, 3),
    slow_bookies=(0, 0, 1),
    slow_links=(0, 0, 0, 2, 4, 8),
)

CHANGES = Theme(
    kinds=(
        "kill bookie",
        "kill bookie",
        "isolate",
        "cut",
        "reset",
        "read only",
        "power loss",
        "restart cleanly",
        "metadata reply lost",
        "metadata cut",
        "slow bookie",
        "slow metadata",
        "slow metadata",
        "pause bookie",
    ),
    events=("ack", "bookie ack", "created", "ensemble"),
    pauses_ms=(1, 3, 20),
    recoverers=(0, 0, 1),
    slow_bookies=(1, 2, 2, 3),
    slow_links=(0, 2, 4),
    shapes=((3, 3, 2), (4, 3, 2), (5, 3, 2), (5, 3, 2), (6, 3, 2), (3, 2, 2)),
)

RECOVERIES = Theme(
    kinds=(
        "cut",
        "reset",
        "reset",
        "deaf",
        "mute",
        "isolate",
        "kill bookie",
        "kill client",
        "pause client",
        "metadata cut",
        "metadata reply lost",
        "slow bookie",
        "power loss",
        "read error",
        "replace disk",
        "replace disk, others down",
    ),
    events=("recovering", "recovering", "fence", "fence", "recovery add", "ensemble", "closed"),
    pauses_ms=(1, 3, 20),
    recoverers=(1, 2, 2, 3),
    slow_bookies=(0, 1, 2),
    slow_links=(0, 4, 8),
)

RACES = Theme(
    kinds=("reset", "reset", "cut", "kill bookie", "restart cleanly", "isolate", "power loss"),
    events=("recovering", "recovering", "fence", "recovery add"),
    pauses_ms=(0, 1, 3),
    recoverers=(1, 2),
    slow_bookies=(0, 1),
    slow_links=(8, 16, 24),
    shapes=((3, 3, 2), (3, 3, 2), (4, 3, 2), (3, 2, 2), (5, 3, 2)),
)
"""A recovery in the middle of writing, over ways of very different lengths."""

DISKS = Theme(
    kinds=(
        "die at an effect",
        "die at an effect",
        "die at an effect, crash",
        "rot journal, crash",
        "crash twice",
        "sync error, power loss",
        "sync error, crash",
        "power loss",
        "power loss everywhere",
        "replace disk, crash",
        "replace disk, crash",
        "replace disk, others down",
        "disk full",
        "slow disk",
        "write error",
        "read error",
        "sync error",
        "rot entry log",
        "rot journal",
        "bad memory",
    ),
    events=("bookie ack", "bookie ack", "fence", "recovery add", "ack"),
    pauses_ms=(2, 20, 150),
    recoverers=(0, 1, 2),
    slow_bookies=(0, 0, 1),
    slow_links=(0,),
)

GARBAGE = Theme(
    kinds=(
        "die at an effect",
        "die at an effect, crash",
        "crash twice",
        "power loss",
        "restart cleanly",
        "restart cleanly",
        "disk fills",
        "disk full",
        "rot entry log",
        "replace disk",
        "mute",
        "cut",
        "pause client",
        "pause client",
        "pause bookie",
        "session expires",
        "metadata cut",
        "metadata emptied",
        "metadata emptied",
        "listing breaks off",
        "listing breaks off",
        "sync error, power loss",
    ),
    events=("deleted", "deleted", "removed", "compaction", "compaction", "created", "closed"),
    pauses_ms=(2, 20, 150),
    recoverers=(0, 1),
    slow_bookies=(0, 0, 1),
    slow_links=(0, 0, 2),
    ledgers=(2, 3, 3, 4),
    deleters=(1, 1, 2, 3),
    garbage_ms=(700, 2_500),
    storage_ends=1.0,
)
"""Ledgers come and go, and bookies are in the middle of getting rid of them."""

THEMES = (ANYTHING, CHANGES, RECOVERIES, RACES, DISKS, GARBAGE)


def draw_plan(seed: int) -> Plan:
    """Everything that the seed decides in advance."""
    return _Draw(Random(f"plan {seed}")).plan(seed)


class _Draw:
    """One plan in the making. The order of the calls is part of what a seed means."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._theme = random.choice(THEMES)
        self._length_ms = random.choice((2_500, 5_000, 9_000))

    def plan(self, seed: int) -> Plan:
        random, theme = self._random, self._theme
        ledgers = tuple(self._ledger() for _ in range(random.choice(theme.ledgers)))
        largest = max(plan.replication.ensemble_size for plan in ledgers)
        bookies = [f"b{n + 1}" for n in range(largest + random.choice((0, 1, 1, 2)))]
        victim = random.choice(bookies)
        recoverers = self._visits("r", random.choice(theme.recoverers), len(ledgers), RECOVER_WHEN)
        clients = [f"w{n + 1}" for n in range(len(ledgers))]
        clients += [visit.machine for visit in recoverers]
        return Plan(
            seed=seed,
            bookies=len(bookies),
            write_cache_bytes=random.choice((4, 16, 1024)) * 1024,
            flush_ms=random.choice((100, 1_000, 5_000)),
            file_bytes=random.choice((16, 256)) * 1024,
            ledgers=ledgers,
            recoverers=recoverers,
            readers=self._visits("t", random.choice((0, 1, 1, 2)), len(ledgers), theme.read_when),
            deleters=self._visits("d", random.choice(theme.deleters), len(ledgers), DELETE_WHEN),
            is_haunted=random.random() < 0.6,
            victim=victim,
            is_victim_synced=random.random() < 0.8,
            faults=(
                *self._slowness(bookies, clients, victim),
                *self._faults(bookies, clients, victim),
            ),
            length_ms=self._length_ms,
            garbage_ms=random.choice(theme.garbage_ms),
            scrub_ms=random.choice((4_000, 20_000)),
            last_deaths=self._last_deaths(bookies),
            repairs_itself=random.random() < 0.7,
            ends_storage=random.random() < theme.storage_ends,
        )

    def _ledger(self) -> LedgerPlan:
        random = self._random
        pause_ms = random.choice(self._theme.pauses_ms)
        largest = random.choice((20, 200, 2000))
        bursts = tuple(
            Burst(
                random.randint(0, pause_ms),
                tuple(random.randint(0, largest) for _ in range(random.choice((1, 1, 2, 5)))),
            )
            for _ in range(random.choice((1, 4, 10, 25)))
        )
        return LedgerPlan(
            Replication(*random.choice(self._theme.shapes)),
            starts_ms=random.randint(0, self._length_ms // 4),
            bursts=bursts,
            ending=random.choice(("close", "close", "leave", "leave", "abandon")),
        )

    def _last_deaths(self, bookies: list[str]) -> tuple[Death, ...]:
        random = self._random
        return tuple(
            Death(bookie, random.randint(1, 12), random.random() < 0.8, random.random() < 0.7)
            for bookie in random.sample(bookies, random.choice((0, 1, 2, 2)))
        )

    def _visits(
        self, name: str, count: int, ledgers: int, events: tuple[str, ...] = ()
    ) -> tuple[Visit, ...]:
        return tuple(
            Visit(f"{name}{n + 1}", self._random.randrange(ledgers), self._moment(events))
            for n in range(count)
        )

    def _moment(self, events: tuple[str, ...] = ()) -> Moment:
        """Some at any time, the others just when something of interest happens."""
        random = self._random
        if random.random() < 0.3:
            return Moment("start", 0, random.randint(0, self._length_ms))
        nth = random.choice((1, 1, 2, 3, random.randint(1, 30)))
        delay_ms = random.choice((0, 0, 1, 1, 2, 5, 20, 300))
        return Moment(random.choice(events or self._theme.events), nth, delay_ms)

    def _slowness(self, bookies: list[str], clients: list[str], victim: str) -> list[Fault]:
        """Unequal ways, from the start: some bookies are always ahead of the others."""
        random, theme = self._random, self._theme
        kinds = ["slow bookie"] * random.choice(theme.slow_bookies)
        kinds += ["clog"] * random.choice(theme.slow_links)
        return [
            Fault(
                Moment("start", 0, random.randint(0, 300)),
                kind,
                self._target(kind, bookies, clients, victim),
                self._length_ms,
                random.choice((0.001, 0.003, 0.01, 0.03, 0.1)),
            )
            for kind in kinds
        ]

    def _faults(self, bookies: list[str], clients: list[str], victim: str) -> list[Fault]:
        """A few kinds, several faults of them."""
        random = self._random
        kinds = [random.choice(self._theme.kinds) for _ in range(random.choice((0, 1, 2, 3, 4, 6)))]
        return [
            Fault(
                Moment("closed", 1, 300) if "others down" in kind else self._moment(),
                kind,
                self._target(kind, bookies, clients, victim),
                random.choice((1, 20, 300, 2_000, 7_000)),
                random.random(),
            )
            for kind in random.choices(kinds, k=random.choice((2, 4, 4, 8)) if kinds else 0)
        ]

    def _target(self, kind: str, bookies: list[str], clients: list[str], victim: str) -> str:
        random = self._random
        match TARGETS[kind]:
            case "bookie":
                return random.choice(bookies)
            case "client":
                return random.choice(clients)
            case "anyone":
                return random.choice([*bookies, *clients])
            case "victim":
                return victim
            case "link":
                source, destination = random.choice(clients), random.choice(bookies)
                return random.choice((f"{source}>{destination}", f"{destination}>{source}"))
            case "metadata link":
                machine = random.choice([*bookies, *clients])
                return random.choice((f"{machine}>zk", f"zk>{machine}"))
        return "all"
