"""Wrong ledger clients: readers, metadata in a file, and the creation of ledgers."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CLIENT = "fencelog.ledgers.client"
PLACEMENT = "fencelog.ledgers.placement.core"
READER = "fencelog.ledgers.reader.reader"
READS = "fencelog.ledgers.reader.entry_reads"
TREE = "fencelog.ledgers.metastore.sqlite_tree"

_LAC = "PROTOCOL.md: A read"
_METADATA = "PROTOCOL.md: the metadata store"
_VERIFIED = "entries are verified from end to end"

READ: tuple[Mutant, ...] = (
    Mutant(
        "entry-of-another-ledger",
        _VERIFIED,
        "A reply with the entry of the same number of another ledger is passed on.",
        (
            Edit(
                READS,
                "_check_run",
                "(header.ledger_id, header.first_entry_id) != (metadata.ledger_id, first)",
                "header.first_entry_id != first",
            ),
        ),
    ),
    Mutant(
        "runs-behind-a-gap",
        _VERIFIED,
        "Runs of a file that do not adjoin are passed on as if they did.",
        (
            Edit(
                READS,
                "_verified_places",
                "else header.first_entry_id == following",
                "else header.first_entry_id >= following",
            ),
        ),
    ),
    Mutant(
        "run-of-another-ledger",
        _VERIFIED,
        "A run of another ledger between those of a file is passed on.",
        (
            Edit(
                READS,
                "_verified_places",
                "header.ledger_id != metadata.ledger_id or not begins",
                "not begins",
            ),
        ),
    ),
    Mutant(
        "read-from-the-last-ensemble",
        "PROTOCOL.md rule 7",
        "Bookies of the last fragment deny the entries of earlier ones.",
        (
            Edit(
                READS,
                "EntryReads._candidates",
                "metadata.fragment_of(entry_id).bookies",
                "metadata.last_fragment.bookies",
            ),
        ),
    ),
    Mutant(
        "lac-of-a-damaged-reply",
        _LAC,
        "The LAC of a reply is believed whose entries are not the ones asked for.",
        (
            Edit(
                READS,
                "EntryReads._ask",
                "        entries = verified_reply(\n",
                "        self._learn(reply.lac)\n        entries = verified_reply(\n",
            ),
        ),
    ),
    Mutant(
        "stripes-without-what-failed",
        "a reader skips no entry",
        "An entry of a striped ledger that cannot be read is left out.",
        (
            Edit(
                READS,
                "EntryReads._side_by_side",
                "break  # a request from here on gets the error",
                "continue",
            ),
        ),
    ),
    Mutant(
        "more-entries-than-asked-for",
        _LAC,
        "Entries beyond the confirmed end are passed on where a bookie sends them.",
        (Edit(READS, "EntryReads._ask", "return entries[:count]", "return entries"),),
    ),
    Mutant(
        "last-fragment-begins-with-the-lac",
        _LAC,
        "The first entry of the last fragment is taken for confirmed.",
        (
            Edit(
                READER,
                "LedgerReader._confirm_fragments",
                "self.metadata.last_fragment.first_entry_id - 1",
                "self.metadata.last_fragment.first_entry_id",
            ),
        ),
    ),
    Mutant(
        "closed-below-the-acknowledged",
        "no acknowledged entry is lost silently",
        "A reader goes on with a ledger that was closed below an acknowledged entry.",
        (
            Edit(
                READER,
                "LedgerReader.update",
                "metadata.last_entry_id < self._confirmed",
                "metadata.last_entry_id < NO_ENTRY",
            ),
        ),
    ),
    Mutant(
        "first-answer-is-the-lac",
        _LAC,
        "One bookie, which may have missed everything of late, says where a ledger ends.",
        (Edit(READER, "LedgerReader.read_lac", "if round_.is_covered:", "if round_.answered:"),),
    ),
    Mutant(
        "denied-by-bookies-replaced-again",
        "PROTOCOL.md rule 7",
        "Bookies that were replaced during the second read deny an entry.",
        (
            Edit(
                READER,
                "LedgerReader.read",
                "if is_absent and await self._is_outdated(used, error):",
                "if is_absent and used is None:",
            ),
        ),
    ),
)

STORED: tuple[Mutant, ...] = (
    Mutant(
        "failed-commit-is-no",
        "unknown is not no",
        "A commit whose sync has failed is said to have had no effect.",
        (Edit(TREE, "SqliteTree._fail", "[unknown(", "[unavailable("),),
    ),
    Mutant(
        "power-cut-forgets-answers",
        _METADATA,
        "Changes are answered before they are synced.",
        (Edit(TREE, "_prepare", "synchronous = FULL", "synchronous = NORMAL"),),
    ),
    Mutant(
        "half-of-the-changes-made",
        _METADATA,
        "The changes before the one that is refused stay.",
        (
            Edit(
                TREE,
                "SqliteTree.commit",
                '            self._connection.execute("ROLLBACK TO changes")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "incarnation-of-a-deleted-node",
        _METADATA,
        "A node that was deleted and created again has a version that it had before.",
        (
            Edit(
                TREE,
                "SqliteTree._insert",
                "UPDATE incarnations SET last = last + 1 RETURNING last",
                "SELECT coalesce(max(incarnation), 0) + 1 FROM nodes",
            ),
        ),
    ),
    Mutant(
        "nodes-of-ended-sessions-stay",
        _METADATA,
        "What registered before a crash is registered after it.",
        (
            Edit(
                TREE,
                "_prepare",
                '    connection.execute("DELETE FROM nodes WHERE owner != 0")\n',
                "",
            ),
        ),
    ),
)

CREATED: tuple[Mutant, ...] = (
    Mutant(
        "half-is-a-majority",
        "PROTOCOL.md: placement",
        "With an even number of copies half of them acknowledge an entry.",
        (Edit(CLIENT, "Replication.of_copies", "copies // 2 + 1", "(copies + 1) // 2"),),
    ),
    Mutant(
        "one-ack-without-consent",
        "PROTOCOL.md: placement",
        "Entries are acknowledged by one of several bookies though nobody asked for that.",
        (
            Edit(
                CLIENT,
                "Replication.validate",
                "self.ack_quorum == 1 < self.write_quorum",
                "self.ack_quorum < 1 < self.write_quorum",
            ),
        ),
    ),
    Mutant(
        "begun-at-a-later-version",
        "PROTOCOL.md rule 8",
        "A writer whose ledger was recovered meanwhile may change its metadata.",
        (
            Edit(
                CLIENT,
                "LedgerClient.begin",
                "version = await self.ledgers.first_version(new.metadata)",
                "_, version = await self.ledgers.get(new.ledger_id)",
            ),
        ),
    ),
    Mutant(
        "first-version-is-any",
        "PROTOCOL.md rule 8",
        "The version that a creator is told is the one that the ledger has by now.",
        (
            Edit(
                "fencelog.ledgers.metastore.port",
                "Version.first",
                "Version(self.incarnation, 0)",
                "self",
            ),
        ),
    ),
    Mutant(
        "deleted-while-it-may-be-changed",
        "a deleted ledger takes no entries",
        "The writer of a ledger that is being deleted may still change its metadata.",
        (
            Edit(
                CLIENT,
                "LedgerClient._fence_for_good",
                "        base, _ = await update_metadata"
                "(self.ledgers, base, version, begin_recovery)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "signed-by-nobody",
        _VERIFIED,
        "The entries of a new ledger have no digest that needs the key.",
        (
            Edit(
                CLIENT,
                "LedgerClient.prepare",
                "DigestType.HMAC_SHA256 if self._key else DigestType.CRC32C",
                "DigestType.CRC32C",
            ),
        ),
    ),
    Mutant(
        "described-as-it-was",
        "every change of metadata is a compare-and-set",
        "Of two processes that describe a ledger at once one undoes what the other did.",
        (
            Edit(
                CLIENT,
                "LedgerClient.describe",
                "            properties = properties_of(base)\n",
                "            properties = properties_of(first)\n",
            ),
            Edit(
                CLIENT,
                "LedgerClient.describe",
                "        base, version = await self.ledgers.get(ledger_id)\n",
                "        base, version = await self.ledgers.get(ledger_id)\n        first = base\n",
            ),
        ),
    ),
    Mutant(
        "poorest-write-set-ignored",
        "MAINTENANCE.md: balance",
        "A move may leave a write set in one rack, if others are in more for it.",
        (Edit(PLACEMENT, "is_as_spread", "now[0] >= was[0] and ", ""),),
    ),
    Mutant(
        "other-write-sets-ignored",
        "MAINTENANCE.md: balance",
        "A move may leave all write sets in fewer racks but the poorest one.",
        (Edit(PLACEMENT, "is_as_spread", " and now[1] >= was[1]", ""),),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*READ, *STORED, *CREATED)
