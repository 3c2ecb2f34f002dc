"""Compaction: the live runs of old entry logs are copied to a new one, and the old ones removed.

    copy the runs ──► .compacting, synced ──► renamed .entrylog, directory synced
        ──► index: items that still point to the old place point to the new one, one batch, durable
        ──► the old files are removed, directory synced ──► readers close them

All calls here block: they belong on the I/O thread of garbage collection (``gc/files.py``), except
those of the index, which is written on the I/O thread that writes.

A crash is safe at every point. Before the rename, a start removes the file. Between rename and
index, no item points to it, and a later pass removes it. After the index, no item points to the old
files, and a later pass removes those. The index points to a complete copy of every run at any time.

A damaged run is not copied, and so not moved: it stays where it is, with its file.
"""

from __future__ import annotations

from contextlib import suppress

from fencelog.bookie.format.numbered_files import file_ids, file_name
from fencelog.bookie.storage.entry_log import EntryLogReader, StoredRun, entry_log_name
from fencelog.bookie.storage.entry_log_writer import EntryLog, EntryLogPlace

COMPACTING_SUFFIX = ".compacting"
"""The suffix of a new entry log that is not complete yet."""

MAX_COMPACTED_RUNS = 32 * 1024
"""Limit for the runs in one file: the index has to take them in one batch, while flushes wait."""


class EntryLogCompaction:
    """One new entry log, made of runs of old ones. The caller must ``close`` it in any case."""

    def __init__(self, place: EntryLogPlace, file_id: int) -> None:
        """Create the file. Raises OSError."""
        self._place = place
        self._file_id = file_id
        self._is_finished = self._is_closed = False
        try:
            self._log = EntryLog(place, file_id, file_name(file_id, COMPACTING_SUFFIX))
        except OSError:
            _try_to_remove(place)
            raise
        self.moves: list[tuple[StoredRun, StoredRun]] = []
        """The old and the new place of each run."""

    @property
    def size(self) -> int:
        return self._log.size

    def copy(self, run: StoredRun, reader: EntryLogReader) -> None:
        """Copy a run, unless it cannot be read back. Raises FencelogError where the run cannot be
        read back completely; then it is not copied. Raises OSError where it cannot be written."""
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
        """Close the file, and remove it unless it is finished; where the removal fails, a start
        does it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._log.close()
        if not self._is_finished:
            _try_to_remove(self._place)


def remove_unfinished(place: EntryLogPlace) -> None:
    """Remove the files of copies that failed, or were interrupted by a crash. Raises OSError."""
    for file_id in file_ids(place.disk, place.directory, COMPACTING_SUFFIX):
        place.disk.remove(place.directory / file_name(file_id, COMPACTING_SUFFIX))


def _try_to_remove(place: EntryLogPlace) -> None:
    with suppress(OSError):
        remove_unfinished(place)


def remove_entry_log(place: EntryLogPlace, file_id: int) -> None:
    """Remove a file that no item points to; durably, so that no start finds it. Raises OSError."""
    place.disk.remove(place.directory / entry_log_name(file_id))
    place.disk.sync_directory(place.directory)
