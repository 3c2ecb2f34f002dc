"""Kinds of faults that go together, and the load meanwhile.

A *theme* is what a seed is about: what breaks an ensemble change is not what breaks a replay. A
*scene* of it is a few faults that have to meet on the same machines to do harm; the rest is drawn
at random.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.plan.plan import Moment

SHAPES = ((3, 3, 2), (3, 3, 2), (4, 3, 2), (5, 3, 2), (3, 2, 2), (2, 2, 2), (4, 4, 3), (3, 3, 3))
"""(E, Qw, Qa). The first is the default of the service."""


DELETE_WHEN = ("created", "ack", "closed", "closed", "recovering")
"""The moments of a deletion, which include ledgers that are still written, or just recovered."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a scene. Of ``target`` the names ``a`` and ``b`` are two bookies, ``v`` is the
    victim, ``w`` a writer and ``r`` a recoverer, the same ones in all its steps; ``m1``, ``m2`` and
    so on are the first members of the first ledger, ``s1`` the first bookie that is none, whoever
    these turn out to be."""

    kind: str
    target: str
    when: tuple[str, ...]
    nths: tuple[int, ...] = (1,)
    delays_ms: tuple[int, ...] = (0, 1, 5)
    durations_ms: tuple[int, ...] = (300, 2_000)
    sizes: tuple[float, ...] = ()
    """Any, if there are none. A link is clogged by three times so many seconds."""


def clog(link: str, ms: tuple[int, ...], event: str, nth: int) -> Step:
    """A way that is so much longer from the ``nth`` event on."""
    sizes = tuple(one / 3_000 for one in ms)
    return Step("clog", link, (event,), (nth,), (0,), (9_000,), sizes)


Scene = tuple[Step, ...]


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
    last_effects: tuple[int, ...] = ()
    """The effects of the last compaction, if any, at one of which the power of each bookie
    fails."""
    recover_when: tuple[str, ...] = ("ack", "bookie ack", "bookie ack", "ensemble", "recovering")
    """Mostly in the middle of writing, or of another recovery."""
    recover_at: Moment | None = None
    """The moment at which all recoverers come to the first writer's ledger; None: each at its
    own."""
    endings: tuple[str, ...] = ("close", "close", "leave", "leave", "abandon")
    spares: tuple[int, ...] = (0, 1, 1, 2)
    """Bookies beyond the largest ensemble."""
    readers: tuple[int, ...] = (0, 1, 1, 2)
    flush_ms: tuple[int, ...] = (100, 1_000, 5_000)
    scenes: tuple[Scene, ...] = ()
    scenes_played: tuple[int, ...] = (1, 1, 2)
    """The number of scenes in a seed of the theme, if there are any."""
    other_kinds: tuple[int, ...] = (0, 1, 2, 3, 4, 6)
    """The number of further kinds of faults."""
    strays: float = 0.3
    """The share of moments that are tied to no event."""
    bursts: tuple[int, ...] = (1, 4, 10, 25)
    entry_bytes: tuple[int, ...] = (20, 200, 2000)
    """The sizes of the largest entries of a ledger."""
    write_cache_kb: tuple[int, ...] = (4, 16, 1024)
    haunted: float = 0.6
    """The share of histories with ghosts (``ledgers/ghosts.py``)."""
    askers: int = 0
    """Clients that ask single bookies for entries, all the time."""
