"""The themes that seeds are drawn from (``plan/theme.py``)."""

from __future__ import annotations

from tests.sim.plan.plan import EVENTS, TARGETS
from tests.sim.plan.theme import Step, Theme
from tests.sim.plan.themes_aimed import FORGOTTEN, IDLE, LIMBO, MISSED, REPLACED

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
        "slow network",
        "spikes",
        "swizzle",
        "clog",
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
        "spikes",
        "slow network",
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
        "silent power loss",
        "silent power loss",
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
"""Restarts: what one replay finds, and no client changes any more, has to survive the next
flush."""

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
    shapes=((3, 3, 2), (3, 3, 2), (3, 3, 2), (4, 4, 3), (4, 3, 2)),
    read_when=("ack", "bookie ack"),
    ledgers=(1, 1, 2),
    endings=("close",),
    spares=(0,),
    readers=(1, 2),
    other_kinds=(0, 0, 1, 2, 3),
    strays=0.1,
    bursts=(4, 10, 25),
    scenes=(
        (
            Step("kill bookie", "a", ("created", "ack"), (1, 2), (0, 1, 5), (2_000,)),
            Step("others down", "a", ("closed",), (1,), (20, 300), (2_000, 4_000)),
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
        "spikes",
        "swizzle",
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
"""Clients that change metadata do not learn the outcome."""

THEMES = (
    ANYTHING,
    CHANGES,
    RECOVERIES,
    RECOVERIES,
    RACES,
    DISKS,
    GARBAGE,
    RESTARTS,
    SYNCS,
    ABSENCES,
    REPLIES,
    MISSED,
    REPLACED,
    FORGOTTEN,
    LIMBO,
    IDLE,
)
"""Recoveries come twice as often: more things go wrong in them than in anything else."""
