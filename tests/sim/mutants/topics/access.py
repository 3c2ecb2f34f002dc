"""Wrong brokers: who may append, forgotten or told too early; views that lack something."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ACCESS = "fencelog.broker.append.access_changes"
CONDITIONAL = "fencelog.broker.append.conditional_appends"
LEDGER_LIST = "fencelog.broker.ledger_list.ledger_list"
COMPACTION_CORE = "fencelog.broker.compaction.core"
PRODUCER_ACCESS = "fencelog.broker.append.producer_access"
RETENTION_CORE = "fencelog.broker.log.retention_core"

COMPACTED = (
    Mutant(
        "retention-before-the-view",
        "SEMANTICS.md, the compacted view",
        "Retention takes what the compacted view does not have yet.",
        (
            Edit(
                RETENTION_CORE,
                "_is_compacted",
                "policy.compaction_ms is None or end_offset <= horizon",
                "True",
            ),
        ),
    ),
    Mutant(
        "view-lost-at-a-takeover",
        "SEMANTICS.md, the compacted view",
        "A takeover begins without the view, and the next one has what the log still has.",
        (
            Edit(
                LEDGER_LIST,
                "LedgerList.taken_over",
                "                owner=owner,\n",
                "                owner=owner,\n                compacted=None,\n",
            ),
        ),
    ),
    Mutant(
        "view-without-the-former",
        "SEMANTICS.md, the compacted view",
        "A new view holds what is new, and of the previous one what has no key.",
        (
            Edit(
                COMPACTION_CORE,
                "NewestOffsets.keeps_previous",
                "return _digest(message.key) not in self._newest",
                "return False",
            ),
        ),
    ),
    Mutant(
        "view-with-old-and-new",
        "SEMANTICS.md, the compacted view",
        "What the previous view holds of a key stays beside the newer message.",
        (
            Edit(
                COMPACTION_CORE,
                "NewestOffsets.keeps_previous",
                "return _digest(message.key) not in self._newest",
                "return True",
            ),
        ),
    ),
    Mutant(
        "removal-not-shown",
        "SEMANTICS.md, the compacted view",
        "What removes a key does not come into the view itself.",
        (
            Edit(
                COMPACTION_CORE,
                "NewestOffsets.keeps",
                "return message.key is None or",
                "return message.key is None or bool(message.value) and",
            ),
        ),
    ),
    Mutant(
        "removal-stays-for-good",
        "SEMANTICS.md, the compacted view",
        "What removes a key stays in the view until something newer comes.",
        (
            Edit(
                COMPACTION_CORE,
                "NewestOffsets.keeps_previous",
                "if not message.value and offset < self._tombstones_from:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "removal-removes-nothing",
        "SEMANTICS.md, the compacted view",
        "A removal stands beside the message that it removes, as if it had no key.",
        (
            Edit(
                COMPACTION_CORE,
                "NewestOffsets.add",
                "if message.key is None:",
                "if message.key is None or not message.value:",
            ),
            Edit(
                COMPACTION_CORE,
                "NewestOffsets.keeps",
                "return message.key is None or",
                "return message.key is None or not message.value or",
            ),
        ),
    ),
)

ALLOWED = (
    Mutant(
        "claim-confirmed-early",
        "SEMANTICS.md, who may append",
        "A claim is answered before the state log has it.",
        (
            Edit(
                ACCESS,
                "AccessChanges._carry_out",
                "                await self._state_log.settled(recorded)\n",
                "                pass\n",
            ),
        ),
    ),
    Mutant(
        "claims-forgotten-by-snapshots",
        "SEMANTICS.md, who may append",
        "A snapshot of the state does not say who holds the partition.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access.snapshot",
                "        if self.holder is not None:\n"
                '            yield ["claimed", *self.holder]\n',
                "",
            ),
        ),
    ),
    Mutant(
        "claim-without-settling",
        "SEMANTICS.md, who may append",
        "Appends that wait while a claim is made are judged by what was before it.",
        (
            Edit(
                ACCESS,
                "AccessChanges._carry_out",
                "                await self._appends.drain()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "epoch-given-twice",
        "SEMANTICS.md, who may append",
        "A claim gives the epoch after the one that the producer has appended with.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access.claim",
                "max(self._given_epoch, seen_epoch) + 1",
                "seen_epoch + 2",
            ),
        ),
    ),
    Mutant(
        "former-holder-comes-back",
        "SEMANTICS.md, who may append",
        "Who held the partition before a claim may append again after the release.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access.apply",
                "if self.holder is not None and self.holder.producer_id != producer_id:",
                "if False:",
            ),
            Edit(
                PRODUCER_ACCESS,
                "Access.apply",
                "self._raise_lowest(producer_id, epoch)\n                self.holder",
                "self.holder",
            ),
        ),
    ),
    Mutant(
        "token-not-compared",
        "SEMANTICS.md, who may append",
        "Whoever names a fencing token may append, whichever it is.",
        (
            Edit(
                PRODUCER_ACCESS,
                "Access.check",
                "if conditions.fencing_token != self.token:",
                "if conditions.fencing_token is None and self.token is not None:",
            ),
        ),
    ),
)

UNAWARE = (
    Mutant(
        "shut-out-by-who-was-replaced",
        "SEMANTICS.md, who may append",
        "An append is refused for its token or claim without a look at the list of ledgers.",
        (
            Edit(
                CONDITIONAL,
                "_may_be_outdated",
                "ErrorCode.PRODUCER_BUSY | ErrorCode.BAD_REQUEST:",
                "ErrorCode.BAD_REQUEST:",
            ),
            Edit(
                CONDITIONAL,
                "_may_be_outdated",
                'sequences is not None and sequences.epoch > error.extra["epoch"]',
                "False",
            ),
            Edit(
                CONDITIONAL,
                "_may_be_outdated",
                "return tail is None or (offset is not None and offset > tail)",
                "return tail is not None and offset is not None and offset > tail",
            ),
        ),
    ),
)
"""Seen in histories in which an owner is asked that does not know that it was replaced."""

OUTDATED = (
    Mutant(
        "change-refused-by-who-was-replaced",
        "SEMANTICS.md, who may append",
        "A change of who may append is refused without a look at the list of ledgers.",
        (
            Edit(
                ACCESS,
                "AccessChanges._change",
                "raise await self._appends.confirmed(error) from error",
                "raise",
            ),
        ),
    ),
)
"""An owner has to be replaced unawares, and asked for a change that its successor may make: a
test of the part detects it."""

MUTANTS: tuple[Mutant, ...] = (*COMPACTED, *ALLOWED, *UNAWARE)
"""Seen in histories of administration."""
