"""Wrong parts of a standalone service, whose bookies and metadata share a disk, of a bookie that
has several, and of one that is ready too early."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

STANDALONE = "fencelog.api.processes.standalone"
TREE = "fencelog.ledgers.metastore.sqlite_tree"

_METADATA = "PROTOCOL.md: Metadata"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "ids-of-older-metadata-given-again",
        _METADATA,
        "A standalone service starts with metadata that has not given the ids of its bookies yet.",
        (Edit(STANDALONE, "check_knows_ids", "if highest > given:", "if False:"),),
    ),
    Mutant(
        "one-refusal-for-all-of-a-transaction",
        _METADATA,
        "What needs no space is refused with what does, and a watch is never told.",
        (
            Edit(
                TREE,
                "SqliteTree.run",
                "if self.failure is None and len(operations) > 1:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "repeated-after-a-failed-sync",
        _METADATA,
        "The file of the metadata takes changes after a write of it has failed.",
        (Edit(TREE, "SqliteTree._fail", "self.failure = str(error)", "pass"),),
    ),
    Mutant(
        "compacted-into-the-same-space",
        "MAINTENANCE.md: disks",
        "All of the bookies on a disk copy into its free space at once.",
        (
            Edit(
                "fencelog.bookie.gc.files",
                "FileGarbage.collect",
                "async with self._limits.turn:",
                "async with asyncio.Lock():",
            ),
        ),
    ),
    Mutant(
        "one-disk-with-space-is-enough",
        "MAINTENANCE.md: disks",
        "Adds are taken as long as any of the bookie's disks has space for them.",
        (
            Edit(
                "fencelog.bookie.disk.space",
                "allowed_by_all",
                "for_adds=all(writes.for_adds for _, writes in each)",
                "for_adds=any(writes.for_adds for _, writes in each)",
            ),
        ),
    ),
    Mutant(
        "one-full-disk-is-all-of-them",
        "MAINTENANCE.md: disks",
        "After one disk was full, the others have to become emptier than they were.",
        (
            Edit(
                "fencelog.bookie.maintenance.disk_watch",
                "DiskWatch._allowed_by",
                "had_space=self._takes_adds.get(directory.path, True)",
                "had_space=self._allowed.for_adds",
            ),
        ),
    ),
    Mutant(
        "fullest-by-free-bytes",
        "MAINTENANCE.md: disks",
        "The space of a bookie is that of its smallest disk, the journal's.",
        (
            Edit(
                "fencelog.bookie.identity.data_directory",
                "DataDirectory.space",
                "return fullest(self.spaces())",
                "return min((d.space for d in self.spaces()), key=lambda space: space.free_bytes)",
            ),
        ),
    ),
    Mutant(
        "stranger-though-about-to-be-named",
        "MAINTENANCE.md: ending limbo",
        "A bookie is ready that a recovery or a worker is about to name for what it has lost.",
        (
            Edit(
                "fencelog.bookie.repair.integrity",
                "Integrity._is_stranger",
                "if not metadata.is_closed or await self._ledgers.is_marked(ledger_id):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "stranger-though-it-lost-entries",
        "MAINTENANCE.md: ending limbo",
        "A bookie that loses a ledger which it was not to have is ready before it has copied it.",
        (
            Edit(
                "fencelog.bookie.format.ledger_state",
                "LedgerStates.set_limbo",
                "        self.strangers.discard(ledger_id)\n",
                "",
            ),
        ),
    ),
)
"""Mutants that unit tests have to detect."""
