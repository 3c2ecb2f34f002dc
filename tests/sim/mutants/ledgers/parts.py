"""Wrong parts of the ledger client and of bookies, which tests of these parts detect."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CACHE = "fencelog.bookie.storage.write_cache"
COOKIES = "fencelog.bookie.identity.cookies_core"
FENCES = "fencelog.ledgers.rpc.fences"
MISSING = "fencelog.bookie.repair.missing"
RANGES = "fencelog.ledgers.rpc.ranges"
RECEIVING = "fencelog.ledgers.rpc.receiving"
SCRUBBER = "fencelog.bookie.repair.scrubber"
WRITER = "fencelog.ledgers.writer.metadata"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "denied-first-entry-is-named-by-nobody",
        "PROTOCOL.md rule 4",
        "A bookie that denies entry 0 in its answer to a fence names no entry.",
        (
            Edit(
                FENCES,
                "encode_answers",
                "_NONE if answer.absent is None else answer.absent",
                "answer.absent or _NONE",
            ),
        ),
    ),
    Mutant(
        "range-without-its-last-entry",
        "PROTOCOL.md: READ_RANGES",
        "A request for ranges leaves out the last entry of each.",
        (Edit(RANGES, "encode_ranges", "last - first + 1", "max(1, last - first)"),),
    ),
    Mutant(
        "large-reply-begins-anew",
        "PROTOCOL.md: frames",
        "What follows the beginning of a large reply is received over it.",
        (
            Edit(
                RECEIVING,
                "ReceiveBuffer.received",
                "self._rest = self._large.body[filled:]",
                "self._rest = self._large.body",
            ),
        ),
    ),
    Mutant(
        "returned-with-another-incarnation",
        "PROTOCOL.md rule 10",
        "A bookie that has forgotten what it had of a ledger joins its ensemble again.",
        (
            Edit(
                WRITER,
                "WriterMetadata.change_ensemble",
                "{b for b, known in self.incarnations.items() if known != self._incarnation(b)}",
                "set[str]()",
            ),
        ),
    ),
    Mutant(
        "joined-under-no-incarnation",
        "PROTOCOL.md rule 10",
        "The incarnation of a bookie that joins an ensemble is not remembered.",
        (
            Edit(
                WRITER,
                "WriterMetadata.change_ensemble",
                "        self.incarnations.update(joining)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "run-that-ends-before-the-entry",
        "STORAGE.md: write cache",
        "Of two cached runs with a gap between them, one is returned for an entry of the gap.",
        (
            Edit(
                CACHE,
                "CacheHalf.find",
                "if at < 0 or runs.lasts[at] < entry_id:",
                "if at < 0:",
            ),
        ),
    ),
    Mutant(
        "lost-copies-forgotten",
        "MAINTENANCE.md: integrity check",
        "Entries without any copy do not keep a ledger in limbo.",
        (Edit(MISSING, "MissingEntries.copy", "        if lost:\n", "        if False:\n"),),
    ),
    Mutant(
        "scrubbed-from-memory",
        "MAINTENANCE.md: scrubber",
        "The scrubber reads what the kernel has in memory, not what is on the disk.",
        (
            Edit(
                SCRUBBER,
                "_UncachedFile.read",
                "        self._file.drop_cache(offset, size)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "older-copy-starts",
        "STORAGE.md: identity",
        "A bookie starts with an older copy of its data directory.",
        (
            Edit(
                COOKIES,
                "_of_identity",
                "elif current.incarnation not in _incarnations(identity):",
                "elif not _incarnations(identity):",
            ),
        ),
    ),
    Mutant(
        "unsynced-keeps-its-incarnation",
        "PROTOCOL.md rule 10",
        "A bookie that may have lost adds which it had not synced keeps its incarnation.",
        (Edit(COOKIES, "decide", "        if found.is_unsynced:\n", "        if False:\n"),),
    ),
)
