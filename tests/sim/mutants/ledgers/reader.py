"""Wrong answers to readers, by bookies and by the reader itself: a no that is not true, an entry
that is not confirmed, bytes that were never written."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

FLUSH = "fencelog.bookie.storage.flush"
INDEX = "fencelog.bookie.storage.index"
RECOVERY_ADD_DEDUP = "fencelog.bookie.engine.recovery_add_dedup"
READER = "fencelog.ledgers.reader.core"
READS = "fencelog.bookie.engine.reads"
STORED_READS = "fencelog.bookie.storage.stored_reads"

READ_REPLIES = (
    Mutant(
        "lac-is-the-last-entry",
        "PROTOCOL.md rules 1 and 4",
        "A bookie takes its highest entry of a ledger for one that is acknowledged.",
        (
            Edit(
                READS,
                "Reads.read_lac",
                "lac = await self._lacs.latest(state)",
                "lac = state.last_entry",
            ),
        ),
    ),
    Mutant(
        "cache-freed-before-the-index",
        "PROTOCOL.md rule 7; STORAGE.md: flush",
        "A flush frees its half of the cache before the index has it: entries vanish for a while.",
        (
            Edit(
                FLUSH,
                "Flusher._carry_out",
                "            await self._journal.settle(sync=True)\n",
                "            await self._journal.settle(sync=True)\n"
                "            self._cache.release()\n",
            ),
        ),
    ),
    Mutant(
        "damage-is-absence",
        "PROTOCOL.md rule 7; BK#2908",
        "A run that cannot be read from its entry log is answered 'no such entry'.",
        (
            Edit(
                STORED_READS,
                "StoredReads._runs",
                "                if not runs:\n                    raise\n                break",
                "                break",
            ),
        ),
    ),
    Mutant(
        "failed-index-is-absence",
        "PROTOCOL.md rule 7",
        "Where the index cannot be read, entries are answered 'no such entry'.",
        (
            Edit(
                INDEX,
                "Index.runs_from",
                "        except OSError as error:\n            raise _failed(error) from error",
                "        except OSError:\n            return",
            ),
        ),
    ),
    Mutant(
        "damage-is-passed-on",
        "entries are verified from end to end",
        "Neither the bookie nor the reader looks at checksums and digests.",
        (
            Edit(
                "fencelog.ledgers.format.run",
                "verify_run",
                "if crc32c(view[RUN_HEADER.size :], crc32c(view[:24])) != expected:",
                "if header.size < 0:",
            ),
            Edit(
                "fencelog.ledgers.format.run",
                "verify_entries",
                "if not digest_matches(",
                "if not digest and digest_matches(",
            ),
        ),
    ),
    Mutant(
        # One id has one sequence of bytes, so whole copies do no harm; parts of runs that were cut
        # elsewhere do, and the cache's own check turns others into refused recovery adds.
        "overlap-stored-twice",
        "STORAGE.md: overlaps",
        "An add of entries that are there is stored again beside them.",
        (
            Edit(
                RECOVERY_ADD_DEDUP,
                "RecoveryAddDedup._missing",
                "return missing_ranges(wanted, [*stored, *cached])",
                "return missing_ranges(wanted, cached)",
            ),
        ),
    ),
)

READERS = (
    Mutant(
        "any-no-is-absence",
        "PROTOCOL.md rule 7",
        "An entry is not there if one bookie says so, although others could not be asked.",
        (Edit(READER, "ReadRound.verdict", "absent = all(", "absent = any("),),
    ),
    Mutant(
        "reader-past-lac",
        "PROTOCOL.md: A read",
        "The entry that carries the highest LAC is taken for confirmed itself.",
        (
            Edit(
                READER,
                "LacRound.answer",
                "max(self.highest, answer)",
                "max(self.highest, answer + 1)",
            ),
        ),
    ),
    Mutant(
        "readers-lac-goes-back",
        "a reader's LAC never goes back",
        "A reader believes the bookie that answered last.",
        (
            Edit(
                "fencelog.ledgers.reader.reader",
                "LedgerReader.confirm",
                "max(self._confirmed, lac)",
                "lac",
            ),
        ),
    ),
)

MUTANTS = (*READ_REPLIES, *READERS)
