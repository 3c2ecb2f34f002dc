"""Wrong replication workers: they name bookies without copies, or undo what others have written."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

BOOT = "fencelog.bookie.engine.boot"
COPIES = "fencelog.bookie.repair.copies"
CORE = "fencelog.bookie.replication.core"
GARBAGE = "fencelog.bookie.gc.ledgers"
OPEN = "fencelog.bookie.replication.open_ledgers"
READER = "fencelog.ledgers.reader.reader"
REPAIR = "fencelog.bookie.replication.repair"
TRANSITIONS = "fencelog.ledgers.ledger_metadata.transitions"

RULE = "PROTOCOL.md rule 11"

_ANY_END = Edit(
    TRANSITIONS,
    "with_replaced_bookie",
    "if (is_last and not base.is_closed) or end != last_entry_id or index >= len(bookies):",
    "if index >= len(bookies):",
)
"""The change of a fragment whatever entries it has: the second guard of its end."""

LISTED_EARLY = Edit(
    "fencelog.bookie.engine.entry_list",
    "list_entries",
    "if are_cached:",
    "if are_cached and from_entry < 0:",
)
"""The list of what is in the cache, synced or not."""

_COPY = (
    "            await self._copy(metadata, wanted, step.fragment, target, incarnation, "
    "step.bookie_id)\n"
)
_COMPARE = "            await self._compare(wanted, step.fragment, target, incarnation)\n"

MUTANTS = (
    Mutant(
        "open-last-fragment-copied",
        RULE,
        "The last fragment of an open ledger is copied up to what is there, without a recovery.",
        (
            Edit(
                CORE,
                "closed_fragments",
                "    if metadata.is_closed:\n",
                "    if not metadata.is_closed:\n"
                "        first = metadata.last_fragment.first_entry_id\n"
                "        yield ClosedFragment(first, first, metadata.last_fragment.bookies)\n"
                "    if metadata.is_closed:\n",
            ),
            _ANY_END,
        ),
    ),
    Mutant(
        "metadata-not-read-again",
        RULE,
        "The metadata that was read before the copying is written over what others wrote since.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._move",
                "            await self._commit(step, target)\n",
                "            _, version = await self._tools.ledgers.get(self._id)\n"
                "            await self._tools.ledgers.update(wanted, version)\n",
            ),
        ),
    ),
    Mutant(
        "ensemble-change-undone",
        RULE,
        "The fragments that were read before the copying are written over those of an ensemble "
        "change.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._move",
                "            await self._commit(step, target)\n",
                "            latest, version = await self._tools.ledgers.get(self._id)\n"
                "            latest = __import__('dataclasses').replace(\n"
                "                latest, fragments=wanted.fragments)\n"
                "            await self._tools.ledgers.update(latest, version)\n",
            ),
        ),
    ),
    Mutant(
        "unavailable-is-missing",
        f"{RULE}; unknown is not no",
        "A bookie that cannot be asked for its entries is replaced as if it lacked them.",
        (
            Edit(
                CORE,
                "_needed",
                "    if Cause.LOST_BOOKIE in causes and not _is_back(",
                "    if causes and not _is_back(",
            ),
        ),
    ),
    Mutant(
        "replaced-by-a-member",
        RULE,
        "A bookie that is in the fragment takes the place of another one.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._target_ensemble",
                "        replace = (\n",
                "        members = list(step.fragment.bookies)\n"
                "        if len(members) > 1 and self._id % 2:\n"
                "            members[step.index] = members[step.index - 1]\n"
                "            return tuple(members)\n"
                "        replace = (\n",
            ),
            Edit(TRANSITIONS, "with_replaced_bookie", " or new in bookies:", ":"),
        ),
    ),
    Mutant(
        "copied-without-a-digest",
        RULE,
        "Copies are stored as they come, without a look at their digests.",
        (
            Edit(
                COPIES,
                "Copies._ask",
                "        verify_reply(reply, metadata, entry_id, bookie_id=bookie_id, "
                "key=self._key)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "rows-copied-without-a-digest",
        RULE,
        "Copies of several ranges are stored as they come, without a look at their digests.",
        (
            Edit(
                COPIES,
                "Copies._ask_for_ranges",
                "            verify_reply(\n"
                "                ReadReply(NO_LAC, run), metadata, first, bookie_id=bookie_id, "
                "key=self._key\n"
                "            )\n",
                "",
            ),
        ),
    ),
    Mutant(
        "named-before-copied",
        RULE,
        "The metadata names the target first, and it gets the entries afterwards.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._move",
                "        try:\n" + _COPY + _COMPARE,
                "        await self._commit(step, target)\n        try:\n" + _COPY + _COMPARE,
            ),
        ),
    ),
    Mutant(
        "named-before-durable",
        RULE,
        "The target has its copies in memory when the metadata names it.",
        (
            Edit(
                "fencelog.bookie.repair.copier",
                "EntryCopier.copy",
                "            await adds.settle()\n",
                "",
            ),
            LISTED_EARLY,
        ),
    ),
    Mutant(
        "listed-before-durable",
        RULE,
        "A bookie lists copies that a worker which has died since has left in its memory.",
        (LISTED_EARLY,),
    ),
    Mutant(
        "not-compared-after-copying",
        RULE,
        "An entry of which there is no copy is left out, and the target denies it.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._copy",
                "        if lost:\n            raise all_lost(lost)\n",
                "",
            ),
            Edit(REPAIR, "LedgerRepair._compare", "if missing is not None:", "if False:"),
            Edit(
                "fencelog.bookie.repair.copier",
                "EntryCopier._copy_range",
                "                lost.append(missing)\n"
                "                if missing.reason is MissingReason.UNREACHED or "
                "len(lost) > MAX_LOST_ENTRIES_NOTED:\n"
                "                    raise\n",
                "                lost.append(missing)\n",
            ),
        ),
    ),
    Mutant(
        "boot-fences-open-ledgers",
        f"{RULE}; PROTOCOL.md rule 10",
        "A new bookie fences a marked ledger that is open, and so ends the writer that chooses it.",
        (Edit(BOOT, "fence_before_serving", "metadata.is_closed and metadata", "metadata"),),
    ),
    Mutant(
        "copied-by-the-old-ensemble",
        RULE,
        "The target gets what the metadata assigns to it before the change: nothing.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._move",
                "        wanted = moved(metadata, step, target)\n",
                "        wanted = metadata\n",
            ),
        ),
    ),
    Mutant(
        "first-fragment-alone",
        RULE,
        "A ledger is taken for repaired when its lost bookie is replaced in one fragment.",
        (
            Edit(
                CORE,
                "plan_repair",
                "        for fragment in fragments:\n",
                "        for fragment in fragments[:1]:\n",
            ),
        ),
    ),
    Mutant(
        "recovering-is-repaired",
        "MAINTENANCE.md: re-replication",
        "A ledger that is being recovered, of which nothing is compared, loses its mark.",
        (
            Edit(
                CORE,
                "_needs_close",
                "    if metadata.state is LedgerState.IN_RECOVERY:\n",
                "    if metadata.state is not LedgerState.OPEN and not mark.missing:\n",
            ),
        ),
    ),
    Mutant(
        "changed-during-a-recovery",
        RULE,
        "Fragments change under a recoverer, whose close expects them as they were.",
        (
            Edit(
                CORE,
                "closed_fragments",
                "metadata.state is LedgerState.IN_RECOVERY",
                "metadata.ledger_id < 0",
            ),
            Edit(
                TRANSITIONS,
                "with_replaced_bookie",
                "base.state is LedgerState.IN_RECOVERY or ",
                "",
            ),
        ),
    ),
    Mutant(
        "marked-ledgers-collected",
        "MAINTENANCE.md: garbage collection",
        "A bookie collects copies that a worker has made, before the metadata names it.",
        (
            Edit(
                GARBAGE,
                "LedgerGarbage._remove_over_replicated",
                "if await has_node(self._metadata.store, MARKS_PATH, ledger_id):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "writer-ended-at-once",
        RULE,
        "The writer of an open ledger is ended without a grace time.",
        (
            Edit(
                OPEN,
                "OpenLedgers.close",
                "if now - sign.since_s < self._grace_s:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "writer-ended-for-nothing",
        RULE,
        "The writer of an open ledger is ended where there is no bookie to copy to.",
        (
            Edit(
                OPEN,
                "OpenLedgers.close",
                "if metadata.state is LedgerState.OPEN:",
                "if metadata.ledger_id < 0:",
            ),
        ),
    ),
)

RARE = (
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
        # It has to be registered, and not to answer: one that is not registered is not back.
        "empty-fragments-forgotten",
        RULE,
        "A bookie is not asked where it has no entries, and stays in the metadata for ever.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._list",
                "        while True:\n",
                "        if first > last:\n"
                "            return BookieEntries(Availability(), False)\n"
                "        while True:\n",
            ),
        ),
    ),
    Mutant(
        "any-end-of-a-fragment",
        RULE,
        "A bookie is replaced in a fragment that has other entries than were copied.",
        (_ANY_END,),
    ),
    Mutant(
        "boot-forgets-marks",
        f"{RULE}; PROTOCOL.md rule 10",
        "A bookie that lost its disk denies what a worker had copied to it and is about to name.",
        (Edit(BOOT, "fence_before_serving", " or is_copied", ""),),
    ),
)
"""Mutants that a second guard makes rare: a test of the part has to detect them."""
