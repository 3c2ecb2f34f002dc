"""Wrong offline tools: they lose entries of a new index, find nothing wrong, or say the wrong
thing. Tests of these tools detect them."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

FORMAT_DATA = "fencelog.bookie.offline.format_data"
REBUILD = "fencelog.bookie.offline.rebuild_index"
VERIFY = "fencelog.bookie.offline.verify"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "rebuilt-forgets-nothing",
        "PROTOCOL.md rule 10",
        "A bookie whose index was rebuilt keeps its incarnation, and denies what is lost.",
        (Edit(REBUILD, "rebuild_indexes", "    _forget(data, identity, host)\n", ""),),
    ),
    Mutant(
        "oldest-file-wins",
        "STORAGE.md: offline tools",
        "Where several entry logs have an entry, the new index points to the oldest.",
        (
            Edit(
                REBUILD,
                "_NewIndex.fill",
                "for file_id in reversed(self._file_ids):",
                "for file_id in self._file_ids:",
            ),
        ),
    ),
    Mutant(
        "rebuilt-without-the-last-copies",
        "STORAGE.md: offline tools",
        "The mark of a new index says that it has records of the journal which were not copied.",
        (
            Edit(
                REBUILD,
                "_NewIndex.fill",
                "        self._flush()\n        self._index.write",
                "        self._index.write",
            ),
        ),
    ),
    Mutant(
        "rebuilt-with-overlaps",
        "STORAGE.md: overlaps",
        "Of two runs of one entry log that overlap, a new index has both.",
        (
            Edit(
                REBUILD,
                "_NewIndex._missing",
                "        if header.first_entry_id <= self._ends.get(header.ledger_id, -1):\n"
                "            self._flush()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "rebuilt-with-removed-runs",
        "STORAGE.md: offline tools",
        "Runs of a ledger whose removal is in the journal stay in a new index.",
        (
            Edit(
                REBUILD,
                "_NewIndex._take_record",
                "            self._index.write([], [], mark=1, removed=removed)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "rebuilt-without-lacs",
        "a bookie's LAC never goes back",
        "A new index does not know the LACs that its runs carry.",
        (
            Edit(
                REBUILD,
                "_NewIndex._remember",
                "        state.lac = max(state.lac, run_lac(run, header))\n",
                "",
            ),
        ),
    ),
    Mutant(
        "ledger-of-another-shard-is-well",
        "STORAGE.md: directories and shards",
        "A ledger that is stored where nobody looks for it is no problem.",
        (
            Edit(
                VERIFY,
                "_Shard.problems",
                "index_problems(self._disk, self._shard, self._number, self._count)",
                "index_problems(self._disk, self._shard)",
            ),
        ),
    ),
    Mutant(
        "journal-may-end-early",
        "STORAGE.md: offline tools",
        "A journal that lacks what the index says was synced is no problem.",
        (
            Edit(
                VERIFY,
                "_Shard._journal",
                "if mark is not None and end < mark:",
                "if mark is None and end < 0:",
            ),
        ),
    ),
    Mutant(
        "deleted-ledgers-are-counted",
        "STORAGE.md: offline tools",
        "Whoever removes a bookie's data is told of ledgers that were deleted before.",
        (
            Edit(
                FORMAT_DATA,
                "_ledgers",
                "sum(not state.deleted for _, state in index.states())",
                "sum(1 for _ in index.states())",
            ),
        ),
    ),
)
