"""Themes that have seeds of their own (``plan/draw.py``): each stages one meeting that a random
seed comes to so seldom that no few hundred of them can be relied on for it."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.plan.plan import Moment
from tests.sim.plan.theme import Step, Theme, clog
from tests.sim.plan.themes_aimed import FORGOTTEN, MISSED, UNSYNCED

DAMAGED = replace(
    MISSED,
    pauses_ms=(5, 20),
    recoverers=(1,),
    recover_at=Moment("ack", 4, 700),
    flush_ms=(50, 100),
    spares=(0,),
    bursts=(25,),
    other_kinds=(0, 0, 1),
    scenes=(
        (
            clog("w>b", (3_000,), "bookie ack", 3),
            clog("a>r", (100, 200), "created", 1),
            Step("kill client", "w", ("ack",), (4, 6, 8), (0,)),
            *(
                Step("rot entry log", "v", ("ack",), (4,), (500, 600, 650), (20,))
                for _ in range(12)
            ),
        ),
    ),
)
"""One copy of a dead writer's last entries is damaged, the bookie of another is slow to report it,
and the third bookie has none of them."""

UNFENCED = replace(
    MISSED,
    pauses_ms=(5, 20),
    recoverers=(1,),
    recover_at=Moment("ack", 4, 20),
    spares=(0,),
    bursts=(25,),
    other_kinds=(0, 0, 1),
    haunted=1.0,
    scenes=(
        (
            clog("w>m3", (3_000,), "bookie ack", 3),
            Step("slow disk", "m3", ("recovering",), (1,), (0,), (50,), (10.0,)),
            Step("power loss", "m3", ("fence",), (4, 5), (1, 2, 3), (60,)),
            Step("kill client", "r", ("fence",), (4, 5), (3, 5), (0,)),
        ),
    ),
)
"""The power of a bookie fails before its fence is durable, but not before it is asked for an entry
that it does not have."""

HELD = replace(
    MISSED,
    pauses_ms=(20,),
    ledgers=(3,),
    recoverers=(1,),
    recover_at=Moment("bookie ack", 400, 0),
    spares=(0,),
    write_cache_kb=(4,),
    entry_bytes=(200, 1_000),
    bursts=(150,),
    other_kinds=(0, 0, 1),
    scenes=(
        tuple(
            step
            for bookie in ("b1", "b2", "b3")
            for step in (
                clog(f"{bookie}>w1", (500,), "bookie ack", 400),
                Step("slow disk", bookie, ("fence",), (1,), (0,), (2_000,), (0.02, 0.1)),
            )
        ),
    ),
)
"""Bookies that are kept busy by others have no room for adds of a writer that does not hear that it
was fenced."""

STRIPED = replace(
    MISSED,
    pauses_ms=(2, 5),
    shapes=((5, 3, 2),),
    recoverers=(1,),
    recover_at=Moment("ensemble", 1, 5),
    spares=(1,),
    bursts=(60,),
    other_kinds=(0,),
    scenes=(
        (
            clog("w>m5", (3_000,), "bookie ack", 12),
            clog("w>s1", (2_000,), "created", 1),
            *(clog(f"m{n}>w", (100, 150), "bookie ack", 12) for n in (2, 3, 4)),
            clog("m4>r", (150,), "created", 1),
            clog("m2>r", (150,), "created", 1),
            Step("slow metadata", "w", ("bookie ack",), (12,), (0,), (9_000,), (0.15, 0.3)),
            Step("kill bookie", "m1", ("bookie ack",), (50, 70, 90), (0, 5), (7_000,)),
        ),
    ),
)
"""A member of a striped ensemble is replaced while many entries wait, some of which it alone had
acknowledged besides one that is slow to tell of it."""

FULL = replace(
    MISSED,
    pauses_ms=(20, 100),
    recoverers=(0, 1),
    spares=(0, 1),
    bursts=(4, 10),
    flush_ms=(100, 1_000),
    write_cache_kb=(4, 16),
    entry_bytes=(200, 2_000),
    ledgers=(1, 2),
    scenes=(
        (
            Step("disk fills", "m1", ("ack",), (1, 3), (0,), (5_000,)),
            Step("disk fills", "m2", ("ack",), (1, 3), (0, 700), (3_000,)),
            Step("disk fills", "m3", ("ack",), (5,), (0, 700), (3_000,)),
        ),
    ),
)
"""Disks are almost full, and caches are not empty."""

UNREADABLE = replace(
    MISSED,
    kinds=("reset", "kill bookie", "restart cleanly", "read error"),
    events=("closed", "bookie ack"),
    pauses_ms=(5, 20),
    recoverers=(0, 0, 1),
    endings=("close",),
    spares=(0,),
    bursts=(10,),
    readers=(1, 2),
    read_when=("closed",),
    flush_ms=(50, 100),
    other_kinds=(0, 0, 1),
    scenes=(
        tuple(
            Step("index unreadable", bookie, ("closed",), (1,), (150, 300, 600), (300, 1_500))
            for bookie in ("m1", "m2", "m3")
        ),
    ),
)
"""Bookies cannot read their indexes for a while, and are asked for what only these know of."""

RENAMED = replace(
    MISSED,
    kinds=("reset", "kill bookie", "restart cleanly", "power loss"),
    events=("ack", "bookie ack", "closed"),
    pauses_ms=(5, 20),
    recoverers=(0, 0, 1),
    ledgers=(1, 2),
    endings=("close",),
    spares=(0,),
    bursts=(10,),
    readers=(0, 1),
    flush_ms=(50, 100),
    other_kinds=(0, 0, 1),
    scenes=(),
    storage_ends=1.0,
    last_effects=(9, 10, 10, 11),
)
"""The power of bookies fails when a compacted entry log has its name and is pointed to, just before
or after the old ones go."""

REPLAYED = replace(
    MISSED,
    kinds=("reset", "kill bookie", "power loss"),
    events=("ack", "bookie ack"),
    pauses_ms=(2, 5),
    recoverers=(0, 0, 1),
    endings=("close", "leave"),
    spares=(0,),
    write_cache_kb=(16,),
    entry_bytes=(1_000,),
    bursts=(60,),
    flush_ms=(5_000,),
    other_kinds=(0, 0, 1),
    haunted=1.0,
    scenes=(
        (
            Step("no room", "m1", ("bookie ack",), (1, 3, 6), (0,), (9_000,)),
            Step("restarts", "m1", ("bookie ack",), (15, 20, 30), (0, 5), (1,)),
        ),
    ),
)
"""A replay flushes a part of what it finds, and for the rest there is no room: until the next start
the journal alone has that."""

UNANSWERED = replace(
    FORGOTTEN,
    events=("closed",),
    pauses_ms=(5, 20),
    recoverers=(0,),
    shapes=((3, 3, 2),),
    ledgers=(1, 2),
    deleters=(0,),
    endings=("close",),
    readers=(1, 2),
    read_when=("closed",),
    write_cache_kb=(1024,),
    bursts=(25,),
    other_kinds=(0, 0, 1),
    scenes=(
        (Step("replace disk, others down", "v", ("closed",), (1,), (20, 300), (4_000, 7_000)),),
    ),
)
"""A bookie loses all that it had of closed ledgers, and for a while nobody can be asked for it."""

AMID_FLUSHES = replace(
    MISSED,
    kinds=("kill bookie", "reset", "restart cleanly"),
    events=("ack", "bookie ack"),
    pauses_ms=(50, 100),
    recoverers=(0,),
    endings=("close", "leave"),
    spares=(0,),
    readers=(1, 2),
    read_when=("ack",),
    write_cache_kb=(4, 16),
    entry_bytes=(200, 1_000),
    bursts=(60,),
    flush_ms=(30, 50, 100),
    other_kinds=(0, 0, 1),
    haunted=0.0,
    askers=6,
    scenes=(
        tuple(
            Step("slow disk", bookie, ("created",), (1,), (0,), (9_000,), (0.05, 0.1, 0.2))
            for bookie in ("m1", "m2", "m3")
        ),
    ),
)
"""Bookies with slow disks flush all the time, and are asked meanwhile for what they flush."""

LEFT_OUT = replace(
    MISSED,
    kinds=("reset", "slow network"),
    pauses_ms=(20,),
    recoverers=(0,),
    spares=(1,),
    bursts=(10,),
    deleters=(0,),
    garbage_ms=(700,),
    other_kinds=(0, 0, 1),
    scenes=(
        (
            clog("w>m2", (60, 100, 200), "created", 1),
            clog("w>m3", (60, 100, 200), "created", 1),
            Step("kill bookie", "m1", ("bookie ack",), (1,), (0, 5), (20, 300)),
        ),
    ),
)
"""A bookie has the first entry of a ledger before anybody else, dies, and is replaced in the first
fragment. When it is back no fragment names it, and the ledger stays open for long."""

BELOW = replace(
    MISSED,
    recoverers=(1,),
    recover_at=Moment("ensemble", 1, 5),
    spares=(1,),
    bursts=(60,),
    other_kinds=(0,),
    scenes=(
        (
            clog("w>m3", (3_000,), "bookie ack", 3),
            clog("w>s1", (2_000,), "created", 1),
            clog("m2>r", (100, 200), "created", 1),
            Step("kill bookie", "m1", ("bookie ack",), (40, 50, 60), (0, 5), (7_000,)),
        ),
    ),
)
"""A recovery begins right after an ensemble change. Of the last ensemble, one bookie has nothing
yet, one has missed all that came before, and the third is slow to tell of it."""

REWRITTEN = replace(
    MISSED,
    recoverers=(1,),
    recover_at=Moment("bookie ack", 9, 20),
    spares=(1,),
    bursts=(25,),
    other_kinds=(0,),
    scenes=(
        (
            clog("w>m1", (3_000,), "bookie ack", 3),
            clog("w>m3", (3_000,), "bookie ack", 3),
            clog("r>m1", (60,), "created", 1),
            clog("r>m3", (30,), "created", 1),
            Step("slow disk", "m3", ("recovery add",), (1,), (0,), (7_000,), (1.0,)),
            Step("kill bookie", "m1", ("recovery add",), (1,), (0, 5), (7_000,)),
        ),
    ),
)
"""One bookie alone has the last entries. When a recovery writes them again, another member fails
and is replaced, and the disk of the third is slow to take them."""

UNRESOLVED = replace(
    MISSED,
    kinds=("reset", "slow network"),
    pauses_ms=(5, 20),
    recoverers=(0, 0, 1),
    spares=(1,),
    bursts=(60,),
    other_kinds=(0, 0, 1),
    scenes=(
        (
            Step("metadata reply lost", "w", ("bookie ack",), (3,), (0,)),
            *(Step("reset", "w>m1", ("bookie ack",), (nth,), (0, 1, 2), (1,)) for nth in (3, 4, 5)),
            Step("metadata refuses", "w", ("ensemble",), (1,), (0,), (500, 900)),
            clog("w>m2", (1_500,), "bookie ack", 4),
        ),
    ),
)
"""The change of an ensemble is made, and its writer learns neither that nor, for a while, anything
else of the metadata. The member that was replaced answers again, and another one is slow."""

STAGED: dict[int, tuple[Theme | None, ...]] = {
    7: (UNREADABLE, RENAMED),
    9: (FULL, REWRITTEN),
    11: (REPLAYED, REPLAYED, UNANSWERED),
    15: (None, UNSYNCED),
    17: (AMID_FLUSHES, LEFT_OUT, UNRESOLVED, BELOW),
    19: (UNFENCED, DAMAGED, STRIPED, HELD),
}
"""By the place in ``STAGED_EVERY`` seeds, those that take turns there; None: the one that the seed
draws."""
