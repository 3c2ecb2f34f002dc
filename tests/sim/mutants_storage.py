"""Wrong storage engines: they collect what is not garbage, lose on the way what they move, or believe
too early that something was repaired."""

from __future__ import annotations

from mutation import Edit, Mutant

ADDS = "fencelog.bookie.adds"
CLAIM = "fencelog.bookie.claim"
COMPACTION = "fencelog.bookie.compaction"
COPIES = "fencelog.bookie.integrity_missing"
FENCES = "fencelog.bookie.fences"
FILES = "fencelog.bookie.garbage_files"
FLUSH = "fencelog.bookie.flush"
INSTANCE = "fencelog.ledgers.instance"
INTEGRITY = "fencelog.bookie.integrity"
JOURNAL = "fencelog.bookie.journal"
LEDGERS = "fencelog.bookie.garbage_ledgers"
LEDGER_STORE = "fencelog.ledgers.ledger_store"
SHARD = "fencelog.bookie.shard"
STATE = "fencelog.bookie.ledger_state"
STORAGE = "fencelog.bookie.storage"
WRITER = "fencelog.bookie.journal_writer"

_NOT_LOOKED_UP = Edit(
    LEDGERS,
    "LedgerGarbage._remove_deleted",
    "            await self._ledgers.get(ledger_id)\n",
    '            raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, "not looked up")\n',
)
"""What a listing lacks is removed without another look: the second guard of each rule about
listings."""

LEDGERS_THAT_GO = (
    Mutant(
        "broken-listing-is-whole",
        "STORAGE.md: garbage collection",
        "A listing that breaks off counts as whole: what it did not come to is removed.",
        (
            _NOT_LOOKED_UP,
            Edit(
                LEDGER_STORE,
                "LedgerStore._numbers",
                "            if error.code is ErrorCode.METADATA_NOT_FOUND:\n",
                "            if error.code is not ErrorCode.CORRUPT:\n",
            ),
        ),
    ),
    Mutant(
        "instance-ignored",
        "STORAGE.md: garbage collection",
        "Garbage is collected by any store: an emptied one empties the bookie.",
        (Edit(LEDGERS, "LedgerGarbage._check_instance", "if found != own:", "if found is own:"),),
    ),
    Mutant(
        "stale-listing",
        "STORAGE.md: garbage collection",
        "The listing may come from a server that is behind: a new ledger looks deleted.",
        (
            _NOT_LOOKED_UP,
            Edit(
                LEDGER_STORE,
                "LedgerStore.read_all",
                "await self._catch_up()",
                "self._store.session_id",
            ),
            Edit(INSTANCE, "read_instance", "await catch_up(store)", "store.session_id"),
        ),
    ),
    Mutant(
        "created-during-the-listing",
        "STORAGE.md: garbage collection",
        "What came while the ledgers were listed is compared with that listing.",
        (
            _NOT_LOOKED_UP,
            Edit(
                LEDGERS,
                "LedgerGarbage.collect",
                "        choice = choose_ledgers(\n",
                "        for shard in self._bookie.shards:\n"
                "            for ledger_id, state in shard.states.items():\n"
                "                if not state.deleted and not state.removing:\n"
                "                    local[ledger_id] = state.last_entry >= 0\n"
                "        choice = choose_ledgers(\n",
            ),
        ),
    ),
    Mutant(
        "open-ledger-is-over-replicated",
        "STORAGE.md: over-replicated ledgers",
        "A ledger that is not closed is given up where its last change left this bookie out.",
        (
            Edit(
                "fencelog.bookie.garbage_core",
                "is_over_replicated",
                "return metadata.is_closed and not named",
                "return not named",
            ),
        ),
    ),
    Mutant(
        "given-up-without-limbo",
        "PROTOCOL.md rule 10; STORAGE.md: over-replicated ledgers",
        "A bookie that gave up its copy denies the entries.",
        (
            Edit(
                STATE,
                "LedgerStates.remove",
                "        state.limbo = not state.deleted\n",
                "        state.limbo = False\n",
            ),
        ),
    ),
    Mutant(
        "removal-not-journaled",
        "STORAGE.md: tombstones",
        "A tombstone is kept in memory until the next flush.",
        (
            Edit(
                FENCES,
                "Fences.remove",
                "self._journal.append(kind, ledger_body(ledger_id), "
                "lambda error: _report(state, error))",
                "self._journal.barrier(lambda error: _report(state, error) or kind)",
            ),
        ),
    ),
    Mutant(
        "tombstone-not-flushed",
        "STORAGE.md: tombstones",
        "The index does not say that a ledger was deleted.",
        (
            Edit(
                STATE,
                "LedgerState.encode",
                "        flags |= _DELETED if self.deleted else 0\n",
                "",
            ),
        ),
    ),
    Mutant(
        "tombstone-not-replayed",
        "STORAGE.md: tombstones",
        "A start takes the journal's tombstone for a fence.",
        (
            Edit(
                "fencelog.bookie.control_records",
                "take_back",
                "if record.type in (RecordType.DELETED, RecordType.DROPPED):",
                "if record.type is RecordType.DROPPED:",
            ),
        ),
    ),
    Mutant(
        "deleted-ledger-takes-adds",
        "STORAGE.md: tombstones",
        "A deleted ledger takes the adds of a recovery that sleeps since before.",
        (
            Edit(
                ADDS,
                "Adds._admit",
                "if state is not None and state.deleted:",
                "if state is not None and state.deleted and not recovery:",
            ),
        ),
    ),
    Mutant(
        "cached-runs-stay",
        "STORAGE.md: garbage collection",
        "What is cached of a removed ledger is flushed all the same, and nothing will remove it.",
        (Edit(SHARD, "Shard.remove", "        self.cache.discard(ledger_id)\n", ""),),
    ),
    Mutant(
        "indexed-runs-stay",
        "STORAGE.md: garbage collection",
        "The runs of a removed ledger stay in the index.",
        (Edit(STORAGE, "Storage.store", "removed=flushed.removed", "removed=()"),),
    ),
)

