"""Wrong replication workers that histories hardly ever meet: unit tests judge them."""

from __future__ import annotations

from tests.sim.mutants.healing.replication import ANY_END, BOOT, GARBAGE, READER, REPAIR, RULE
from tests.sim.mutants.mutation import Edit, Mutant

RARE = (
    Mutant(
        # The metadata has to be away just when a target has lost its disk.
        "unproven-target-forgotten",
        RULE,
        "A target that was named, and could not be marked, counts as one that has its copies.",
        (
            Edit(
                "fencelog.bookie.replication.worker",
                "ReplicationWorker.check",
                "        await self._tools.mark_unproven()\n",
                "",
            ),
        ),
    ),
    Mutant(
        # The worker has to name this bookie and remove the mark between two requests.
        "collected-when-just-named",
        "MAINTENANCE.md: garbage collection",
        "A bookie collects copies for which a worker has just named it.",
        (
            Edit(
                GARBAGE,
                "LedgerGarbage._remove_over_replicated",
                "        if not await self._is_held_by_others(ledger_id):\n"
                "            return False\n"
                "        await",
                "        await",
            ),
        ),
    ),
    Mutant(
        # Marks that are newer than what the worker's server shows are those of a lost bookie, which
        # the auditor makes again.
        "repaired-by-a-lagging-server",
        RULE,
        "A ledger lacks nothing by metadata that is older than its mark.",
        (
            Edit(
                REPAIR,
                "LedgerRepair.run",
                "self._tools.ledgers.get_latest(self._id)",
                "self._tools.ledgers.get(self._id)",
            ),
        ),
    ),
    Mutant(
        # The target's garbage has to be collected between the copies and the change.
        "replaced-without-a-mark",
        RULE,
        "A bookie is named for copies that its garbage collector may take.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._commit",
                "if await self._tools.marks.get(self._id) is None:",
                "if await self._tools.marks.get(self._id) is None and self._attempts < 0:",
            ),
        ),
    ),
    Mutant(
        "any-incarnation-of-the-target",
        f"{RULE}; PROTOCOL.md rule 10",
        "A target that loses its disk amid the copying is named, and denies what it was given.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._move",
                "incarnation = self._tools.bookies.describe(target).incarnation",
                "incarnation = None",
            ),
            Edit(
                REPAIR,
                "LedgerRepair._compare",
                "        held = await self._list(target, fragment.first, fragment.last, "
                "incarnation)\n",
                "        return\n"
                "        held = await self._list(target, fragment.first, fragment.last, "
                "incarnation)\n",
            ),
            Edit(BOOT, "fence_before_serving", " or is_copied", ""),
        ),
    ),
    Mutant(
        "denied-by-outdated-metadata",
        f"{RULE}; PROTOCOL.md rule 7",
        "Bookies that were replaced deny an entry, and the reader passes that on.",
        (
            Edit(
                READER,
                "LedgerReader._is_outdated",
                "                self.update((await self._source.get_latest(used.ledger_id))[0])\n",
                "                await self._look()\n",
            ),
        ),
    ),
    Mutant(
        "any-end-of-a-fragment",
        RULE,
        "A bookie is replaced in a fragment that has other entries than were copied.",
        (ANY_END,),
    ),
    Mutant(
        "boot-forgets-marks",
        f"{RULE}; PROTOCOL.md rule 10",
        "A bookie that lost its disk denies what a worker had copied to it and is about to name.",
        (Edit(BOOT, "fence_before_serving", " or is_copied", ""),),
    ),
)
"""Mutants that a second guard makes rare: a test of the part has to detect them."""
