"""Wrong recoveries: they end a ledger too early, or where nobody finds its entries."""

from __future__ import annotations

from tests.sim.mutants.ledgers.fencing import FENCING
from tests.sim.mutants.mutation import Edit, Mutant

CORE = "fencelog.ledgers.recovery.rules"
ERRORS = "fencelog.ledgers.errors"
MACHINE = "fencelog.ledgers.recovery.machine"
QUORUM = "fencelog.ledgers.quorum"
SHELL = "fencelog.ledgers.recovery.recovery"
TRANSITIONS = "fencelog.ledgers.ledger_metadata.transitions"

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
        # Alone this changes nothing: the reads of the first entry that is missing fence its write
        # set before the ledger ends there. So they do not, here.
        (
            Edit(QUORUM, "is_ensemble_covered", "    return all(\n", "    return any(\n"),
            Edit(MACHINE, "RecoveryCore._ask", "fence=True", "fence=False"),
        ),
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

READING = (
    Mutant(
        # Entries are read from their own fragments, which alone would make up for the low start.
        "recovery-below-the-last-fragment",
        "PROTOCOL.md rule 4; BK#2615",
        "Reading begins at the highest LAC that was told, and always in the last ensemble.",
        (
            Edit(
                CORE,
                "FenceRound.start_lac",
                "return max(self.highest_lac, self.above)",
                "return self.highest_lac",
            ),
            Edit(
                CORE,
                "EntryRound.bookies",
                "self.metadata.fragment_of(self.entry_id).bookies",
                "self.metadata.last_fragment.bookies",
            ),
        ),
    ),
    Mutant(
        "recovery-starts-above-the-lac",
        "PROTOCOL.md rule 4",
        "The entry that carries the highest LAC is taken for acknowledged itself.",
        (
            Edit(
                CORE,
                "FenceRound.answer",
                "max(self.highest_lac, lac)",
                "max(self.highest_lac, lac + 1)",
            ),
        ),
    ),
    Mutant(
        "recovery-reads-its-own-ensembles",
        "PROTOCOL.md rule 4",
        "Entries are read from the ensemble that recovery writes to, not the one it began with.",
        (
            Edit(
                MACHINE,
                "RecoveryCore._ask",
                "EntryRound(self._snapshot, ",
                "EntryRound(self.writer.metadata, ",
            ),
        ),
    ),
    Mutant(
        "unknown-is-no",
        "PROTOCOL.md rule 4",
        "Any error of a recovery read counts as a bookie without the entry.",
        (
            Edit(
                CORE,
                "EntryRound.answer",
                "        elif error.code.is_negative:\n"
                "            self.negative[bookie_id] = error\n"
                "        else:\n"
                "            self.unknown[bookie_id] = error\n",
                "        else:\n            self.negative[bookie_id] = error\n",
            ),
        ),
    ),
    Mutant(
        "first-no-ends-the-ledger",
        "PROTOCOL.md rule 4",
        "One bookie without the entry is enough to end the ledger.",
        (
            Edit(
                CORE,
                "EntryRound.verdict",
                "if len(self.negative) >= need:",
                "if self.negative:",
            ),
        ),
    ),
    Mutant(
        "recovery-closes-on-doubt",
        "PROTOCOL.md rule 4",
        "Where nobody has a copy the ledger ends, although some could not be asked.",
        (
            Edit(
                CORE,
                "EntryRound.verdict",
                "return Verdict.NEGATIVE if self.is_given_up else Verdict.UNKNOWN",
                "return Verdict.NEGATIVE",
            ),
        ),
    ),
)

