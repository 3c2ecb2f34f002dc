"""What one seed does: sizes, work and faults, all drawn before the history begins.

Swarm testing: each seed draws which kinds of faults it has at all, so that rare ones are not
drowned by common ones. The list of faults is data: a failing history is repeated without some of
them to find those that matter (``shrink.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded by the plan's own seed

from fencelog.ledgers.client import Replication

EVENTS = (
    "ack",
    "bookie ack",
    "created",
    "recovering",
    "ensemble",
    "fence",
    "recovery add",
    "closed",
)
"""What a moment can be tied to; ``runner.py`` counts them."""

SHAPES = ((3, 3, 2), (3, 3, 2), (4, 3, 2), (5, 3, 2), (3, 2, 2), (2, 2, 2), (4, 4, 3), (3, 3, 3))
"""(E, Qw, Qa). The first is the default of the service."""


@dataclass(frozen=True, slots=True)
class Moment:
    """``delay_ms`` after the ``nth`` event of a kind, or after the start (``when`` "start")."""

    when: str
    nth: int
    delay_ms: int

    def __str__(self) -> str:
        after = "the start" if self.when == "start" else f"{self.when} {self.nth}"
        return f"{self.delay_ms} ms after {after}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. ``target`` names machines; ``size`` says how bad it is."""

    moment: Moment
    kind: str
    target: str
    duration_ms: int
    size: float

    def __str__(self) -> str:
        return f"{self.kind} {self.target}, {self.moment}, {self.duration_ms} ms, {self.size:.2f}"


@dataclass(frozen=True, slots=True)
class Burst:
    """Entries appended in one turn after a pause."""

    pause_ms: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LedgerPlan:
    replication: Replication
    starts_ms: int
    bursts: tuple[Burst, ...]
    ending: str
    """``close``, ``leave`` (stays open, idle) or ``abandon``."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A recoverer, reader or deleter of the ledger with this index, on a machine of its own."""

    machine: str
    ledger: int
    moment: Moment


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    bookies: int
    write_cache_bytes: int
    flush_ms: int
    file_bytes: int
    """Of journals and entry logs: small ones, so that short histories go through many."""
    ledgers: tuple[LedgerPlan, ...]
    recoverers: tuple[Visit, ...]
    readers: tuple[Visit, ...]
    deleters: tuple[Visit, ...]
    is_haunted: bool
    victim: str
    """The one bookie that may lose data for good, empty where no ledger could bear it."""
    faults: tuple[Fault, ...]
    length_ms: int


