"""The small worlds there are: searched by the suite, searched by hand, and walked."""

from __future__ import annotations

from dataclasses import replace

from tests.explore.config import World

ONE_ENTRY = World("one entry", closes=True)

ONE_FAULT = World("one entry, one cut", closes=True, budget=1, faults={"cut": 1})

_CUT_AND_LOST = {"cut": 1, "lost reply": 1}

_STRIPED = replace(ONE_FAULT, ensemble=3, write_quorum=2, spares=0, closes=False)

SMALL = (
    ONE_ENTRY,
    World("writer, answer lost", entries=2, recoverers=0, budget=2, faults=_CUT_AND_LOST),
    World(
        "writer, change lost",
        entries=2,
        recoverers=0,
        budget=3,
        faults={"refuse": 1, "lost reply": 1, "away": 1},
    ),
    World("one entry, metadata", closes=True, budget=1, faults={"lost reply": 1, "away": 1}),
    replace(_STRIPED, name="one striped entry, one cut"),
    World(
        "two copies, two failures",
        ensemble=2,
        write_quorum=2,
        spares=0,
        budget=2,
        faults={"refuse": 2},
    ),
    World(
        "closed and read",
        recoverers=0,
        spares=0,
        readers=1,
        closes=True,
        budget=2,
        faults={"refuse": 2},
    ),
    ONE_FAULT,
)
"""Complete in seconds: the suite searches them."""

LARGE = (
    World("a bookie dies", closes=True, budget=1, faults={"kill": 1}),
    World("limbo", budget=1, faults={"lose": 1}),
    World("damage", budget=1, faults={"damage": 1}),
    World("no spare", entries=1, spares=0, closes=True, budget=1, faults={"cut": 1}),
    World("two recoverers", recoverers=2),
    World("striped", entries=2, write_quorum=2, spares=0),
    World("striped, one cut", entries=2, write_quorum=2, spares=0, budget=1, faults={"cut": 1}),
    World("two entries", entries=2),
    World("two in a run", entries=2, one_run=True, budget=1, faults={"cut": 1}),
    World("deleted", deleter=True, budget=1, faults={"cut": 1}),
    World("read", readers=2),
)
"""Minutes each."""

HUGE = (
    World("two recoverers, one cut", recoverers=2, budget=1, faults={"cut": 1}),
    World("two entries, one cut", entries=2, budget=1, faults={"cut": 1}),
)
"""Millions of states."""

_ANY = {"cut": 3, "refuse": 3, "kill": 1, "lose": 1, "lost reply": 2, "away": 1}
_DAMAGE = {"cut": 3, "refuse": 3, "kill": 1, "damage": 1, "lost reply": 2, "away": 1}

WALKED = (
    World("walk: three", entries=3, recoverers=2, closes=True, budget=3, faults=_ANY),
    World(
        "walk: striped",
        entries=4,
        write_quorum=2,
        spares=2,
        recoverers=2,
        closes=True,
        budget=3,
        faults=_DAMAGE,
    ),
    World(
        "walk: writer", entries=3, recoverers=0, budget=3, faults={"cut": 3, "refuse": 3, "away": 1}
    ),
    World(
        "walk: striped writer",
        entries=4,
        write_quorum=2,
        recoverers=0,
        budget=3,
        faults={"cut": 3, "refuse": 3, "lost reply": 1},
    ),
    World("walk: damage", entries=2, recoverers=2, closes=True, budget=3, faults=_DAMAGE),
    World("walk: no spare", entries=3, spares=0, closes=True, budget=3, faults=_ANY),
    World("walk: late changes", entries=3, delays_changes=True, budget=3, faults=_ANY),
    World("walk: in runs", entries=3, one_run=True, recoverers=2, budget=3, faults=_ANY),
    World("walk: five", entries=2, ensemble=4, write_quorum=4, spares=1, budget=3, faults=_ANY),
    World("walk: readers", entries=3, readers=3, tells_lac=True, budget=3, faults=_ANY),
    World("walk: deleted", entries=3, deleter=True, closes=True, budget=3, faults=_DAMAGE),
)
"""One walk after the other."""
