"""The reading of runs from index and entry logs. All calls block: they belong on the reading
thread."""

from __future__ import annotations

from fencelog.bookie.format.runs import Range
from fencelog.bookie.storage.entry_log import EntryLogReader
from fencelog.bookie.storage.index import Index
from fencelog.ledgers.errors import FencelogError


class StoredReads:
    """The runs that the index names, complete and verified."""

    def __init__(self, index: Index, reader: EntryLogReader) -> None:
        self._index = index
        self._reader = reader

    def runs(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> list[bytes]:
        """Return adjacent runs from the one that holds ``first_entry_id`` on, enough for both
        limits. An empty list: the entry is not stored, by an index that was read without error.

        Raises FencelogError: CORRUPT where the index names bytes that are not that run,
        STORAGE_FAILED where the disk does not return them.
        """
        try:
            return self._runs(ledger_id, first_entry_id, max_entries, max_bytes)
        except FencelogError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        # Compaction has moved the run, and the index with it, since we looked.
        return self._runs(ledger_id, first_entry_id, max_entries, max_bytes)

    def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """Return the ranges of wanted entries that are stored. Raises FencelogError(CORRUPT,
        STORAGE_FAILED)."""
        return self._index.ranges(ledger_id, wanted)

    def _runs(
        self, ledger_id: int, first_entry_id: int, max_entries: int, max_bytes: int
    ) -> list[bytes]:
        runs: list[bytes] = []
        entry_id, size = first_entry_id, 0
        for stored in self._index.runs_from(ledger_id, first_entry_id):
            if stored.first_entry_id > entry_id:
                break
            try:
                runs.append(self._reader.read(stored))
            except FencelogError:
                if not runs:
                    raise
                break  # the runs so far are good; a read of the damaged run itself reports it
            size += stored.size
            entry_id = stored.last_entry_id + 1
            if size >= max_bytes or entry_id - first_entry_id >= max_entries:
                break
        return runs
