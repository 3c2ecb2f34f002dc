"""Wrong journals: they call durable what is not, or begin where they must not. Tests of journals,
and of bookies that do not sync them, detect them."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

BOOKIE = "fencelog.bookie.engine.bookie"
JOURNAL = "fencelog.bookie.journal.journal"
JOURNAL_WRITER = "fencelog.bookie.journal.writer"
REPLAY = "fencelog.bookie.journal.replay"
SHARD_DIRECTORY = "fencelog.bookie.storage.shard_directory"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "fence-not-synced-either",
        "PROTOCOL.md rule 6",
        "Where runs are not synced, a fence is not synced either.",
        (
            Edit(
                JOURNAL,
                "Journal.append",
                "        if kind is not RecordType.RUN:\n            group.sync = True\n",
                "",
            ),
        ),
    ),
    Mutant(
        "lacs-not-synced-either",
        "PROTOCOL.md: LACs",
        "Where runs are not synced, explicit LACs are not synced either.",
        (
            Edit(
                JOURNAL,
                "Journal.append_many",
                "        if kind is not RecordType.RUN:\n            group.sync = True\n",
                "",
            ),
        ),
    ),
    Mutant(
        "written-is-synced",
        "STORAGE.md: flush",
        "Runs that were written without a sync count as synced: a flush waits for nothing.",
        (
            Edit(
                JOURNAL,
                "Journal._commit",
                "group.end_sequence if group.sync else before",
                "group.end_sequence",
            ),
        ),
    ),
    Mutant(
        "nothing-waits-is-synced",
        "STORAGE.md: flush",
        "A journal in which nothing waits for an answer counts as synced.",
        (
            Edit(
                JOURNAL,
                "Journal.sync",
                "self._synced_before == self._next.sequence",
                "self._last is None",
            ),
        ),
    ),
    Mutant(
        # The next start takes a torn tail for damage, and refuses.
        "durable-before-the-sync",
        "STORAGE.md: replay",
        "Records that are written beside a sync call durable what is being synced.",
        (
            Edit(
                JOURNAL,
                "Journal._write_ahead",
                "durable=self._synced_before - 1",
                "durable=group.start.sequence - 1",
            ),
        ),
    ),
    Mutant(
        "written-into-the-file-before",
        "STORAGE.md: journal",
        "A group that begins a file is written beside a sync, into the file before it.",
        (
            Edit(
                JOURNAL,
                "Journal._may_write_ahead",
                "            and group.start.file_id == self._writer.file_id\n",
                "",
            ),
        ),
    ),
    Mutant(
        "begun-before-the-last-is-synced",
        "STORAGE.md: journal",
        "A journal file is begun while records of the one before it are not synced.",
        (
            Edit(
                JOURNAL,
                "Journal._commit",
                "finish = before < first.sequence",
                "finish = before > first.sequence",
            ),
        ),
    ),
    Mutant(
        "goes-on-beside-a-failure",
        "PROTOCOL.md rule 9",
        "One I/O thread of the journal goes on although the other's write or sync has failed.",
        (
            Edit(
                JOURNAL_WRITER,
                "JournalWriter._submit.guarded",
                "            if self._has_failed:\n",
                "            if self._has_failed and self._file is None:\n",
            ),
        ),
    ),
    Mutant(
        "unmarked-before-the-flush",
        "STORAGE.md: possible data loss",
        "The mark of unsynced adds goes before the last flush has synced them.",
        (
            Edit(
                BOOKIE,
                "Bookie.close",
                "                    for shard in self.shards:\n"
                "                        await shard.flush()\n"
                "                    if self._is_marked_unsynced:\n"
                "                        "
                "await self._io_thread.run(self._directory.unmark_unsynced)\n"
                "                        self._is_marked_unsynced = False\n",
                "                    if self._is_marked_unsynced:\n"
                "                        "
                "await self._io_thread.run(self._directory.unmark_unsynced)\n"
                "                        self._is_marked_unsynced = False\n"
                "                    for shard in self.shards:\n"
                "                        await shard.flush()\n",
            ),
        ),
    ),
    Mutant(
        "unmarked-after-a-failure",
        "PROTOCOL.md rule 10",
        "A bookie whose journal has failed takes back the mark of unsynced adds as it stops.",
        (
            Edit(
                BOOKIE,
                "Bookie.close",
                "            if not self.failure.done():\n"
                "                try:\n"
                "                    for shard in self.shards:\n",
                "            if self.shards:\n"
                "                try:\n"
                "                    for shard in [] if self.failure.done() else self.shards:\n",
            ),
        ),
    ),
    Mutant(
        "remade-journal-below-the-mark",
        "STORAGE.md: replay",
        "A journal that was lost and made anew begins with numbers that the index has already: "
        "replay passes over its first records.",
        (
            Edit(
                SHARD_DIRECTORY,
                "ShardDirectory.make_journal",
                "mark = index.mark()",
                "mark = self.read_checkpoint().sequence",
            ),
        ),
    ),
    Mutant(
        "appended-is-durable",
        "PROTOCOL.md: LACs",
        "With a group, all that was appended since counts as durable.",
        (
            Edit(
                JOURNAL,
                "Journal._answer",
                "= groups[-1].end_sequence, synced_before",
                "= self._next.sequence, synced_before",
            ),
        ),
    ),
    Mutant(
        "cut-off-file-is-torn",
        "STORAGE.md: replay",
        "A journal file that is shorter than it was made ends where it is cut off.",
        (
            Edit(
                REPLAY,
                "JournalReplay._open",
                "            if file.size() < header.reserved:\n",
                "            if file.size() < FILE_HEADER_BYTES:\n",
            ),
        ),
    ),
    Mutant(
        "journal-of-another-bookie",
        "STORAGE.md: replay",
        "A journal that was written in another data directory is replayed.",
        (
            Edit(
                REPLAY,
                "JournalReplay._check_header",
                "if header.incarnation != self._incarnation:",
                "if not header.incarnation:",
            ),
        ),
    ),
    Mutant(
        "missing-file-is-passed-over",
        "STORAGE.md: replay",
        "Replay goes on with the next file although the records of one between are missing.",
        (
            Edit(
                REPLAY,
                "JournalReplay._end_of_file",
                "if self.position.sequence != at.sequence:",
                "if self.position.sequence < at.sequence:",
            ),
        ),
    ),
)
