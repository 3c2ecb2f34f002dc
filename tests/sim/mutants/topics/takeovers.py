"""Wrong takeovers: ledgers that are closed together with the list, or should be."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

NODE = "fencelog.broker.ledger_list.store"
RUNNER = "fencelog.broker.log.step_runner"
SLOT = "fencelog.broker.partition.partition_slot"
STEPS = "fencelog.broker.log.steps_core"
TAKEOVER = "fencelog.broker.partition.takeover"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "changed-ledger-taken-for-closed",
        "SEMANTICS.md, takeover 6; PROTOCOL.md rule 5",
        "A takeover lists the end that it found of a ledger which was changed meanwhile.",
        (
            Edit(
                NODE,
                "LedgerListStore._set",
                "                        raise LedgerChanged(self.path, error.detail) from error\n",
                "                        also = [new for new in also if not isinstance(new, Set)]\n"
                "                        continue\n",
            ),
        ),
    ),
    Mutant(
        "sealed-and-not-closed",
        "SEMANTICS.md, takeover 6; PROTOCOL.md rule 5",
        "A takeover lists the end that it found of a ledger, and leaves the ledger as it was.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._note",
                "            self._closes.append(end.change)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "clock-behind-a-takeover",
        "SEMANTICS.md, readers: publish times never decrease",
        "A takeover does not learn how late the last messages were: its own clock may be behind.",
        (
            Edit(
                "fencelog.broker.ledger_list.ledger_list",
                "LedgerList.taken_over",
                "last_publish_us=max(self.last_publish_us, newest),",
                "last_publish_us=self.last_publish_us,",
            ),
        ),
    ),
    Mutant(
        "rolled-and-not-closed",
        "SEMANTICS.md, list of ledgers 3; PROTOCOL.md rule 8",
        "A roll marks the drained ledger sealed, and leaves it open.",
        (
            Edit(
                RUNNER,
                "StepRunner._seal",
                "            also = [] if change is None else [change]\n",
                "            also = []\n",
            ),
        ),
    ),
)

RARE: tuple[Mutant, ...] = (
    Mutant(
        # No history restores a backup of the metadata.
        "list-believed-against-the-metadata",
        "SEMANTICS.md, takeover 2",
        "The list says how long a ledger without copies is, whatever the metadata says.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._find_end",
                "if end.metadata.last_entry_id != sealed.entries - 1:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "closed-while-appends-are-in-flight",
        "SEMANTICS.md, when a broker fails, graceful shutdown",
        "A log that is closed does not wait for appends in flight: their outcome is unknown.",
        (
            Edit(
                "fencelog.broker.log.log_writer",
                "LogWriter.close",
                "        if self._core.state is not LogState.LOST:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "takes-over-without-its-node",
        "SEMANTICS.md, takeover 6",
        "A takeover that is committed leaves the node of the partition's owner as it was.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._write_list",
                "*self._closes, *self._claim]",
                "*self._closes]",
            ),
        ),
    ),
    Mutant(
        "a-refused-seal-is-done",
        "SEMANTICS.md, list of ledgers 3",
        "A roll is over although its last change was refused: the ledger is neither closed nor "
        "sealed.",
        (
            Edit(
                STEPS,
                "LogSteps.step_failed",
                "                return self._do(CloseLedger(ledger_id))\n",
                "                self._rest()\n                return []\n",
            ),
        ),
    ),
    Mutant(
        "owner-read-before-the-list",
        "SEMANTICS.md, takeover 1",
        "A takeover reads the list after it has found no owner: it may fence the winner's ledger.",
        (
            Edit(
                SLOT,
                "PartitionSlot._take_over",
                "        node = await services.topics.open_ledger_list("
                "self.info, self.partition)\n",
                "        claim = await self._owner.claiming()\n"
                "        node = await services.topics.open_ledger_list("
                "self.info, self.partition)\n",
            ),
            Edit(
                SLOT,
                "PartitionSlot._take_over",
                "behind the store's server is.\n        claim = await self._owner.claiming()\n",
                "behind the store's server is.\n",
            ),
        ),
    ),
    Mutant(
        "lost-close-is-a-refusal",
        "SEMANTICS.md, takeover 6",
        "A close before the list counts as another client's change if its answer is lost.",
        (
            Edit(
                NODE,
                "LedgerListStore._set_alone",
                "if node is not None and node.value == change.value:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "a-refusal-after-a-lost-answer",
        "SEMANTICS.md, list of ledgers 2; I4",
        "A change of the list was not made, as its second attempt is refused by the store.",
        (Edit(NODE, "LedgerListStore._set", "may_be_made = True", "may_be_made = False"),),
    ),
    Mutant(
        "a-refusal-after-a-lost-close",
        "SEMANTICS.md, list of ledgers 2; I4",
        "A close before the list was not made, as its second attempt is refused by the store.",
        (Edit(NODE, "LedgerListStore._set_alone", "may_be_made = True", "may_be_made = False"),),
    ),
    Mutant(
        "a-roll-releases-the-partition",
        "SEMANTICS.md, when a broker fails, graceful shutdown",
        "The node of the owner goes with any ledger that is closed, before the log is closed.",
        (
            Edit(
                RUNNER,
                "StepRunner._seal",
                "            if self._core.state is LogState.CLOSING:\n",
                "            if True:\n",
            ),
        ),
    ),
)
"""Mutants whose damage no invariant shows: an owner that is disturbed repairs its log, and one that
finds no node of its own creates it."""
