"""Wrong recoveries: they end a ledger too early, or where nobody finds its entries."""

from __future__ import annotations

from mutation import Edit, Mutant

ERRORS = "fencelog.ledgers.errors"
QUORUM = "fencelog.ledgers.quorum"
TRANSITIONS = "fencelog.ledgers.transitions"

COVERAGE = (
    Mutant(
        "coverage-one-short",
        "PROTOCOL.md rule 4",
        "Qw - Qa bookies are taken for enough, to be fenced and to say no.",
        (
            Edit(
                QUORUM,
                "coverage_threshold",
                "return cohort - ack_quorum + 1",
                "return cohort - ack_quorum",
            ),
        ),
    ),
    Mutant(
        "one-write-set-fenced",
        "PROTOCOL.md rule 4",
        "The fence is complete once a single write set of the ensemble is covered.",
        (Edit(QUORUM, "is_ensemble_covered", "    return all(\n", "    return any(\n"),),
    ),
    Mutant(
        "silence-is-no",
        "PROTOCOL.md rules 4 and 7",
        "A bookie that cannot be reached, or does not answer, counts as one without the entry.",
        (
            Edit(
                ERRORS,
                "ErrorCode.is_negative",
                "(ErrorCode.NO_SUCH_ENTRY, ErrorCode.NO_SUCH_LEDGER)",
                "(\n"
                "            ErrorCode.NO_SUCH_ENTRY,\n"
                "            ErrorCode.NO_SUCH_LEDGER,\n"
                "            ErrorCode.BOOKIE_UNAVAILABLE,\n"
                "            ErrorCode.REQUEST_TIMEOUT,\n"
                "        )",
            ),
        ),
    ),
    Mutant(
        "damage-is-no",
        "PROTOCOL.md rule 7",
        "A bookie whose copy is damaged or cannot be read counts as one without the entry.",
        (
            Edit(
                ERRORS,
                "ErrorCode.is_negative",
                "(ErrorCode.NO_SUCH_ENTRY, ErrorCode.NO_SUCH_LEDGER)",
                "(\n"
                "            ErrorCode.NO_SUCH_ENTRY,\n"
                "            ErrorCode.NO_SUCH_LEDGER,\n"
                "            ErrorCode.CORRUPT,\n"
                "            ErrorCode.STORAGE_FAILED,\n"
                "        )",
            ),
        ),
    ),
    Mutant(
        "limbo-is-no",
        "PROTOCOL.md rule 10; BP-46",
        "A bookie that has lost its disk counts as one that never had the entry.",
        (
            Edit(
                ERRORS,
                "ErrorCode.is_negative",
                "(ErrorCode.NO_SUCH_ENTRY, ErrorCode.NO_SUCH_LEDGER)",
                "(\n"
                "            ErrorCode.NO_SUCH_ENTRY,\n"
                "            ErrorCode.NO_SUCH_LEDGER,\n"
                "            ErrorCode.LEDGER_IN_LIMBO,\n"
                "        )",
            ),
        ),
    ),
)

CLOSING = (
    Mutant(
        "recoverer-closes-over-closed",
        "PROTOCOL.md rule 5",
        "A recoverer that comes second puts its own end over the one that stands there.",
        (
            Edit(
                TRANSITIONS,
                "closed_by_recoverer",
                "        return None\n",
                "        base = replace(base, state=LedgerState.IN_RECOVERY)\n",
            ),
        ),
    ),
    Mutant(
        "recovered-ensembles-forgotten",
        "PROTOCOL.md rule 5; BK#4097",
        "The ledger is closed without the ensembles to which its last entries were written again.",
        (
            Edit(
                TRANSITIONS,
                "closed_by_recoverer",
                "recovered = replace(base, fragments=fragments)",
                "recovered = base",
            ),
        ),
    ),
    Mutant(
        # Only together: while the ledger stays open the writer may begin a fragment, which the
        # check of the fragments would find.
        "recovery-not-announced",
        "PROTOCOL.md rule 4",
        "The ledger stays open during its recovery, and the close does not look for fragments.",
        (
            Edit(
                TRANSITIONS,
                "begin_recovery",
                "return base.in_recovery() if base.state is LedgerState.OPEN else None",
                "return None",
            ),
            Edit(
                TRANSITIONS,
                "closed_by_recoverer",
                "if base.fragments != snapshot.fragments:",
                "if base.ledger_id != snapshot.ledger_id:",
            ),
        ),
    ),
)

MUTANTS = (*COVERAGE, *CLOSING)
