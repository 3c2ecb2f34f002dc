"""Wrong storage engines: they lose on the way what they move, or believe too early that something
was repaired.

Which file is synced before which, the crash images see (``tests/crash/mutants.py``): here the
power would have to fail in the one millisecond that matters.
"""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ADDS = "fencelog.bookie.engine.adds"
CLAIM = "fencelog.bookie.identity.claim"
COMPACTION = "fencelog.bookie.storage.compaction"
COPIES = "fencelog.bookie.repair.copier"
DAMAGE = "fencelog.bookie.repair.damage"
FILES = "fencelog.bookie.gc.files"
FLUSH = "fencelog.bookie.storage.flush"
INDEX = "fencelog.bookie.storage.index"
INTEGRITY = "fencelog.bookie.repair.integrity"
STORAGE = "fencelog.bookie.storage.storage"

NOT_FLUSHED = (
    Mutant(
        "many-adds-not-flushed",
        "STORAGE.md: flush",
        "Adds that come together do not mark the states of their ledgers as changed: after the "
        "next start a ledger ends where it ended before them.",
        (
            Edit(
                ADDS,
                "Adds.add_many",
                "            states.changed(ledger_id)\n",
                "",
            ),
        ),
    ),
)

FILES_THAT_GO = (
    Mutant(
        "live-log-removed",
        "MAINTENANCE.md: entry logs",
        "An entry log goes when most of it is dead.",
        (
            Edit(
                "fencelog.bookie.gc.core",
                "dead_files",
                "if not file.live_bytes",
                "if not file.live_bytes or file.share < 0.5",
            ),
        ),
    ),
    Mutant(
        "removed-before-the-index",
        "MAINTENANCE.md: compaction",
        "Old entry logs go before the index points to the new one.",
        (
            Edit(
                FILES,
                "FileGarbage._finish",
                "        try:\n",
                "        await self._remove({old.file_id for old, _ in new.moves})\n        try:\n",
            ),
        ),
    ),
    Mutant(
        "compacted-not-synced",
        "MAINTENANCE.md: compaction",
        "The index points to copies that are not synced yet, and the originals go.",
        (
            Edit(
                COMPACTION,
                "EntryLogCompaction.finish",
                "        self._log.seal()\n",
                "        from types import SimpleNamespace\n"
                "        file = self._log._file\n"
                "        self._log._file = SimpleNamespace(\n"
                "            write=file.write, sync=lambda: None, close=file.close\n"
                "        )\n"
                "        self._log.seal()\n",
            ),
        ),
    ),
    Mutant(
        "compacted-name-not-synced",
        "MAINTENANCE.md: compaction",
        "The index points to a file whose name a power loss takes back.",
        (
            Edit(
                COMPACTION,
                "EntryLogCompaction.finish",
                "        self._place.disk.sync_directory(directory)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "journals-stay",
        "STORAGE.md: checkpoint",
        "Journal files before the checkpoint are kept.",
        (
            Edit(
                STORAGE,
                "Storage.write_checkpoint",
                "if file_id < position.file_id:",
                "if file_id < 0:",
            ),
        ),
    ),
    Mutant(
        "flush-dropped-without-room",
        "MAINTENANCE.md: full disks",
        "A flush that finds no space is dropped, and the next one takes its place.",
        (
            Edit(
                FLUSH,
                "Flusher._carry_out",
                "        await self._space.wait()\n",
                "        if not self._space.is_set():\n"
                "            self._cache.release()\n"
                "            self._begun = None\n"
                "            return\n",
            ),
        ),
    ),
)

DECAYED_HEADERS = (
    Mutant(
        "replaced-behind-the-damage",
        "MAINTENANCE.md: scrubbing",
        "Replacements are written to the file whose header is damaged, if it is the newest one.",
        (
            Edit(
                DAMAGE,
                "DamagedRuns.add",
                "        self._files[self._bookie.shard(run.ledger_id), run.file_id] = None\n",
                "",
            ),
        ),
    ),
)
"""The header of the newest entry log has to decay, which is some bytes of many, and the file has to
stay the newest one: a test of the scrubber sees it."""

ACROSS_THE_END = (
    Mutant(
        "rest-behind-the-end-stays",
        "MAINTENANCE.md: scrubbing",
        "A run that is replaced up to the end of its ledger stays in the index beside the new one.",
        (
            Edit(
                INDEX,
                "Index._with_last_run",
                "            last = following.last_entry_id\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "run-across-the-end-stays-damaged",
        "MAINTENANCE.md: scrubbing",
        "A damaged run waits for copies of entries behind the end of its ledger.",
        (
            Edit(
                DAMAGE,
                "DamagedRuns._replace",
                "min(entries[1], metadata.last_entry_id)",
                "entries[1]",
            ),
        ),
    ),
)
"""A run has to go on behind the end of its ledger, and to rot: one history in thousands."""

REPAIRS = (
    Mutant(
        "repaired-without-a-copy",
        "PROTOCOL.md rule 10; BP-46",
        "A closed ledger leaves limbo before its entries were copied.",
        (
            Edit(
                INTEGRITY,
                "Integrity._end_limbo",
                "                    await self._missing.copy(metadata)\n",
                "                    pass\n",
            ),
        ),
    ),
    Mutant(
        "unanswered-is-no",
        "PROTOCOL.md rules 7 and 10",
        "A peer that cannot be asked has nothing: the ledger leaves limbo without its entries.",
        (
            Edit(
                COPIES,
                "EntryCopier._copy_range",
                "                lost.append(missing)\n"
                "                if missing.reason is MissingReason.UNREACHED or "
                "len(lost) > MAX_LOST_ENTRIES_NOTED:\n",
                "                if missing.reason is not MissingReason.UNREACHED:\n"
                "                    lost.append(missing)\n"
                "                if len(lost) > MAX_LOST_ENTRIES_NOTED:\n",
            ),
        ),
    ),
    Mutant(
        "replacement-not-stored",
        "MAINTENANCE.md: scrubbing",
        "A flush takes damaged runs out of the index, and their replacements are not in it.",
        (
            Edit(
                STORAGE,
                "Storage.store",
                "        stored = self._log.append(flushed.runs.in_order())\n",
                "        replaced = [entries for _, entries in flushed.runs.replaced]\n"
                "        stored = [\n"
                "            run\n"
                "            for run in self._log.append(flushed.runs.in_order())\n"
                "            if (run.first_entry_id, run.last_entry_id) not in replaced\n"
                "        ]\n",
            ),
        ),
    ),
    Mutant(
        "remade-directory-is-ready",
        "PROTOCOL.md rule 10; BP-46",
        "A directory that was lost and made anew counts as one that remembers.",
        (
            Edit(
                CLAIM,
                "claim_directories",
                "directory.set_state(identity, State.FORGOT)",
                "directory.set_state(identity, State.READY)",
            ),
        ),
    ),
    Mutant(
        "own-identity-is-believed",
        "STORAGE.md: cookies",
        "A bookie starts without asking whether the metadata store is that of its cluster.",
        (
            Edit(
                CLAIM,
                "claim_directories",
                "if registry else _believed(found)",
                "if registry and found.identity is None else _believed(found)",
            ),
        ),
    ),
)

MUTANTS = (*NOT_FLUSHED, *FILES_THAT_GO, *REPAIRS)
