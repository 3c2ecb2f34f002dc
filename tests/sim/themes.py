"""Which kinds of faults go together, and how busy everybody is meanwhile.

A *theme* is what a seed is about: what breaks an ensemble change is not what breaks a replay. A
*scene* of it is a few faults that have to meet on the same machines to do harm; the rest is drawn
at random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plan import EVENTS, TARGETS

SHAPES = ((3, 3, 2), (3, 3, 2), (4, 3, 2), (5, 3, 2), (3, 2, 2), (2, 2, 2), (4, 4, 3), (3, 3, 3))
"""(E, Qw, Qa). The first is the default of the service."""


DELETE_WHEN = ("created", "ack", "closed", "closed", "recovering")
"""Also ledgers that are still written, or just recovered."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a scene. Of ``target`` the names ``a`` and ``b`` are two bookies, ``v`` is the
    victim, ``w`` a writer and ``r`` a recoverer, the same ones in all its steps; ``m1``, ``m2`` and
    so on are the first members of the first ledger, whoever these turn out to be."""

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
    recover_when: tuple[str, ...] = ("ack", "bookie ack", "bookie ack", "ensemble", "recovering")
    """Mostly in the middle of writing, or of another recovery."""
    endings: tuple[str, ...] = ("close", "close", "leave", "leave", "abandon")
    spares: tuple[int, ...] = (0, 1, 1, 2)
    """Bookies beyond the largest ensemble."""
    readers: tuple[int, ...] = (0, 1, 1, 2)
    flush_ms: tuple[int, ...] = (100, 1_000, 5_000)
    scenes: tuple[Scene, ...] = ()
    scenes_played: tuple[int, ...] = (1, 1, 2)
    """So many of them in a seed of the theme, if there are any."""
    other_kinds: tuple[int, ...] = (0, 1, 2, 3, 4, 6)
    """So many kinds of faults besides."""
    strays: float = 0.3
    """The share of moments that are tied to no event."""
    bursts: tuple[int, ...] = (1, 4, 10, 25)
    write_cache_kb: tuple[int, ...] = (4, 16, 1024)


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
    scenes=(
        (
            Step("slow metadata", "w", ("start",), (0,), (0, 50), (9_000,)),
            Step("kill bookie", "a", ("bookie ack",), (1, 5, 20), (0, 1, 5)),
            Step("clog", "w>b", ("bookie ack",), (1, 5, 20), (0, 1, 5)),
        ),
        (
            Step("slow metadata", "w", ("start",), (0,), (0, 50), (9_000,)),
            Step("reset", "w>a", ("bookie ack",), (1, 5, 20), (0, 1, 5)),
            Step("clog", "b>w", ("start",), (0,), (0, 50), (9_000,)),
        ),
    ),
)
"""Slow changes of ensembles, while answers of those who stay come at different times."""

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
    scenes=(
        (
            Step("kill bookie", "a", ("recovery add",), (1, 2, 5), (0, 1)),
            Step("reset", "r>b", ("recovery add",), (1, 2, 5), (0, 1)),
        ),
        (
            Step("kill bookie", "a", ("fence",), (1, 2), (0, 1, 2)),
            Step("kill client", "r", ("recovery add",), (1, 2, 5), (1, 5)),
        ),
    ),
)
"""Members fail in the middle of a recovery, and another recoverer has to go on."""

RACES = Theme(
    kinds=("reset", "reset", "cut", "kill bookie", "restart cleanly", "isolate", "power loss"),
    events=("recovering", "recovering", "fence", "recovery add"),
    pauses_ms=(0, 1, 3),
    recoverers=(1, 2),
    slow_bookies=(0, 1),
    slow_links=(8, 16, 24),
    shapes=((3, 3, 2), (4, 3, 2), (3, 2, 2), (5, 3, 2), (5, 2, 2)),
    scenes=(
        (
            Step("reset", "r>a", ("recovering", "fence"), (1, 1, 2), (0, 0, 1, 2)),
            Step("reset", "r>b", ("recovering", "fence"), (1, 1, 2), (0, 0, 1, 2)),
        ),
    ),
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

RESTARTS = Theme(
    kinds=(
        "restart chain",
        "crash twice",
        "kill bookie",
        "power loss",
        "restart cleanly",
        "die at an effect",
        "replace disk, restarts",
    ),
    events=("fence", "recovering", "closed", "bookie ack"),
    pauses_ms=(2, 20),
    recoverers=(1, 1, 2),
    slow_bookies=(0,),
    slow_links=(0,),
    ledgers=(1, 1, 2),
    recover_when=("ack", "bookie ack"),
    endings=("leave", "leave", "abandon"),
    flush_ms=(50, 100, 300, 1_000),
    scenes=(
        (Step("restart chain", "all", ("fence",), (1, 2, 3, 5), (0, 1, 5)),),
        (Step("restart chain", "all", ("explicit LAC",), (1, 2, 3, 4), (0, 1, 5)),),
        (
            Step("kill bookie", "a", ("ack", "bookie ack"), (1, 5), (20, 300), (7_000,)),
            Step("kill bookie", "b", ("ack", "bookie ack"), (1, 5), (20, 300), (7_000,)),
            Step("replace disk, restarts", "v", ("ack", "bookie ack"), (1, 5, 20), (20, 300)),
        ),
    ),
)
"""What one replay finds and nobody changes any more has to come through the next flush."""

SYNCS = Theme(
    kinds=("sync error, crash", "kill client", "reset", "power loss", "sync error"),
    events=("recovering", "fence", "recovery add", "bookie ack"),
    pauses_ms=(1, 3, 20),
    recoverers=(2, 2, 3),
    slow_bookies=(0,),
    slow_links=(0,),
    ledgers=(1, 1, 2),
    recover_when=("ack", "bookie ack", "recovering", "recovering"),
    endings=("leave", "leave", "abandon"),
    flush_ms=(1_000, 5_000),
    scenes=(
        (Step("sync error everywhere, crash", "all", ("recovering",), (1, 1, 2), (0, 0, 1, 2)),),
        (Step("sync error everywhere, crash", "all", ("fence", "recovery add"), (1, 2, 5)),),
        (
            Step("kill bookie", "a", ("bookie ack",), (1, 5), (0, 5), (2_000,)),
            Step("sync error everywhere, crash", "all", ("recovering",), (1, 1, 2), (0, 1)),
        ),
    ),
)
"""A sync of the journal fails just when somebody is about to rely on what it was for."""

ABSENCES = Theme(
    kinds=("kill bookie", "reset", "read error", "restart cleanly", "power loss"),
    events=("ack", "bookie ack", "closed"),
    pauses_ms=(2, 20),
    recoverers=(0, 0, 1),
    slow_bookies=(0,),
    slow_links=(0,),
    shapes=((3, 3, 2), (3, 3, 2), (4, 4, 3), (5, 3, 2), (4, 3, 2)),
    read_when=("ack", "closed"),
    ledgers=(1, 1, 2),
    endings=("close",),
    spares=(0,),
    readers=(1, 2),
    scenes=(
        (
            Step("kill bookie", "a", ("created", "ack"), (1, 2), (0, 1, 5), (2_000,)),
            Step("others down", "a", ("closed",), (1,), (20, 300), (300, 2_000)),
        ),
    ),
)
"""A bookie rightly lacks entries of a closed ledger, nobody can replace it, and the others are away
when it is asked."""

REPLIES = Theme(
    kinds=(
        "metadata reply lost",
        "metadata reply lost",
        "metadata cut",
        "metadata refuses",
        "session expires",
        "slow metadata",
        "kill bookie",
    ),
    events=("created", "ack", "ensemble", "recovering", "closed"),
    pauses_ms=(1, 3, 20),
    recoverers=(0, 1, 2),
    slow_bookies=(0, 1),
    slow_links=(0, 2),
    ledgers=(1, 1, 2),
    endings=("close", "close", "close", "leave"),
    scenes=(
        (Step("metadata reply lost", "w", ("ack",), (1, 1, 2, 3), (0, 1, 5)),),
        (
            Step("kill bookie", "a", ("ack",), (1, 2, 5), (0, 5)),
            Step("metadata reply lost", "w", ("ack",), (1, 2, 5), (0, 5)),
        ),
        (Step("metadata reply lost", "r", ("recovering", "fence"), (1, 2)),),
    ),
)
"""Whoever changes metadata does not hear what became of it."""

MISSED = Theme(
    kinds=("reset", "cut", "slow network", "spikes", "slow bookie", "kill client"),
    events=("recovering", "fence", "recovery add", "bookie ack"),
    pauses_ms=(2, 5),
    recoverers=(1, 1, 1, 2),
    slow_bookies=(0,),
    slow_links=(0,),
    shapes=((3, 3, 2),),
    ledgers=(1,),
    recover_when=("bookie ack",),
    endings=("leave",),
    write_cache_kb=(1024,),
    scenes_played=(1,),
    other_kinds=(0, 0, 0, 1, 2),
    strays=0.1,
    bursts=(25, 60),
    scenes=(
        (
            clog("m1>r", (100, 130), "created", 1),
            clog("r>m3", (20,), "created", 1),
            clog("w>m2", (1_500,), "bookie ack", 3),
            clog("w>m3", (500, 600), "bookie ack", 3),
            clog("m1>w", (900,), "bookie ack", 3),
            Step("reset", "r>m3", ("fence",), (1,), (40, 43, 46), (1,)),
        ),
    ),
)
"""The fence of a recovery misses a member whose adds are on their way; another one alone has them,
and is slow to say so."""

REPLACED = replace(
    MISSED,
    shapes=((4, 3, 2), (4, 3, 2), (5, 3, 2)),
    spares=(1, 1, 2),
    scenes=(
        (
            clog("m2>r", (60, 90), "created", 1),
            clog("m1>r", (5,), "created", 1),
            clog("w>m3", (2_000,), "bookie ack", 4),
            clog("m1>w", (30, 60), "bookie ack", 4),
            clog("m2>w", (30, 60), "bookie ack", 4),
            Step("reset", "r>m1", ("recovery add",), (1, 2, 4, 7), (0,), (1,)),
        ),
    ),
)
"""A recoverer puts another bookie in the place of one that has an entry; of the others one is slow
to tell, and one has nothing."""

THEMES = (
    ANYTHING,
    CHANGES,
    RECOVERIES,
    RECOVERIES,
    RACES,
    RACES,
    DISKS,
    GARBAGE,
    RESTARTS,
    RESTARTS,
    SYNCS,
    ABSENCES,
    REPLIES,
    MISSED,
    REPLACED,
)
"""Those in which a few rare things have to meet come twice as often."""
