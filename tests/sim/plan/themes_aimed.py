"""Themes about one rare meeting each: its parts are brought together on purpose, at the members of
the ledger that it is about, for by chance they meet once in thousands of histories."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.plan.theme import Step, Theme, clog

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

FORGOTTEN = Theme(
    kinds=("silent power loss", "kill bookie", "restart cleanly", "reset", "replace disk"),
    events=("fence", "recovering", "bookie ack"),
    pauses_ms=(2, 20),
    recoverers=(1, 1, 2),
    slow_bookies=(0,),
    slow_links=(0, 0, 4),
    shapes=((3, 3, 2), (3, 3, 2), (4, 4, 3), (4, 3, 2)),
    ledgers=(1, 1, 2),
    recover_when=("bookie ack",),
    endings=("leave", "leave", "abandon"),
    spares=(0,),
    flush_ms=(50, 100, 300),
    scenes_played=(1,),
    other_kinds=(0, 0, 1, 2),
    strays=0.1,
    haunted=0.9,
    scenes=(
        (
            Step(
                "replace disk, others down", "v", ("fence",), (1, 1, 2), (0, 1, 5), (4_000, 7_000)
            ),
            Step("kill bookie", "v", ("fence",), (1,), (1_000, 2_000, 3_000), (20, 300)),
        ),
        (
            Step("replace disk, others down", "v", ("ack",), (1, 2), (0, 20), (4_000, 7_000)),
            Step("kill bookie", "v", ("ack",), (1,), (1_000, 1_500), (20, 300)),
        ),
    ),
)
"""A bookie loses what it had, its fences as well, is started again in limbo, and nobody is there to
repair it from."""

LIMBO = replace(
    FORGOTTEN,
    pauses_ms=(5, 20),
    recoverers=(0, 1),
    shapes=((3, 3, 2),),
    ledgers=(1,),
    endings=("leave",),
    write_cache_kb=(1024,),
    bursts=(25,),
    scenes=(
        (
            clog("a>v", (100,), "created", 1),
            clog("a>r", (100,), "created", 1),
            clog("w>b", (3_000,), "bookie ack", 3),
            Step("kill client", "w", ("ack",), (3, 4, 6), (0,)),
            Step("replace disk", "v", ("ack",), (6,), (20, 50), (20,)),
            Step("replace disk", "v", ("ack",), (3,), (50, 100), (20,)),
        ),
    ),
)
"""The last entries of a dead writer are on a bookie in limbo, and on one that is slow to say so;
the third has nothing of them."""

IDLE = Theme(
    kinds=("silent power loss", "restart cleanly", "kill bookie", "power loss"),
    events=("explicit LAC", "bookie ack"),
    pauses_ms=(150, 500),
    recoverers=(0,),
    slow_bookies=(0,),
    slow_links=(0,),
    ledgers=(1, 1, 2),
    endings=("leave",),
    readers=(1, 1, 2),
    flush_ms=(30, 50),
    scenes_played=(1,),
    other_kinds=(0, 0, 1, 2),
    bursts=(1, 4),
    scenes=((Step("restart chain", "all", ("explicit LAC",), (2, 3, 3, 6, 9), (0, 1, 5, 10)),),),
)
"""A writer has nothing to write, tells its LAC, and bookies are started again and again."""

UNSYNCED = replace(
    MISSED,
    kinds=("reset", "kill bookie"),
    events=("ack", "bookie ack"),
    pauses_ms=(2,),
    recoverers=(3,),
    ledgers=(6,),
    endings=("close",),
    spares=(0,),
    entry_bytes=(200,),
    bursts=(60,),
    flush_ms=(5_000,),
    other_kinds=(0, 0, 1),
    haunted=1.0,
    scenes=(
        tuple(
            Step("sync error, crash", bookie, ("bookie ack",), (20, 50, 100, 200, 300), (0, 1, 2))
            for bookie in ("m1", "m2", "m3", "m1", "m2", "m3")
        ),
    ),
)
"""Many writers' entries are in the group whose sync fails on one bookie or the other. It starts
again, finds in the page cache what its disk lacks, takes more at once, and loses its power."""
