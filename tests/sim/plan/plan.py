"""The plan of one seed: sizes, work and faults, all drawn before the history begins
(``plan/draw.py``).

The list of faults is data: a failing history is repeated without some of them to find those that
matter (``plan/shrink.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.ledgers.client import Replication

EVENTS = (
    "ack",
    "bookie ack",
    "explicit LAC",
    "created",
    "recovering",
    "ensemble",
    "fence",
    "recovery add",
    "closed",
    "deleted",
    "removed",
    "compaction",
)
"""The events that a moment can be tied to; ``ledgers/runner.py`` counts them."""


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
class Death:
    """A bookie dies at one of its next effects on its disk; or of those of its next compaction."""

    bookie: str
    effects: int
    power_loss: bool
    in_compaction: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BookiePlan:
    """The configuration of a history's bookies, and the possible faults of their data."""

    bookies: int
    write_cache_bytes: int
    flush_ms: int
    file_bytes: int
    """The size of journals and entry logs: small, so that short histories go through many."""
    victim: str
    """The one bookie that may lose data for good: of each entry Qa - 1 copies may be lost."""
    is_victim_synced: bool
    """False: its journal is not synced before it answers (BP-46)."""
    garbage_ms: int
    """Between two passes of a bookie's garbage collection."""
    scrub_ms: int
    repairs_itself: bool
    """A bookie whose disk was replaced repairs its cookie; else it refuses to start, and the
    operator does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(BookiePlan):
    seed: int
    ledgers: tuple[LedgerPlan, ...]
    recoverers: tuple[Visit, ...]
    readers: tuple[Visit, ...]
    deleters: tuple[Visit, ...]
    is_haunted: bool
    askers: int
    """Clients that ask single bookies for entries, all the time (``ledgers/ghosts.py``)."""
    faults: tuple[Fault, ...]
    length_ms: int
    ends_storage: bool
    """True if at the end garbage is collected and all ledgers are deleted. Some histories do
    without: it takes as long as all the rest."""
    last_deaths: tuple[Death, ...]
    """The deaths at the end, while garbage is collected and entry logs are compacted."""


TARGETS = {
    "slow network": "all",
    "spikes": "all",
    "swizzle": "all",
    "cut": "link",
    "clog": "link",
    "slow bookie": "bookie",
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
    "disk fills": "bookie",
    "slow disk": "bookie",
    "write error": "bookie",
    "sync error": "bookie",
    "read error": "bookie",
    "sync error, power loss": "bookie",
    "sync error, crash": "bookie",
    "sync error everywhere, crash": "all",
    "restart chain": "all",
    "others down": "bookie",
    "bad memory": "victim",
    "replace disk": "victim",
    "replace disk, crash": "victim",
    "replace disk, others down": "victim",
    "replace disk, restarts": "victim",
    "rot entry log": "victim",
    "rot journal": "victim",
    "rot journal, crash": "victim",
    "die at an effect, crash": "bookie",
    "slow metadata": "client",
    "kill client": "client",
    "pause client": "client",
    "metadata cut": "metadata link",
    "metadata refuses": "anyone",
    "metadata reply lost": "client",
    "session expires": "anyone",
    "metadata emptied": "bookie",
    "listing breaks off": "bookie",
}
"""Kinds of faults that any seed may draw, and what they befall."""

STAGED_TARGETS = {
    "index unreadable": "bookie",
    "no room": "bookie",
    "restarts": "bookie",
}
"""Kinds that scenes alone have."""
