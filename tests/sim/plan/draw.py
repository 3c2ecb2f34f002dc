"""Drawing a plan from a seed.

Swarm testing: each seed draws which kinds of faults it has at all, so that rare ones are not
drowned by common ones, and a theme that says which go together (``plan/theme.py``). Some themes
also have scenes: faults that are aimed at the same machines. In half of the seeds one more kind has
its turn, so that none waits for long.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.ledgers.client import Replication
from tests.sim.plan.plan import TARGETS, Burst, Death, Fault, LedgerPlan, Moment, Plan, Visit
from tests.sim.plan.theme import DELETE_WHEN, Scene, Theme
from tests.sim.plan.themes import THEMES
from tests.sim.plan.themes_staged import STAGED

STAGED_EVERY = 20
"""The number of seeds in a row of which those at the places of ``STAGED`` have its themes."""


def draw_plan(seed: int) -> Plan:
    """Draw everything that the seed decides in advance."""
    random = Random(f"plan {seed}")
    theme = random.choice(THEMES)
    staged = STAGED.get(seed % STAGED_EVERY)
    if staged is not None:
        theme = staged[seed // STAGED_EVERY % len(staged)] or theme
    return Draw(random, theme).plan(seed)


class Draw:
    """One plan in the making. The order of the calls is part of what a seed means."""

    def __init__(self, random: Random, theme: Theme) -> None:
        self._random = random
        self._theme = theme
        self._length_ms = random.choice((2_500, 5_000, 9_000))

    def plan(self, seed: int) -> Plan:
        random, theme = self._random, self._theme
        self._turn = tuple(TARGETS)[seed % len(TARGETS)]
        ledgers = tuple(self._ledger() for _ in range(random.choice(theme.ledgers)))
        largest = max(plan.replication.ensemble_size for plan in ledgers)
        bookies = [f"b{n + 1}" for n in range(largest + random.choice(theme.spares))]
        victim = random.choice(bookies)
        recoverers = self._visits(
            "r", random.choice(theme.recoverers), len(ledgers), theme.recover_when
        )
        if theme.recover_at is not None:
            recoverers = tuple(
                replace(visit, ledger=0, moment=theme.recover_at) for visit in recoverers
            )
        clients = [f"w{n + 1}" for n in range(len(ledgers))]
        clients += [visit.machine for visit in recoverers]
        return Plan(
            seed=seed,
            bookies=len(bookies),
            write_cache_bytes=random.choice(theme.write_cache_kb) * 1024,
            flush_ms=random.choice(theme.flush_ms),
            file_bytes=random.choice((16, 256)) * 1024,
            ledgers=ledgers,
            recoverers=recoverers,
            readers=self._visits("t", random.choice(theme.readers), len(ledgers), theme.read_when),
            deleters=self._visits("d", random.choice(theme.deleters), len(ledgers), DELETE_WHEN),
            is_haunted=random.random() < theme.haunted,
            askers=theme.askers,
            victim=victim,
            is_victim_synced=random.random() < 0.8,
            faults=(
                *self._slowness(bookies, clients, victim),
                *self._scenes(bookies, clients, victim),
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
        largest = random.choice(self._theme.entry_bytes)
        bursts = tuple(
            Burst(
                random.randint(0, pause_ms),
                tuple(random.randint(0, largest) for _ in range(random.choice((1, 1, 2, 5)))),
            )
            for _ in range(random.choice(self._theme.bursts))
        )
        return LedgerPlan(
            Replication(*random.choice(self._theme.shapes)),
            starts_ms=random.randint(0, self._length_ms // 4),
            bursts=bursts,
            ending=random.choice(self._theme.endings),
        )

    def _last_deaths(self, bookies: list[str]) -> tuple[Death, ...]:
        random = self._random
        if effects := self._theme.last_effects:
            return tuple(Death(bookie, random.choice(effects), True, True) for bookie in bookies)
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
        if random.random() < self._theme.strays:
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

    def _scenes(self, bookies: list[str], clients: list[str], victim: str) -> list[Fault]:
        random, theme = self._random, self._theme
        count = random.choice(theme.scenes_played) if theme.scenes else 0
        chosen = [random.choice(theme.scenes) for _ in range(count)]
        return [fault for scene in chosen for fault in self._scene(scene, bookies, clients, victim)]

    def _scene(
        self, scene: Scene, bookies: list[str], clients: list[str], victim: str
    ) -> list[Fault]:
        """Its faults, aimed at the same machines."""
        random = self._random
        others = [bookie for bookie in bookies if bookie != victim]
        one, other = random.sample(others if len(others) > 1 else bookies, 2)
        writers = [client for client in clients if client.startswith("w")]
        recoverers = [client for client in clients if client.startswith("r")]
        names = {
            "a": one,
            "b": other,
            "v": victim,
            "w": random.choice(writers),
            "r": random.choice(recoverers or writers),
        }
        return [
            Fault(
                Moment(random.choice(step.when), random.choice(step.nths), delay_ms),
                step.kind,
                ">".join(names.get(part, part) for part in step.target.split(">")),
                random.choice(step.durations_ms),
                random.choice(step.sizes) if step.sizes else random.random(),
            )
            for step in scene
            for delay_ms in [random.choice(step.delays_ms)]
        ]

    def _faults(self, bookies: list[str], clients: list[str], victim: str) -> list[Fault]:
        """A few kinds, several faults of them."""
        random, theme = self._random, self._theme
        kinds = [random.choice(theme.kinds) for _ in range(random.choice(theme.other_kinds))]
        return [
            Fault(
                Moment("closed", 1, 300) if "others down" in kind else self._moment(),
                kind,
                self._target(kind, bookies, clients, victim),
                random.choice((1, 20, 300, 2_000, 7_000)),
                random.random(),
            )
            for kind in (
                *random.choices(kinds, k=random.choice((2, 4, 4, 8)) if kinds else 0),
                *([self._turn] if random.random() < 0.5 else []),
            )
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
