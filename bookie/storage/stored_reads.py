"""The reading of runs from index and entry logs. All calls block: they belong on the reading
thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from fencelog.bookie.format.runs import Range, join_runs
from fencelog.bookie.storage.entry_log import EntryLogReader, StoredRun
from fencelog.bookie.storage.index import Index
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.limits import MAX_PLACED_PATH_BYTES, MAX_PLACED_RUNS, MIN_PLACED_BYTES
from fencelog.ledgers.rpc.places import PlacedRuns

_NEAR = 64
"""Entries up to which the next wanted run is looked for behind the last one, not in the index."""


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

    def places(
        self, ledger_id: int, first_entry_id: int, *, max_entries: int, max_bytes: int
    ) -> PlacedRuns | None:
        """Return where adjacent runs from the one that holds ``first_entry_id`` on are in a file,
        ascending, within ``max_bytes``, each with MIN_PLACED_BYTES at least of what is wanted;
        None: there is none. They are durable, as all that the index names, and not read.

        Raises FencelogError, OSError: an ordinary read says what is there.
        """
        found: list[StoredRun] = []
        entry_id, size = first_entry_id, 0
        end = first_entry_id + max_entries
        for stored in self._index.runs_from(ledger_id, first_entry_id):
            wanted = min(end, stored.last_entry_id + 1) - entry_id
            if (
                stored.first_entry_id > entry_id
                or wanted * stored.size < MIN_PLACED_BYTES * stored.entries
                or size + stored.size > max_bytes
                or (found and not found[-1].is_before(stored))
                or len(found) == MAX_PLACED_RUNS
            ):
                break
            found.append(stored)
            entry_id, size = stored.last_entry_id + 1, size + stored.size
        if not found:
            return None
        path, head = self._reader.head(found[0].file_id)
        name = os.fsencode(path)
        if len(name) > MAX_PLACED_PATH_BYTES:
            return None
        return PlacedRuns(name, head, [(stored.offset, stored.size) for stored in found])

    def ranges_of_runs(
        self, ledger_id: int, wanted: Sequence[Range], *, max_bytes: int
    ) -> list[bytes]:
        """Return a run with the beginning of each wanted range that is stored, ascending, up to a
        size, but at least one. An empty list: the first entry of none is stored, by an index that
        was read without error. Raises as ``runs``."""
        try:
            return self._ranges_of_runs(ledger_id, wanted, max_bytes)
        except FencelogError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        return self._ranges_of_runs(ledger_id, wanted, max_bytes)  # as in ``runs``

    def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """Return the ranges of wanted entries that are stored. Raises FencelogError(CORRUPT,
        STORAGE_FAILED)."""
        return self._index.ranges(ledger_id, wanted)

    def _ranges_of_runs(
        self, ledger_id: int, wanted: Sequence[Range], max_bytes: int
    ) -> list[bytes]:
        found: list[bytes] = []
        size = 0
        neighbours = _Neighbours(self._index, self._reader, ledger_id)
        for first, last in wanted:
            try:
                runs = neighbours.runs(first, last, max_bytes - size)
            except FencelogError:
                if not found:
                    raise
                break  # the runs so far are good; a read of the damaged run itself reports it
            if runs:
                run = join_runs(runs, first, max_entries=last - first + 1, max_bytes=max_bytes)
                found.append(run)
                size += len(run)
            if size >= max_bytes:
                break
        return found

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


class _Neighbours:
    """The stored runs of a ledger, which are wanted in ascending order: one scan of the index finds
    those that are near one another, and a run that holds several wanted ranges is read once."""

    def __init__(self, index: Index, reader: EntryLogReader, ledger_id: int) -> None:
        self._index = index
        self._reader = reader
        self._ledger_id = ledger_id
        self._scan: Iterator[StoredRun] = iter(())
        self._stored: StoredRun | None = None
        self._run: bytes | None = None
        self._is_over = False

    def runs(self, first: int, last: int, max_bytes: int) -> list[bytes]:
        """Return adjacent runs from the one that holds ``first`` on, up to ``last`` or a size; none
        if it is not stored. Raises FencelogError: the first of them cannot be read."""
        runs: list[bytes] = []
        entry_id, size = first, 0
        while entry_id <= last and (not runs or size < max_bytes):
            stored = self._at(entry_id)
            if stored is None or stored.first_entry_id > entry_id:
                break
            try:
                if self._run is None:
                    self._run = self._reader.read(stored)
            except FencelogError:
                if not runs:
                    raise
                break
            runs.append(self._run)
            size += stored.size
            entry_id = stored.last_entry_id + 1
        return runs

    def _at(self, entry_id: int) -> StoredRun | None:
        """Return the run that holds the entry, or the next one behind it."""
        stored = self._stored
        while not self._is_over and (stored is None or stored.last_entry_id < entry_id):
            if stored is None or entry_id - stored.last_entry_id > _NEAR:
                self._scan = self._index.runs_from(self._ledger_id, entry_id)
            stored, self._run = next(self._scan, None), None
            self._is_over = stored is None
        self._stored = stored
        return stored