def draw_plan(seed: int) -> Plan:
    """Everything that the seed decides in advance."""
    random = Random(f"plan {seed}")
    length_ms = random.choice((3_000, 6_000, 12_000))
    ledgers = tuple(_ledger(random, length_ms) for _ in range(random.choice((1, 1, 2, 3))))
    largest = max(plan.replication.ensemble_size for plan in ledgers)
    bookies = largest + random.choice((0, 1, 1, 2))
    names = [f"b{number}" for number in range(1, bookies + 1)]
    victim = random.choice(names)
    recoverers = tuple(
        Visit(f"r{number}", random.randrange(len(ledgers)), _moment(random, length_ms))
        for number in range(1, 1 + random.choice((0, 1, 1, 2, 3)))
    )
    readers = tuple(
        Visit(f"t{number}", random.randrange(len(ledgers)), _moment(random, length_ms // 2))
        for number in range(1, 1 + random.choice((0, 1, 1, 2)))
    )
    deleters = tuple(
        Visit("d1", random.randrange(len(ledgers)), _moment(random, length_ms))
        for _ in range(random.random() < 0.08)
    )
    clients = [f"w{i + 1}" for i in range(len(ledgers))] + [visit.machine for visit in recoverers]
    return Plan(
        seed=seed,
        bookies=bookies,
        write_cache_bytes=random.choice((8, 64, 1024)) * 1024,
        flush_ms=random.choice((100, 1_000, 5_000)),
        file_bytes=random.choice((16, 256)) * 1024,
        ledgers=ledgers,
        recoverers=recoverers,
        readers=readers,
        deleters=deleters,
        is_haunted=random.random() < 0.6,
        victim=victim,
        faults=draw_faults(random, names, clients, victim, length_ms),
        length_ms=length_ms,
    )


def _ledger(random: Random, length_ms: int) -> LedgerPlan:
    ensemble, write, ack = random.choice(SHAPES)
    pause_ms = random.choice((2, 20, 150))
    largest = random.choice((20, 200, 2000))
    bursts = tuple(
        Burst(
            random.randint(0, pause_ms),
            tuple(random.randint(0, largest) for _ in range(random.choice((1, 1, 2, 5)))),
        )
        for _ in range(random.choice((1, 4, 10, 25)))
    )
    return LedgerPlan(
        Replication(ensemble, write, ack),
        starts_ms=random.randint(0, length_ms // 4),
        bursts=bursts,
        ending=random.choice(("close", "close", "leave", "leave", "abandon")),
    )


def _moment(random: Random, length_ms: int) -> Moment:
    """Half of the time somewhere, else just when something of interest happens."""
    if random.random() < 0.4:
        return Moment("start", 0, random.randint(0, length_ms))
    when = random.choice(EVENTS)
    nth = random.choice((1, 1, 2, 3, random.randint(1, 30)))
    return Moment(when, nth, random.choice((0, 0, 1, 1, 2, 5, 20, 300)))


def draw_faults(
    random: Random, bookies: Sequence[str], clients: Sequence[str], victim: str, length_ms: int
) -> tuple[Fault, ...]:
    """A few kinds, several faults of them."""
    kinds = [
        random.choice(DEADLY if random.random() < 0.5 else sorted(TARGETS))
        for _ in range(random.choice((0, 1, 2, 2, 3, 4, 6)))
    ]
    faults: list[Fault] = []
    for _ in range(random.choice((2, 4, 4, 8, 12)) if kinds else 0):
        kind = random.choice(kinds)
        faults.append(
            Fault(
                _moment(random, length_ms),
                kind,
                _target(random, TARGETS[kind], bookies, clients, victim),
                random.choice((1, 20, 300, 2_000, 7_000)),
                random.random(),
            )
        )
    for _ in range(random.choice((0, 0, 0, 2, 4, 8))):
        # Unequal ways: some bookies are always ahead of the others.
        start = Moment("start", 0, random.randint(0, 300))
        link = _target(random, "link", bookies, clients, victim)
        faults.append(Fault(start, "clog", link, length_ms, random.choice((0.003, 0.02, 0.1))))
    return tuple(faults)


def _target(
    random: Random, what: str, bookies: Sequence[str], clients: Sequence[str], victim: str
) -> str:
    anyone = [*bookies, *clients]
    match what:
        case "bookie":
            return random.choice(bookies)
        case "client":
            return random.choice(clients)
        case "anyone":
            return random.choice(anyone)
        case "victim":
            return victim
        case "link":
            source, destination = random.choice(clients), random.choice(bookies)
            return random.choice((f"{source}>{destination}", f"{destination}>{source}"))
        case "metadata link":
            machine = random.choice(anyone)
            return random.choice((f"{machine}>zk", f"zk>{machine}"))
        case _:
            return "all"


TARGETS = {
    "slow network": "all",
    "spikes": "all",
    "swizzle": "all",
    "cut": "link",
    "clog": "link",
    "reset": "link",
    "isolate": "anyone",
    "deaf": "anyone",
    "mute": "anyone",
    "kill bookie": "bookie",
    "power loss": "bookie",
    "silent power loss": "bookie",
    "power loss everywhere": "all",
    "die at an effect": "bookie",
    "pause bookie": "bookie",
    "restart cleanly": "bookie",
    "crash twice": "bookie",
    "read only": "bookie",
    "disk full": "bookie",
    "slow disk": "bookie",
    "write error": "bookie",
    "sync error": "bookie",
    "read error": "bookie",
    "sync error, power loss": "bookie",
    "bad memory": "victim",
    "replace disk": "victim",
    "replace disk, crash": "victim",
    "rot entry log": "victim",
    "rot journal": "victim",
    "kill client": "client",
    "pause client": "client",
    "metadata cut": "metadata link",
    "metadata refuses": "anyone",
    "metadata reply lost": "anyone",
    "session expires": "anyone",
}
"""Every kind of fault and what it befalls."""

DEADLY = (
    "die at an effect",
    "kill bookie",
    "kill client",
    "metadata reply lost",
    "pause client",
    "power loss",
    "power loss everywhere",
    "replace disk",
    "crash twice",
    "cut",
    "isolate",
)
"""The kinds that the protocol is there for: drawn more often than the others."""