FILES_THAT_GO = (
    Mutant(
        "live-log-removed",
        "STORAGE.md: entry logs",
        "An entry log goes when most of it is dead.",
        (
            Edit(
                "fencelog.bookie.garbage_core",
                "dead_files",
                "if not file.live_bytes",
                "if file.share < 0.5",
            ),
        ),
    ),
    Mutant(
        "index-read-before-the-survey",
        "STORAGE.md: entry logs",
        "An entry log that was sealed after the index was read counts as dead.",
        (
            Edit(
                FILES,
                "FileGarbage._look",
                "        survey = await self._shard",
                "        live = await self._live_bytes()\n        survey = await self._shard",
            ),
            Edit(
                FILES,
                "FileGarbage._look",
                "        live = await self._live_bytes()\n        files = {",
                "        files = {",
            ),
        ),
    ),
    Mutant(
        "removed-before-the-index",
        "STORAGE.md: compaction",
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
        "STORAGE.md: compaction",
        "The index points to copies that are not synced yet, and the originals go.",
        (
            Edit(
                COMPACTION,
                "Compaction.finish",
                "        self._log.seal()\n",
                "        log = self._log\n"
                "        log._file.write(log._buffers, log.size - log._buffered)\n",
            ),
        ),
    ),
    Mutant(
        "compacted-name-not-synced",
        "STORAGE.md: compaction",
        "The index points to a file whose name a power loss takes back.",
        (
            Edit(
                COMPACTION,
                "Compaction.finish",
                "        self._place.disk.sync_directory(directory)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "damage-copied",
        "STORAGE.md: compaction",
        "Compaction copies a damaged run and gives it a valid record.",
        (
            Edit(
                COMPACTION,
                "Compaction.copy",
                "reader.read(run)",
                "self._place.disk.open(self._place.directory / entry_log_name(run.file_id))"
                ".read(run.offset, run.size)",
            ),
        ),
    ),
    Mutant(
        "unfinished-copies-stay",
        "STORAGE.md: compaction",
        "What a process left that died while it copied is never removed.",
        (
            Edit(
                STORAGE,
                "Storage.__init__",
                "        remove_unfinished(self.entry_logs)\n",
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
        "STORAGE.md: full disks",
        "A flush that finds no room is dropped, and the next one takes its place.",
        (
            Edit(
                FLUSH,
                "Flusher._carry_out",
                "        await self._room.wait()\n",
                "        if not self._room.is_set():\n"
                "            self._cache.release()\n"
                "            self._begun = None\n"
                "            return\n",
            ),
        ),
    ),
)

JOURNALS = (
    Mutant(
        "acknowledged-with-the-former-group",
        "STORAGE.md: journal",
        "A sync is taken to cover what was written while it ran.",
        (
            Edit(
                JOURNAL,
                "Journal._answer",
                "        groups, self._syncing = self._syncing, []\n",
                "        groups = [*self._syncing, *self._written]\n"
                "        self._syncing, self._written = [], []\n",
            ),
        ),
    ),
    Mutant(
        "file-left-unsynced",
        "STORAGE.md: journal",
        "A journal file is begun before all of the former one is synced.",
        (
            Edit(
                WRITER,
                "JournalWriter.commit.work",
                "                if finish:\n                    self._open_file.sync()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "durable-is-what-was-written",
        "STORAGE.md: journal",
        "A record calls durable what was only written: its torn tail then counts as damage.",
        (
            Edit(
                JOURNAL,
                "Journal._write_ahead",
                "durable=self._synced_before - 1",
                "durable=group.start.sequence - 1",
            ),
        ),
    ),
)

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
                "MissingEntries._copy_piece",
                "                lost.append(lack)\n"
                "                if lack.lack is Lack.UNREACHED or "
                "len(lost) > MAX_LOST_ENTRIES_NOTED:\n",
                "                if len(lost) > MAX_LOST_ENTRIES_NOTED:\n",
            ),
        ),
    ),
    Mutant(
        "replacement-not-stored",
        "STORAGE.md: scrubber",
        "A flush takes damaged runs out of the index, and their replacements are not in it.",
        (
            Edit(
                STORAGE,
                "Storage.store",
                "        stored = self._log.append(_planned(flushed.runs))\n",
                "        replaced = [entries for _, entries in flushed.runs.replaced]\n"
                "        stored = [\n"
                "            run\n"
                "            for run in self._log.append(_planned(flushed.runs))\n"
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

MUTANTS = (*LEDGERS_THAT_GO, *FILES_THAT_GO, *JOURNALS, *REPAIRS)