REWRITING = (
    Mutant(
        "recovered-entries-not-rewritten",
        "PROTOCOL.md rule 5",
        "One copy is enough: what was found is not written again.",
        (
            Edit(
                MACHINE,
                "RecoveryCore._rewrite",
                "        return self._passed_on(effects)",
                "        self.writer.lac = self.writer.last_add_pushed\n"
                "        self.writer._pending.clear()\n"
                "        return []",
            ),
        ),
    ),
    Mutant(
        "recovered-entries-carry-the-recoverers-lac",
        "PROTOCOL.md rule 5",
        "Entries are signed again, with the recoverer's own progress as their LAC.",
        (
            Edit(
                MACHINE,
                "RecoveryCore._rewrite",
                "        effects = self.writer.push(copy.run, count",
                "        from fencelog.ledgers.format.run import build_run\n"
                "\n"
                "        first = copy.entries[0]\n"
                "        run = build_run(\n"
                "            first.ledger_id,\n"
                "            first.entry_id,\n"
                "            [bytes(entry.payload) for entry in copy.entries],\n"
                "            lac=self.writer.last_add_pushed,\n"
                "            length_before=first.length - len(first.payload),\n"
                "        )\n"
                "        effects = self.writer.push(run, count",
            ),
        ),
    ),
    Mutant(
        "recovery-commits-ensembles-early",
        "PROTOCOL.md rule 5; seed 001",
        "A recovery that cannot be finished leaves its ensembles in metadata, without the entries.",
        (
            Edit(
                SHELL,
                "recover_with_last",
                "        end = await recovery.run()\n",
                "        try:\n"
                "            end = await recovery.run()\n"
                "        except FencelogError:\n"
                "            from dataclasses import replace\n"
                "\n"
                "            fragments = recovery._core.writer.metadata.fragments\n"
                "            early = replace(base, fragments=fragments)\n"
                "            if early != base:\n"
                "                await ledgers.update(early, version)\n"
                "            raise\n",
            ),
        ),
    ),
    Mutant(
        "recovery-closes-before-it-has-rewritten",
        "PROTOCOL.md rule 5",
        "The ledger is closed at what is durable so far, while recovered entries are on their way.",
        (
            Edit(
                MACHINE,
                "RecoveryCore._finish",
                "if not self._at_end or self.writer.has_pending:",
                "if not self._at_end:",
            ),
        ),
    ),
)

MUTANTS = (*COVERAGE, *FENCING, *READING, *REWRITING, *CLOSING)

LEFT_TO_A_COMMIT = (
    Mutant(
        "rewritten-unannounced",
        "PROTOCOL.md rules 4 and 10",
        "A recovery that writes leaves its ledger open until the close.",
        (
            Edit(
                SHELL,
                "_Recovery.run",
                "self._is_announced = announce is None",
                "self._is_announced = True",
            ),
        ),
    ),
)
"""A bookie has to join by an ensemble change of a takeover's recovery, and lose its disk before the
close."""

ADOPTED = (
    Mutant(
        "last-entry-of-another-end",
        "PROTOCOL.md rule 5",
        "A recovery that adopts the end of another one passes on its own last entry.",
        (
            Edit(
                SHELL,
                "recover_with_last",
                "end.last if is_ours else None",
                "end.last",
            ),
        ),
    ),
)

DELETED = (
    Mutant(
        "tombstone-is-no",
        "PROTOCOL.md rule 4",
        "A bookie that has deleted a ledger counts as one that never had the entry.",
        (
            Edit(
                CORE,
                "EntryRound.answer",
                "elif error.code is ErrorCode.NO_SUCH_LEDGER:",
                "elif self.entry_id < 0:",
            ),
        ),
    ),
    Mutant(
        "tombstone-ends-without-consent",
        "PROTOCOL.md: accepting a loss",
        "A deleted ledger counts as fenced for every recovery.",
        (
            Edit(
                CORE,
                "FenceRound.error",
                "        if self.accepted is not None and",
                "        if error.code is ErrorCode.NO_SUCH_LEDGER:\n"
                "            self.fenced.add(index)\n"
                "        elif self.accepted is not None and",
            ),
        ),
    ),
)
"""Mutants that no history shows, as none restores a backup of the metadata."""
