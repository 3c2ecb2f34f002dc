"""Wrong takeovers: ledgers that are closed together with the list, or should be."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

NODE = "fencelog.broker.ledger_list.store"
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
                "_Takeover._find_end",
                "            self._closes.append(change)\n",
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
)
