"""Wrong ways to deal with a metadata store that went back to a backup: what the backup names is
removed, ids are given again, or what is lost is remembered."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CORE = "fencelog.bookie.gc.core"
IDS = "fencelog.ledgers.ledger_metadata.ids"
LOG = "fencelog.broker.partition.factory"
REWOUND = "fencelog.broker.partition.rewound"

_GARBAGE = "MAINTENANCE.md: garbage collection"
_OPENING = "SEMANTICS.md: opening a log"

_NOT_CUT = Edit(REWOUND, "rewound", "return _cut(event, log_end)", "return event")

MUTANTS = (
    Mutant(
        "deleted-ledger-has-no-grace",
        _GARBAGE,
        "A deleted ledger goes at once: a restored backup names what no bookie has.",
        (
            Edit(
                CORE,
                "choose_ledgers",
                "due(Reason.DELETED, grace_ms if grace_of_deleted else 0)",
                "due(Reason.DELETED, 0)",
            ),
        ),
    ),
    Mutant(
        "ids-given-again-after-a-restore",
        "PROTOCOL.md: Metadata",
        "No ids are skipped after a restore: bookies hold ledgers with those of new ones.",
        (Edit(IDS, "skip_ids", "last = _parse(node.value) + count", "last = _parse(node.value)"),),
    ),
    Mutant(
        "acks-of-lost-messages-count",
        _OPENING,
        "Acknowledgements of messages that a restore has lost count for those in their place.",
        (
            Edit(
                REWOUND,
                "_cut",
                'case ["ack" | "failures", _, [*ranges]] if any(',
                'case ["failures", _, [*ranges]] if any(',
            ),
        ),
    ),
    Mutant(
        "producers-of-lost-messages-known",
        _OPENING,
        "The state log knows producers of messages that a restore has lost: the log never opens.",
        (_NOT_CUT,),
    ),
)
"""Mutants that histories of restores have to detect."""

IN_MEMORY = (
    Mutant(
        "rewound-in-memory-only",
        _OPENING,
        "What a restore has lost is forgotten by one owner, and the next one finds it again.",
        (Edit(LOG, "write_state", "if not log.state.is_rewound:", "if log.state:"),),
    ),
)
"""Seldom shown by a history: the first owner has to die before it writes anything of the state."""
