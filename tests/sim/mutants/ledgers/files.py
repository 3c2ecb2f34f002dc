"""Wrong files of a bookie: formats, write cache, entry logs and the reads from them. Tests of these
parts detect them."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CACHE = "fencelog.bookie.storage.write_cache"
ENTRY_LOG = "fencelog.bookie.storage.entry_log"
ENTRY_LOG_WRITER = "fencelog.bookie.storage.entry_log_writer"
READ_AHEAD = "fencelog.bookie.storage.read_ahead"
RECORDS = "fencelog.bookie.format.records"
RUNS = "fencelog.bookie.format.runs"
STORED_READS = "fencelog.bookie.storage.stored_reads"

FORMATS: tuple[Mutant, ...] = (
    Mutant(
        "last-synced-record-may-be-torn",
        "STORAGE.md: replay",
        "Damage to the last record that a later one calls durable is the end of the journal.",
        (
            Edit(
                RECORDS,
                "find_durable_record",
                "record.sequence > sequence <= record.durable",
                "record.sequence > sequence < record.durable",
            ),
        ),
    ),
    Mutant(
        "run-in-a-record-not-verified",
        "STORAGE.md: formats",
        "Of a run in the journal only its header is compared with a checksum.",
        (Edit(RECORDS, "read_record", "            verify_run(body)\n", "            pass\n"),),
    ),
    Mutant(
        "records-of-a-spare-are-new",
        "STORAGE.md: journal",
        "The checksums of records do not begin with that of their file, so those that a reused "
        "file held before pass.",
        (
            Edit(
                RECORDS,
                "read_record",
                "crc32c(head[: _RECORD_HEADER.size], seed)",
                "crc32c(head[: _RECORD_HEADER.size])",
            ),
            Edit(
                RECORDS, "encode_records", "crc32c(head + guarded, seed)", "crc32c(head + guarded)"
            ),
        ),
    ),
    Mutant(
        "reserved-size-unguarded",
        "STORAGE.md: replay",
        "The size that a journal file was made to have is not part of its header's checksum.",
        (
            Edit(
                RECORDS,
                "_file_checksum",
                'return crc32c(units.to_bytes(4, "little"), checksum) if units else checksum',
                "return checksum",
            ),
        ),
    ),
    Mutant(
        "runs-with-a-gap-merged",
        "STORAGE.md: flush",
        "The flush joins runs between which entries are missing: those behind the gap get the "
        "numbers of those in it.",
        (Edit(RUNS, "merging", "first == following", "first >= following >= 0"),),
    ),
    Mutant(
        "merged-beyond-a-run",
        "STORAGE.md: flush",
        "The flush joins more entries than a run may have: nobody can read them.",
        (
            Edit(
                RUNS,
                "merging",
                "            and total + count <= MAX_RUN_ENTRIES\n",
                "",
            ),
        ),
    ),
    Mutant(
        "merged-step-is-dropped",
        "STORAGE.md: flush",
        "A long series of small runs is merged in steps, of which only the last one is kept.",
        (Edit(RUNS, "merging", "group = [_one_run(group)]", "group = []"),),
    ),
    Mutant(
        "not-found-while-merged",
        "STORAGE.md: flush",
        "A ledger's runs are found again only once all of them are merged.",
        (
            Edit(
                CACHE,
                "_LedgerRuns.merge",
                "        kept: list[CachedRun] = []\n",
                "        kept: list[CachedRun] = []\n"
                "        firsts, lasts, runs = self.firsts, self.lasts, self.runs\n"
                "        self.firsts, self.lasts, self.runs = [], [], []\n",
            ),
            Edit(
                CACHE,
                "_LedgerRuns.merge",
                "zip(self.firsts, self.lasts, self.runs, strict=True)",
                "zip(firsts, lasts, runs, strict=True)",
            ),
        ),
    ),
    Mutant(
        "held-back-before-merging-alone",
        "MAINTENANCE.md: full disks",
        "A flush that has begun to merge writes although there is no space any more.",
        (
            Edit(
                "fencelog.bookie.storage.flush",
                "Flusher._carry_out",
                "        for _ in flushed.runs.merge():\n"
                "            await asyncio.sleep(0)\n"
                "        await self._space.wait()\n"
                "        if self._is_held:\n"
                '            raise OSError(ENOSPC, "closed without space on the disk for what is in'
                ' the journal")\n',
                "        await self._space.wait()\n"
                "        for _ in flushed.runs.merge():\n"
                "            await asyncio.sleep(0)\n",
            ),
        ),
    ),
    Mutant(
        "merged-run-ends-early",
        "STORAGE.md: flush",
        "The last entry of a merged run is taken to be that of its first part.",
        (Edit(RUNS, "_one_run", "group[-1][1]", "group[0][1]"),),
    ),
    Mutant(
        "held-range-within-another",
        "STORAGE.md: overlaps",
        "What follows the last of several held ranges is missing, though a longer one holds it.",
        (
            Edit(
                RUNS,
                "missing_ranges",
                "position = max(position, high + 1)",
                "position = high + 1",
            ),
        ),
    ),
    Mutant(
        "joined-behind-a-cut",
        "STORAGE.md: write and read path",
        "A read joins a run to the one before it, of which the limits have cut the end off.",
        (
            Edit(
                RUNS,
                "join_runs",
                "    if last < read_run_header(runs[0]).last_entry_id:\n        return parts[0]\n",
                "",
            ),
        ),
    ),
)

STORED: tuple[Mutant, ...] = (
    Mutant(
        "put-into-the-flushed-half",
        "STORAGE.md: write cache",
        "Adds go on into the half that is being flushed, and are freed with it.",
        (Edit(CACHE, "WriteCache.swap", "        self.put = self._active.put\n", ""),),
    ),
    Mutant(
        "flushed-half-is-not-read",
        "PROTOCOL.md rule 7",
        "Entries are not found while they are flushed.",
        (
            Edit(
                CACHE,
                "WriteCache.find",
                "            found = self._frozen.find(ledger_id, entry_id)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "flushed-half-is-not-listed",
        "PROTOCOL.md rule 7; BP-34",
        "A list of entries leaves out those that are being flushed.",
        (
            Edit(
                CACHE,
                "WriteCache.first_ranges",
                "(self._active, self._frozen) if self._frozen else (self._active,)",
                "(self._active,)",
            ),
        ),
    ),
    Mutant(
        "begun-before-is-missed",
        "STORAGE.md: overlaps",
        "A cached run that holds entries of an add, and begins before them, is not seen.",
        (
            Edit(
                CACHE,
                "CacheHalf.ranges",
                "low = max(0, bisect_right(runs.firsts, wanted[0]) - 1)",
                "low = bisect_right(runs.firsts, wanted[0] - 1)",
            ),
        ),
    ),
    Mutant(
        "flushed-half-overlaps",
        "STORAGE.md: overlaps",
        "An entry that is being flushed is stored again.",
        (
            Edit(
                CACHE,
                "WriteCache.ranges",
                "(self._active, self._frozen) if self._frozen else (self._active,)",
                "(self._active,)",
            ),
        ),
    ),
    Mutant(
        "reserve-for-everybody",
        "STORAGE.md: memory",
        "Regular adds take the part of the cache that is kept for recovery.",
        (
            Edit(
                CACHE,
                "WriteCache.has_space",
                "(self._max_bytes // 8 if recovery else 0)",
                "self._max_bytes // 8",
            ),
        ),
    ),
    Mutant(
        "another-run-of-the-ledger",
        "STORAGE.md: formats",
        "A place that holds another run of the same ledger counts as the run.",
        (
            Edit(
                ENTRY_LOG,
                "EntryLogReader.read",
                "if (header.ledger_id, header.first_entry_id, header.last_entry_id) != stored[:3]:",
                "if header.ledger_id != stored.ledger_id:",
            ),
        ),
    ),
    Mutant(
        "entry-log-of-another-bookie",
        "STORAGE.md: formats",
        "An entry log that was made in another data directory is read.",
        (
            Edit(
                ENTRY_LOG,
                "open_entry_log",
                "(header.magic, header.file_id, header.incarnation) != expected",
                "(header.magic, header.file_id) != expected[:2]",
            ),
        ),
    ),
    Mutant(
        "newest-file-is-closed",
        "STORAGE.md: memory",
        "Of too many open entry logs, the one that is about to be read is closed.",
        (
            Edit(
                ENTRY_LOG,
                "EntryLogReader._file",
                "self._files.popitem(last=False)[1].close()",
                "self._files.popitem()[1].close()",
            ),
        ),
    ),
    Mutant(
        "entry-log-beyond-its-size",
        "STORAGE.md: directories and shards",
        "An entry log is full only when it has become too large.",
        (
            Edit(
                ENTRY_LOG_WRITER,
                "EntryLogWriter.append",
                "log.size + record_bytes(len(run)) > self._max_file_bytes",
                "log.size > self._max_file_bytes",
            ),
        ),
    ),
    Mutant(
        "full-buffer-not-synced",
        "STORAGE.md: flush",
        "Runs that end with a full buffer are written back and not synced.",
        (
            Edit(
                ENTRY_LOG_WRITER,
                "EntryLog.sync",
                "            self._write()\n        if not self._is_synced:\n",
                "            self._write()\n",
            ),
        ),
    ),
    Mutant(
        "not-ahead-is-absence",
        "PROTOCOL.md rule 7",
        "An entry that was not among those read ahead is not there.",
        (
            Edit(
                READ_AHEAD,
                "ShardReadAhead.read",
                "            if run is not None:\n                return run\n",
                "            return run\n",
            ),
        ),
    ),
    Mutant(
        "gap-is-jumped",
        "PROTOCOL.md rule 7",
        "A read of an entry that is not stored gets the next run behind it.",
        (
            Edit(
                STORED_READS,
                "StoredReads._runs",
                "            if stored.first_entry_id > entry_id:\n                break\n",
                "",
            ),
        ),
    ),
    Mutant(
        "range-begins-behind-a-gap",
        "PROTOCOL.md: READ_RANGES",
        "A range whose first entry is not stored gets the next run behind it.",
        (
            Edit(
                STORED_READS,
                "_Neighbours.runs",
                "if stored is None or stored.first_entry_id > entry_id:",
                "if stored is None:",
            ),
        ),
    ),
    Mutant(
        "damaged-range-is-absence",
        "PROTOCOL.md rule 7",
        "A range whose first run cannot be read is not there.",
        (
            Edit(
                STORED_READS,
                "StoredReads._ranges_of_runs",
                "                if not found:\n                    raise\n                break",
                "                break",
            ),
        ),
    ),
    Mutant(
        "run-of-the-range-before",
        "PROTOCOL.md: READ_RANGES",
        "The run that was read for one range is returned for another.",
        (
            Edit(
                STORED_READS,
                "_Neighbours._at",
                "stored, self._run = next(self._scan, None), None",
                "stored = next(self._scan, None)",
            ),
        ),
    ),
    Mutant(
        "place-in-another-file",
        "PROTOCOL.md: reads from files",
        "Places in several files are named as if they were in the first one.",
        (
            Edit(
                STORED_READS,
                "StoredReads.places",
                "                or (found and not found[-1].is_before(stored))\n",
                "",
            ),
        ),
    ),
    Mutant(
        "place-behind-a-gap",
        "PROTOCOL.md: reads from files",
        "Places of runs are named between which entries are missing.",
        (
            Edit(
                STORED_READS,
                "StoredReads.places",
                "stored.first_entry_id > entry_id\n                or wanted",
                "wanted",
            ),
        ),
    ),
)

MUTANTS = (*FORMATS, *STORED)
