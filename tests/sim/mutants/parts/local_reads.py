"""Wrong reads from the files of a bookie on the same machine: whose file it is, and what becomes of
a read that fails."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CLIENT = "fencelog.ledgers.rpc.local_reads"
FILES = "fencelog.spark_connector.read.local_files"
READER = "fencelog.ledgers.reader.entry_reads"
READS = "fencelog.bookie.engine.reads"

_LOCAL = "PROTOCOL.md: reads from files"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "file-of-another-bookie-read",
        _LOCAL,
        "A file is taken for the bookie's because it has the path that the bookie named.",
        (
            Edit(
                FILES,
                "_read",
                "if os.pread(descriptor, len(wanted.head), 0) != wanted.head:",
                "if not os.pread(descriptor, len(wanted.head), 0):",
            ),
        ),
    ),
    Mutant(
        "place-of-a-replaced-run",
        _LOCAL,
        "The place of a damaged run is named although its replacement is in the write cache.",
        (
            Edit(
                READS,
                "Reads.places",
                "first_entry_id <= state.last_entry and not self._cache.collect(",
                "first_entry_id <= state.last_entry or not self._cache.collect(",
            ),
        ),
    ),
    Mutant(
        "vanished-file-fails-the-read",
        _LOCAL,
        "A read whose file was removed since its place was named is not sent to the bookie.",
        (
            Edit(
                CLIENT,
                "LocalReadsClient._from_file",
                "        if data is None:\n            return None\n",
                '        if data is None:\n            raise self._corrupt("no file", ledger_id)\n',
            ),
        ),
    ),
    Mutant(
        "other-runs-are-damage",
        _LOCAL,
        "A file that holds other runs at the places is damage, instead of the bookie being asked.",
        (
            Edit(
                CLIENT,
                "LocalReadsClient._from_file",
                "if following is None:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "places-of-another-entry",
        _LOCAL,
        "Places that are left from an earlier read are read whichever entry is wanted.",
        (
            Edit(
                CLIENT,
                "LocalReadsClient.read",
                "if ahead is not None and ahead[:2] == (ledger_id, first_entry_id):",
                "if ahead is not None:",
            ),
        ),
    ),
    Mutant(
        "damage-behind-the-first-run-fails-it-too",
        _LOCAL,
        "One damaged run fails the read of all those that were read from the file with it.",
        (
            Edit(
                READER,
                "verified_reply",
                "        if len(reply.places) == 1:\n            raise\n",
                "        raise\n",
            ),
        ),
    ),
)
"""Mutants of parts that no simulator runs, which the tests of these parts detect."""
