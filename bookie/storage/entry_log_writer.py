"""The writing of entry logs (their format: ``storage/entry_log.py``). All calls block: make them on
an I/O thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fencelog.bookie.disk.port import Buffer, Disk, File
from fencelog.bookie.format.records import (
    ENTRY_LOG_MAGIC,
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    FileHeader,
    RecordType,
    encode_records,
    record_bytes,
)
from fencelog.bookie.storage.entry_log import (
    StoredRun,
    encode_footer,
    entry_log_ids,
    entry_log_name,
)
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.limits import MIB

_WRITE_BYTES = 1 * MIB
"""Bytes written at a time, and written back to the disk before the next ones. The disk never has
more than this of a flush before it, so that the journal, whose syncs adds wait for, gets its turn
every few ms. A sync of each would commit the growing file's size and blocks as well, every time."""


@dataclass(frozen=True, slots=True)
class EntryLogPlace:
    """The directory of a shard's entry logs, and the fields of their headers."""

    disk: Disk
    directory: Path
    incarnation: bytes
    salt: Callable[[], bytes]
    """A function that returns 16 random bytes, different for each file."""


class EntryLog:
    """One entry log that is being written, under any name. After an OSError it can only be
    closed."""

    def __init__(self, place: EntryLogPlace, file_id: int, name: str) -> None:
        """Create the file; its name is durable on return, and so is its header. Raises OSError."""
        self.file_id = file_id
        header = FileHeader(ENTRY_LOG_MAGIC, file_id, 1, place.incarnation, place.salt())
        self._seed = header.seed
        self._written = 0
        """Number of records written."""
        self.size = FILE_HEADER_BYTES
        """The offset of the next record."""
        self._sizes: dict[int, int] = {}
        self._records: list[tuple[RecordType, Buffer]] = []
        """The records to be written, and their size in the file."""
        self._buffered = 0
        self._is_synced = True
        """False: records were written since the last sync."""
        self._file: File = place.disk.create(place.directory / name)
        try:
            self._file.write([header.encode()], 0)
            self._file.sync()
            place.disk.sync_directory(place.directory)
        except BaseException:
            self._file.close()
            raise

    def append(self, run: bytes) -> StoredRun:
        """Write a run; it is durable after ``sync``. Raises OSError."""
        header = read_run_header(run)
        stored = StoredRun(
            header.ledger_id,
            header.first_entry_id,
            header.last_entry_id,
            self.file_id,
            self.size + RECORD_HEADER_BYTES,
            header.size,
        )
        size = record_bytes(header.size)
        self._records.append((RecordType.RUN, run))
        self._buffered += size
        self.size += size
        self._sizes[header.ledger_id] = self._sizes.get(header.ledger_id, 0) + size
        if self._buffered >= _WRITE_BYTES:
            size = self._buffered
            self._write()
            self._file.write_back(self.size - size, size)
        return stored

    def sync(self) -> None:
        """Make all appended runs durable. Raises OSError."""
        if self._records:
            self._write()
        if not self._is_synced:
            self._file.sync()
            self._is_synced = True

    def _write(self) -> None:
        """Write the records that are buffered. Raises OSError."""
        buffers = encode_records(
            self._records, sequence=self._written + 1, durable=0, seed=self._seed
        )
        self._is_synced = False
        self._file.write(buffers, self.size - self._buffered)
        self._written += len(self._records)
        self._records, self._buffered = [], 0

    def seal(self) -> None:
        """Write the footer; no run may be appended after it. Raises OSError."""
        self.sync()
        self._file.write([encode_footer(self._sizes, offset=self.size, seed=self._seed)], self.size)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class EntryLogWriter:
    """A writer that appends runs to the newest entry log. Files get numbers that no file ever had:
    the file with the highest number stays (``gc/core.py``), so a start finds it."""

    def __init__(self, place: EntryLogPlace, *, max_file_bytes: int) -> None:
        self._place = place
        self._max_file_bytes = max_file_bytes
        ids = entry_log_ids(place.disk, place.directory)
        self.last_id = ids[-1] if ids else 0
        """The highest number that was given to a file."""
        self._log: EntryLog | None = None

    @property
    def current_id(self) -> int | None:
        """Return the id of the file that is being written; None before the first."""
        return None if self._log is None else self._log.file_id

    def next_id(self) -> int:
        """Reserve a number for a file of the caller's own."""
        self.last_id += 1
        return self.last_id

    def append(self, runs: Iterable[bytes]) -> list[StoredRun]:
        """Write the runs; they are durable on return, and so are the names of new files. Raises
        OSError, after which the writer is not to be used again."""
        stored: list[StoredRun] = []
        for run in runs:
            log = self._log
            if log is None or log.size + record_bytes(len(run)) > self._max_file_bytes:
                log = self.roll()
            stored.append(log.append(run))
        if self._log is not None:
            self._log.sync()
        return stored

    def roll(self) -> EntryLog:
        """Seal the file that is being written, and begin the next one. Runs synced before stay
        durable, and after an error the next ``append`` begins another file. Raises OSError."""
        if self._log is not None:
            log, self._log = self._log, None
            try:
                log.seal()
            finally:
                log.close()
        file_id = self.next_id()
        self._log = EntryLog(self._place, file_id, entry_log_name(file_id))
        return self._log

    def close(self) -> None:
        """Close the file without a footer: a start does not continue it."""
        if self._log is not None:
            self._log.close()
            self._log = None
