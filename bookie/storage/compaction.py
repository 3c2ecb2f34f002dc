"""Compaction: what is left of old entry logs is copied to a new one, and they go.

    copy the runs ──► .compacting, synced ──► renamed .entrylog, directory synced
        ──► index: what still points to the old place points to the new one, one batch, durable
        ──► the old files are removed, directory synced ──► readers close them

Everything here blocks: work of the I/O thread of garbage collection (``gc/files.py``), but for the
index, which is written on the I/O thread that writes.

What if the process dies here? Before the rename: a start removes the file. Between rename and
index: nothing points to it, and a later pass removes it. After the index: nothing points to the old
files, and a later pass removes those. No run is ever without a whole copy that the index points to.

A run that is damaged is not copied, and so not moved: it stays where it is, with its file.
"""

from __future__ import annotations

from contextlib import suppress

from fencelog.bookie.format.numbered_files import file_ids, file_name
from fencelog.bookie.storage.entry_log import EntryLogReader, StoredRun, entry_log_name
from fencelog.bookie.storage.entry_log_writer import EntryLog, EntryLogPlace

COMPACTING_SUFFIX = ".compacting"
"""Of a new entry log that is not whole yet."""

MAX_COMPACTED_RUNS = 32 * 1024
"""In one file: what the index is to be told in one batch, while flushes wait."""


class EntryLogCompaction:
    """One new entry log, made of runs of old ones. Use it, then ``close`` it in any case."""

    def __init__(self, place: EntryLogPlace, file_id: int) -> None:
        """Raises OSError."""
        self._place = place
        self._file_id = file_id
        self._is_finished = self._is_closed = False
        try:
            self._log = EntryLog(place, file_id, file_name(file_id, COMPACTING_SUFFIX))
        except OSError:
            _try_to_remove(place)
            raise
        self.moves: list[tuple[StoredRun, StoredRun]] = []
        """Old and new place of each run."""

    @property
    def size(self) -> int:
        return self._log.size

    def copy(self, run: StoredRun, reader: EntryLogReader) -> None:
        """Raises FencelogError where the run cannot be read back whole; then it is not copied.
        Raises OSError where it cannot be written."""
        self.moves.append((run, self._log.append(reader.read(run))))

    def finish(self) -> None:
        """Make the file an entry log, durably. Raises OSError."""
        self._log.seal()
        directory = self._place.directory
        self._place.disk.rename(
            directory / file_name(self._file_id, COMPACTING_SUFFIX),
            directory / entry_log_name(self._file_id),
        )
        self._is_finished = True
        self._place.disk.sync_directory(directory)

    def close(self) -> None:
        """Removes the file unless it is finished; where that fails, a start does."""
        if self._is_closed:
            return
        self._is_closed = True
        self._log.close()
        if not self._is_finished:
            _try_to_remove(self._place)


def remove_unfinished(place: EntryLogPlace) -> None:
    """What was left by a copy that failed, or by a process that died while it copied. Raises
    OSError."""
    for file_id in file_ids(place.disk, place.directory, COMPACTING_SUFFIX):
        place.disk.remove(place.directory / file_name(file_id, COMPACTING_SUFFIX))


def _try_to_remove(place: EntryLogPlace) -> None:
    with suppress(OSError):
        remove_unfinished(place)


def remove_entry_log(place: EntryLogPlace, file_id: int) -> None:
    """Remove a file that nothing points to; durably, so that no start meets it. Raises OSError."""
    place.disk.remove(place.directory / entry_log_name(file_id))
    place.disk.sync_directory(place.directory)
