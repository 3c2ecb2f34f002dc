"""Wrong bookies: they forget, say no where they do not know, or take what they must not."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ADDS = "fencelog.bookie.engine.adds"
BOOKIE = "fencelog.bookie.engine.bookie"
ENTRY_LOG = "fencelog.bookie.storage.entry_log_writer"
ENTRY_LIST = "fencelog.bookie.engine.entry_list"
FENCES = "fencelog.bookie.engine.fences"
FLUSH = "fencelog.bookie.storage.flush"
IO_THREAD = "fencelog.bookie.disk.io_thread"
JOURNAL = "fencelog.bookie.journal.journal"
JOURNAL_FILE = "fencelog.bookie.journal.file"
JOURNAL_WRITER = "fencelog.bookie.journal.writer"
READS = "fencelog.bookie.engine.reads"
REPLAY = "fencelog.bookie.journal.replay"
STATE = "fencelog.bookie.format.ledger_state"

DURABILITY = (
    Mutant(
        "acknowledged-before-the-sync",
        "STORAGE.md: journal; NATS",
        "An add is answered when its record is written, before it is synced.",
        (
            Edit(
                JOURNAL_WRITER,
                "JournalWriter.commit",
                "            if group.sync:\n                self._open_file.sync()\n",
                "",
            ),
            Edit(JOURNAL_FILE, "JournalFile.submit", "sync=group.sync", "sync=False"),
        ),
    ),
    Mutant(
        "acknowledged-before-the-journal",
        "STORAGE.md: journal",
        "An add is answered once it is cached, while its record is only queued.",
        (
            Edit(
                ADDS,
                "Adds._store",
                "append(RecordType.RUN, run, on_reply)",
                "append(RecordType.RUN, run, lambda _error: None)\n"
                "            self._loop.call_soon(on_reply, None)",
            ),
            Edit(
                ADDS,
                "Adds._journal_many",
                "append_many(RecordType.RUN, runs, tokens, on_replies)",
                "append_many(RecordType.RUN, runs, tokens, lambda *_: None)\n"
                "            self._loop.call_soon(on_replies, tokens, None)",
            ),
        ),
    ),
    Mutant(
        "fsync-retried",
        "PROTOCOL.md rule 9; fsyncgate",
        "A failed sync of the journal is tried again, which succeeds without the lost pages.",
        (
            Edit(
                JOURNAL_FILE,
                "JournalFile.sync",
                "        self._file.sync()\n",
                "        try:\n"
                "            self._file.sync()\n"
                "        except OSError:\n"
                "            self._file.sync()\n",
            ),
            Edit(
                IO_THREAD,
                "writing.work",
                "            file.sync()\n",
                "            try:\n"
                "                file.sync()\n"
                "            except OSError:\n"
                "                file.sync()\n",
            ),
        ),
    ),
    Mutant(
        "journal-name-not-synced",
        "STORAGE.md: journal",
        "The name of a new journal file is not durable before its first record is answered.",
        (
            Edit(
                JOURNAL_FILE,
                "JournalFile.__init__",
                "        disk.sync_directory(directory)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "entry-log-not-synced",
        "STORAGE.md: flush",
        "The index names runs, and the journal lets go of them, before their entry log is synced.",
        (
            Edit(
                ENTRY_LOG,
                "EntryLog.sync",
                "\n            self._file.sync()",
                "",
            ),
        ),
    ),
    Mutant(
        # Where the process dies in between, the start refuses (the index is older than the
        # checkpoint): caught as a bookie that a mere crash keeps from starting.
        "checkpoint-before-the-flush",
        "STORAGE.md: flush",
        "The checkpoint moves, and journal files go, before entry log and index have the runs.",
        (
            Edit(
                FLUSH,
                "Flusher._carry_out",
                "            await self._journal.settle(sync=True)\n",
                "            await self._journal.settle(sync=True)\n"
                "            await self._io_thread.run(\n"
                "                lambda: self._storage.write_checkpoint(flushed.position)\n"
                "            )\n",
            ),
        ),
    ),
    Mutant(
        "barrier-does-not-wait",
        "STORAGE.md: journal; rule 6",
        "What others appended counts as durable at once: a second fence, an add of known entries.",
        (
            Edit(
                JOURNAL,
                "Journal.barrier",
                "if self._error is not None or last is None:",
                "if self._error is not None or last is not None or last is None:",
            ),
        ),
    ),
    Mutant(
        "replayed-but-not-synced",
        "STORAGE.md: replay",
        "After a kill, what is only in the page cache counts as durable: a power loss takes it.",
        (Edit(REPLAY, "JournalReplay._open", "if not self._ids:", "if self._ids is None:"),),
    ),
    Mutant(
        "replayed-after-a-failed-sync",
        "PROTOCOL.md rule 9; STORAGE.md: replay",
        "Replay syncs what it found and does not write it again: pages that a sync lost stay lost.",
        (
            Edit(
                REPLAY,
                "_make_durable",
                "    for at in range(first, end, ",
                "    for at in range(end, end, ",
            ),
        ),
    ),
    Mutant(
        "last-unproven-record-alone",
        "PROTOCOL.md rule 9; STORAGE.md: replay",
        "Of the records that nothing proves to have been synced, replay writes the last one again.",
        (
            Edit(
                REPLAY,
                "_make_durable",
                "unproven[0][1] if unproven",
                "unproven[-1][1] if unproven",
            ),
        ),
    ),
    Mutant(
        "replay-skips-a-record",
        "STORAGE.md: replay",
        "Replay leaves out the first record that the index does not have.",
        (
            Edit(
                "fencelog.bookie.engine.opening",
                "replay_journal",
                "if record.sequence < mark:",
                "if record.sequence <= mark:",
            ),
        ),
    ),
    Mutant(
        "journal-damage-is-its-end",
        "PROTOCOL.md rule 7; STORAGE.md: replay",
        "A damaged record ends the journal quietly, although later records prove it was synced.",
        (
            Edit(
                REPLAY,
                "JournalReplay._end_of_file",
                "if found is not None or record is not None:",
                "if record is not None:",
            ),
        ),
    ),
    Mutant(
        "last-entry-forgotten",
        "PROTOCOL.md rule 7",
        "The highest entry of a ledger is not flushed: after a restart it has none.",
        (
            Edit(
                STATE,
                "BookieLedgerState.encode",
                "_ZEROS, self.last_entry, self.lac",
                "_ZEROS, -1, self.lac",
            ),
        ),
    ),
    Mutant(
        # Safe for what is acknowledged (a recovery reads more): caught only by the invariant that
        # a bookie's LAC does not go back.
        "lac-forgotten",
        "a bookie's LAC never goes back",
        "The LAC of a ledger is not flushed: after a restart the bookie names a lower one.",
        (
            Edit(
                STATE,
                "BookieLedgerState.encode",
                "_ZEROS, self.last_entry, self.lac",
                "_ZEROS, self.last_entry, -1",
            ),
        ),
    ),
)

FENCING = (
    Mutant(
        "fence-answered-early",
        "PROTOCOL.md rule 6",
        "A fencing request is answered before the fence is durable.",
        (Edit(FENCES, "Fences.fence", "        return durable\n", "        return None\n"),),
    ),
    Mutant(
        "negatives-do-not-wait-for-the-fence",
        "PROTOCOL.md rule 6",
        "A fencing read of an entry that is not there is answered before the fence is durable.",
        (
            Edit(
                READS,
                "Reads.read",
                "        if fence:\n"
                "            await self._fenced(ledger_id)\n"
                "        state = self.known(ledger_id)\n",
                "        fenced = self._fence(ledger_id) if fence else None\n"
                "        state = self.known(ledger_id)\n"
                "        if fenced is not None and first_entry_id <= state.last_entry:\n"
                "            await fenced\n",
            ),
        ),
    ),
    Mutant(
        "fence-not-journaled",
        "PROTOCOL.md rule 6",
        "A fence is kept in memory until the next flush.",
        (
            Edit(
                FENCES,
                "Fences.fence",
                "self._journal.append(RecordType.FENCE, ledger_body(ledger_id), report)",
                "self._journal.barrier(report)",
            ),
        ),
    ),
    Mutant(
        "fence-not-flushed",
        "PROTOCOL.md rule 6",
        "A flushed state says nothing of the fence, and the journal that does is let go of.",
        (
            Edit(
                STATE,
                "BookieLedgerState.encode",
                "_FENCED if self.fenced else 0",
                "_FENCED if self.limbo else 0",
            ),
        ),
    ),
    Mutant(
        "fenced-ledger-takes-adds",
        "PROTOCOL.md rules 3 and 4",
        "A fenced bookie goes on taking the adds of the old writer.",
        (
            Edit(
                ADDS,
                "Adds._admit",
                "if state is not None and state.fenced and not recovery:",
                "if state is not None and state.fenced and ledger_id < 0:",
            ),
        ),
    ),
    Mutant(
        "held-add-taken-after-the-fence",
        "PROTOCOL.md rules 3 and 4",
        "An add that waited for space in the cache is taken although its ledger was fenced.",
        (
            Edit(
                ADDS,
                "Adds._take_held",
                "self._admit(header.ledger_id, recovery=False)",
                "self._states.get(header.ledger_id)",
            ),
        ),
    ),
    Mutant(
        # Nothing is lost: a liveness fault. Recovery ends nowhere but on empty ledgers.
        "recovery-adds-refused",
        "PROTOCOL.md rule 5",
        "A fenced bookie refuses the adds of recovery too.",
        (
            Edit(
                ADDS,
                "Adds._admit",
                "if state is not None and state.fenced and not recovery:",
                "if state is not None and state.fenced:",
            ),
        ),
    ),
)

_INCARNATION_IGNORED = Edit(
    "fencelog.ledgers.writer.outbox",
    "Outbox.send",
    "incarnations[send.bookie_id]",
    "None",
)
"""A writer sends to whoever has a member's name. By itself it does no harm as long as a bookie that
may have forgotten fences before it serves: two guards of one rule."""

LIMBO = (
    Mutant(
        "replaced-bookie-knows-nothing",
        "PROTOCOL.md rule 10; BK#4812",
        "A bookie with a new disk serves at once, as if it had never had a ledger.",
        (
            _INCARNATION_IGNORED,
            Edit(
                BOOKIE,
                "Bookie.fence_forgotten",
                "        self.shard(ledger_id).fences.put_in_limbo(ledger_id)",
                "        pass",
            ),
        ),
    ),
    Mutant(
        # Rare: the bookie has to be fenced, then replaced, and then asked by a writer that has not
        # heard of the fence from any other.
        "replaced-bookie-without-its-fence",
        "PROTOCOL.md rule 10; BK#4812",
        "A bookie with a new disk says nothing untrue, but takes the adds of old writers again.",
        (
            _INCARNATION_IGNORED,
            Edit(
                ADDS,
                "Adds._admit",
                "if state is not None and state.fenced and not recovery:",
                "if state is not None and state.fenced and not (recovery or state.limbo):",
            ),
        ),
    ),
    Mutant(
        "limbo-not-set",
        "PROTOCOL.md rule 10; BP-46",
        "A bookie that lost its disk only fences the ledgers that name it, and says no for them.",
        (
            Edit(
                FENCES,
                "Fences.put_in_limbo",
                "        state = self._states.set_limbo(ledger_id, True)\n"
                "        body = ledger_body(ledger_id)\n"
                "        self._journal.append(RecordType.LIMBO,",
                "        state = self._states.change(ledger_id)\n"
                "        state.fenced = True\n"
                "        body = ledger_body(ledger_id)\n"
                "        self._journal.append(RecordType.FENCE,",
            ),
        ),
    ),
    Mutant(
        "limbo-not-flushed",
        "PROTOCOL.md rule 10; BP-46",
        "Limbo is forgotten with the first flush and restart.",
        (Edit(STATE, "BookieLedgerState.encode", "(_LIMBO if self.limbo else 0)", "0"),),
    ),
    Mutant(
        "list-without-limbo",
        "PROTOCOL.md rule 7; BP-34",
        "A list of entries does not say that what it lacks may have been forgotten.",
        (Edit(ENTRY_LIST, "list_entries", "was_in_limbo or state.limbo", "False"),),
    ),
    Mutant(
        "list-of-the-index-alone",
        "PROTOCOL.md rule 7; BP-34",
        "A list of entries leaves out what waits for the next flush.",
        (
            Edit(
                ENTRY_LIST,
                "list_entries",
                "shard.cache.first_ranges(ledger_id, from_entry, MAX_LISTED_RUNS)",
                "list[list[Range]]()",
            ),
        ),
    ),
)

MUTANTS = (*DURABILITY, *FENCING, *LIMBO)
