"""Wrong bookies that one history in thousands shows, or none: unit tests detect them."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ADDS = "fencelog.bookie.engine.adds"
DEDUP = "fencelog.bookie.engine.recovery_add_dedup"
FENCES = "fencelog.bookie.engine.fences"

RARE: tuple[Mutant, ...] = (
    Mutant(
        # Without a synced journal, a recovery has to write to a bookie that fenced the ledger, and
        # its power has to fail.
        "limbo-not-set-where-fenced",
        "PROTOCOL.md rule 10; BP-46",
        "A ledger that a bookie knows to be fenced does not enter limbo.",
        (
            Edit(
                FENCES,
                "Fences.put_in_limbo",
                "if known is not None and known.deleted:",
                "if known is not None and known.fenced:",
            ),
        ),
    ),
    Mutant(
        "lac-of-an-add-told-early",
        "a bookie's LAC never goes back",
        "The LAC that an add carries is told before the add is durable.",
        (
            Edit(
                ADDS,
                "Adds.remember",
                "sequence = self._journal.position.sequence if self._journal_runs else 0",
                "sequence = 0",
            ),
        ),
    ),
    Mutant(
        # A ledger has to be copied back to a bookie within the flush that removes it there.
        "added-amid-a-removal",
        "MAINTENANCE.md: garbage collection",
        "An add is taken, and goes with the flush that removes its ledger.",
        (
            Edit(
                ADDS,
                "Adds._admit",
                "if state is not None and state.removing:",
                "if state is not None and state.removing and ledger_id < 0:",
            ),
        ),
    ),
    Mutant(
        "looked-up-across-a-flush",
        "STORAGE.md: overlaps",
        "An entry that a flush moves during the look-up is found nowhere, and stored again.",
        (
            Edit(
                DEDUP,
                "RecoveryAddDedup._missing",
                "if self._generation() == before:",
                "if self._generation() >= before:",
            ),
        ),
    ),
    Mutant(
        # Several pieces of one add have to be in different groups of the journal.
        "first-piece-answers-for-all",
        "STORAGE.md: overlaps",
        "An add of which several pieces are missing is answered when the first one is durable.",
        (
            Edit(
                DEDUP,
                "RecoveryAddDedup._store_missing",
                "== missing[-1]",
                "== missing[0]",
            ),
        ),
    ),
)
