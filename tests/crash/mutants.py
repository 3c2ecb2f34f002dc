"""Wrong orders of writing and syncing, each with a workload whose crash images have to show it."""

from __future__ import annotations

from tests.crash.check import Broken
from tests.crash.examine import KILL, Failure, examine, kill_boundaries, next_life, story_of
from tests.sim.mutants.ledgers.replay import MUTANTS as REPLAY
from tests.sim.mutants.mutation import Edit, Mutant, applied

_RULE = "STORAGE.md: why each sync is where it is"
_EARLY = 12
"""Effects of a life."""

JOURNAL_FILE = "fencelog.bookie.journal.file"
ENTRY_LOG = "fencelog.bookie.storage.entry_log_writer"
FLUSH = "fencelog.bookie.storage.flush"
STATE = "fencelog.bookie.format.ledger_state"


def _mutant(
    name: str,
    what: str,
    module: str,
    function: str,
    old: str,
    new: str = "pass",
    *,
    rule: str = _RULE,
) -> Mutant:
    return Mutant(name, rule, what, (Edit(module, function, old, new),))


def _replayed(name: str) -> Mutant:
    """One of the simulator: it is caught here, too."""
    (mutant,) = (one for one in REPLAY if one.name == name)
    return mutant


MUTANTS = {
    "append": (
        _mutant(
            "answered-before-the-sync",
            "An add is answered when its record is written.",
            JOURNAL_FILE,
            "JournalFile.submit",
            "sync=group.sync",
            "sync=False",
        ),
        _mutant(
            "journal-directory-not-synced",
            "The name of a new journal file may be lost.",
            JOURNAL_FILE,
            "JournalFile.__init__",
            "disk.sync_directory(directory)",
        ),
        _mutant(
            "recovered-tail-not-synced",
            "What a killed process wrote is answered for, and is in the page cache only.",
            "fencelog.bookie.journal.replay",
            "JournalReplay._open",
            "_make_durable(file, max(start, self.position), seed=header.seed)",
        ),
    ),
    "roll": (
        _mutant(
            "header-of-a-spare-not-synced",
            "A spare becomes a journal file before its header is whole.",
            JOURNAL_FILE,
            "JournalFile.__init__",
            "self._file.sync()",
        ),
    ),
    "flush": (
        _mutant(
            "entry-log-not-synced",
            "The index points to what the entry log may not have.",
            ENTRY_LOG,
            "EntryLog.sync",
            "self._file.sync()",
        ),
        _mutant(
            "entry-log-directory-not-synced",
            "The index points into a file whose name may be lost.",
            ENTRY_LOG,
            "EntryLog.__init__",
            "place.disk.sync_directory(place.directory)",
        ),
        _mutant(
            "index-before-entry-log",
            "The mark says that runs are in the index before they are in the entry log.",
            "fencelog.bookie.storage.storage",
            "Storage.store",
            "stored = self._log",
            "self.index.write([], [], mark=flushed.position.sequence)\n        stored = self._log",
        ),
        _mutant(
            "checkpoint-before-flush",
            "The checkpoint moves before what it speaks of is stored.",
            FLUSH,
            "Flusher._carry_out",
            "await self._journal.settle(sync=True)\n",
            "await self._io_thread.run(lambda: self._storage.write_checkpoint(flushed.position))\n",
        ),
        _mutant(
            "flush-before-journal",
            "The index knows of records that the journal may not have.",
            FLUSH,
            "Flusher._carry_out",
            "await self._journal.settle(sync=True)",
        ),
        _replayed("flush-says-too-much"),
    ),
    "replay": (
        _mutant(
            "lac-told-before-it-is-durable",
            "A LAC is told while the record that brought it is being synced.",
            "fencelog.bookie.engine.lacs",
            "Lacs.latest",
            "        if self.durable(state) < lac:\n"
            "            await self._journal.settle()\n"
            "            state.reported_lac = max(state.reported_lac, lac)\n",
            "        state.reported_lac = max(state.reported_lac, lac)\n",
            rule="a bookie's LAC never goes back",
        ),
    ),
    "checkpoint": (_replayed("replayed-lac-not-flushed"),),
    "fence": (
        _mutant(
            "fence-answered-early",
            "A fencing request is answered before the fence is durable.",
            "fencelog.bookie.engine.fences",
            "Fences.fence",
            "return durable",
            "return None",
            rule="PROTOCOL.md rule 6",
        ),
        _replayed("replayed-fence-not-flushed"),
    ),
    "delete": (
        _mutant(
            "tombstone-not-flushed",
            "That a ledger was deleted is in the journal alone.",
            STATE,
            "BookieLedgerState.encode",
            "_DELETED if self.deleted else 0",
            "0",
            rule="MAINTENANCE.md: tombstones",
        ),
        _replayed("replayed-removal-not-flushed"),
        _replayed("replayed-removal-keeps-the-cache"),
    ),
    "limbo": (
        _mutant(
            "limbo-not-flushed",
            "That something of a ledger is unknown is in the journal alone.",
            STATE,
            "BookieLedgerState.encode",
            "_LIMBO if self.limbo else 0",
            "0",
            rule="PROTOCOL.md rule 10",
        ),
        _replayed("replayed-limbo-not-flushed"),
    ),
    "boot": (
        _mutant(
            "ready-before-fenced",
            "The identity says that all is fenced before it is.",
            "fencelog.bookie.engine.bookie",
            "Bookie.forgotten_are_fenced",
            "await shard.settle(sync=True)",
            rule="PROTOCOL.md rule 10",
        ),
    ),
    "compaction": (
        _mutant(
            "compacted-name-not-synced",
            "The index points into a compacted file that a start takes for an unfinished one.",
            "fencelog.bookie.storage.compaction",
            "EntryLogCompaction.finish",
            "self._place.disk.sync_directory(directory)",
        ),
    ),
    "unsynced": (
        _mutant(
            "unsynced-not-marked",
            "Adds are answered before they are synced, and nothing tells the next start.",
            "fencelog.bookie.engine.bookie",
            "Bookie._open",
            "if not config.is_synced:",
            "if not config:",
        ),
    ),
}
"""Mutants by the name of the workload."""


def first_failure(workload: str, mutant: Mutant) -> Failure | None:
    """The first image found on which the mutant breaks a promise; after a kill, if need be."""
    with applied(mutant):
        story = story_of(workload)
        found = story.crashes()
        found.sort(key=lambda crash: crash.kind == "torn")
        for crash in found:
            if failures := examine(story, [crash]).failures:
                return failures[0]
        for boundary in kill_boundaries(story):
            try:
                second = next_life(story, boundary, None)
            except Broken as broken:
                return Failure(f"{workload}/{boundary}/{KILL}", str(broken))
            # What it answered for as soon as it was open is what a kill puts into question.
            early = [crash for crash in second.crashes() if crash.boundary < boundary + _EARLY]
            if failures := examine(second, early).failures:
                return failures[0]
    return None
