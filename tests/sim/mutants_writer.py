"""Wrong writers and wrong metadata: entries acknowledged that are not where metadata says."""

from __future__ import annotations

from mutation import Edit, Mutant

CORE = "fencelog.ledgers.writer_core"
IDS = "fencelog.ledgers.ledger_ids"
STORE = "fencelog.ledgers.ledger_store"
TRANSITIONS = "fencelog.ledgers.transitions"
UPDATE = "fencelog.ledgers.metadata_update"

MUTANTS_OF_METADATA = (
    Mutant(
        "metadata-without-cas",
        "PROTOCOL.md: Metadata",
        "A change of metadata is written whatever stands there.",
        (
            Edit(
                STORE,
                "LedgerStore.update",
                "set(_path(metadata.ledger_id), value, version)",
                "set(_path(metadata.ledger_id), value, -1)",
            ),
        ),
    ),
    Mutant(
        "lost-reply-is-no",
        "PROTOCOL.md: a lost answer is unknown",
        "A change whose answer is lost is taken for one that did not happen.",
        (
            Edit(
                UPDATE,
                "update_metadata",
                "                unresolved = True\n",
                "                raise FencelogError(\n"
                "                    ErrorCode.METADATA_UNAVAILABLE, error.detail\n"
                "                ) from error\n",
            ),
        ),
    ),
    Mutant(
        "id-given-twice",
        "ids are never given twice",
        "Ids that another process took first are taken too, and a ledger that exists is our own.",
        (
            Edit(
                IDS,
                "LedgerIds._reserve",
                "                    await self._create_counter()\n",
                "                    await self._create_counter()\n"
                "                elif error.code is ErrorCode.METADATA_CONFLICT:\n"
                "                    return range(last + 1, last + 1 + BLOCK)\n",
            ),
            Edit(
                STORE,
                "LedgerStore.create.create",
                "if not exists or await self._token(metadata.ledger_id) != metadata.token:",
                "if not exists:",
            ),
        ),
    ),
    Mutant(
        # The recoverer's own check of the fragments would stop it from closing; without both, the
        # close throws away what the writer had acknowledged in its new fragment.
        "ensemble-change-in-recovery",
        "PROTOCOL.md rule 2",
        "The writer changes the ensemble also while somebody recovers the ledger.",
        (
            Edit(
                TRANSITIONS,
                "with_new_ensemble",
                "if base.state is not LedgerState.OPEN:",
                "if base.is_closed:",
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
