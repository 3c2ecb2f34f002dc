"""The replay of the journal after a crash, and the decision where it ends.

The journal ends at the first position without a valid record of the next sequence number. That may
be the rest of a group that was not acknowledged (a torn tail), or damage to an acknowledged one. It
is damage, and the bookie refuses to start, when anything shows that the record had been synced: a
later record that states it, or a later file (begun only after the file before it was synced). A
file that is shorter than it was made to be, or without a complete header, is damaged: both were
durable before it was called a journal file.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from fencelog.bookie.disk.port import Disk, File
from fencelog.bookie.format.records import (
    FILE_HEADER_BYTES,
    JOURNAL_MAGIC,
    Fetch,
    FileHeader,
    Record,
    decode_file_header,
    find_durable_record,
    read_record,
)
from fencelog.bookie.journal.file import JournalPosition, journal_ids, journal_name
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

_WINDOW_BYTES = 4 * MIB


def windowed(file: File, window: int = _WINDOW_BYTES) -> Fetch:
    """Return a fetch function with read-ahead, for reading a file from front to back."""
    start, data = 0, b""

    def fetch(offset: int, size: int) -> bytes:
        nonlocal start, data
        at = offset - start
        if at < 0 or at + size > len(data):
            start, data, at = offset, file.read(offset, max(size, window)), 0
        return data[at : at + size]

    return fetch


def corrupt(path: Path, offset: int, what: str) -> FencelogError:
    return FencelogError(
        ErrorCode.CORRUPT, f"{path} at offset {offset}: {what}", path=str(path), offset=offset
    )


class JournalReplay:
    """The records from a checkpoint to the end of the journal. Its methods block: call them on an
    I/O thread.

    When it is done, ``position`` is the end and ``last_file_id`` the highest file id in use. All
    records that it returns are durable, since the bookie's answers will rely on them: records that
    the journal does not prove to have been synced are written again and synced first.
    """

    def __init__(
        self, disk: Disk, directory: Path, *, start: JournalPosition, incarnation: bytes
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._incarnation = incarnation
        self._file: File | None = None
        self._fetch: Fetch = lambda _offset, _size: b""
        self._seed = 0
        self.position = start
        self._ids = [i for i in journal_ids(disk, directory) if i >= start.file_id]
        self.last_file_id = self._ids[-1] if self._ids else start.file_id
        if not self._ids or self._ids[0] != start.file_id:
            raise corrupt(directory / journal_name(start.file_id), 0, "journal file is missing")
        self._open(self._ids.pop(0))
        self.position = start

    def next_records(self, max_bytes: int) -> list[tuple[Record, JournalPosition]]:
        """Return the next records, each with the position behind it; an empty list at the end.

        Raises FencelogError(CORRUPT) naming file and offset.
        """
        records: list[tuple[Record, JournalPosition]] = []
        size = 0
        while self._file is not None and size < max_bytes:
            at = self.position
            record = read_record(self._fetch, at.offset, seed=self._seed)
            if record is None or record.sequence != at.sequence:
                self._end_of_file(record)
                continue
            self.position = JournalPosition(at.sequence + 1, at.file_id, record.end)
            records.append((record, self.position))
            size += record.end - at.offset
        return records

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- files -------------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        return self._directory / journal_name(self.position.file_id)

    def _open(self, file_id: int) -> None:
        """Continue with a file."""
        path = self._directory / journal_name(file_id)
        file = self._disk.open(path)
        try:
            header = decode_file_header(file.read(0, FILE_HEADER_BYTES))
            if header is None:
                raise corrupt(path, 0, "journal file header is damaged")
            self._check_header(header, path, file_id)
            if file.size() < header.reserved:
                raise corrupt(path, file.size(), "journal file is cut off")
            if path == self._path and file.size() < self.position.offset:
                raise corrupt(path, file.size(), "journal file is cut off before the checkpoint")
            start = JournalPosition(header.first_sequence, file_id, FILE_HEADER_BYTES)
            if not self._ids:
                _make_durable(file, max(start, self.position), seed=header.seed)
        except BaseException:
            file.close()
            raise
        self._file, self._fetch, self._seed = file, windowed(file), header.seed
        self.position = start

    def _check_header(self, header: FileHeader, path: Path, file_id: int) -> None:
        if header.magic != JOURNAL_MAGIC or header.file_id != file_id:
            raise corrupt(path, 0, "is not this journal file")
        if header.incarnation != self._incarnation:
            raise corrupt(path, 0, "belongs to another data directory")

    def _end_of_file(self, record: Record | None) -> None:
        """Handle a missing next record: it is the end of this file, of the journal, or damage."""
        file, at = self._file, self.position
        if file is None:
            return
        found = find_durable_record(
            file.read, at.offset, size=file.size(), seed=self._seed, sequence=at.sequence
        )
        if found is not None or record is not None:
            raise corrupt(
                self._path,
                at.offset,
                f"journal record {at.sequence} is damaged; it had been synced and records follow",
            )
        path = self._path
        file.drop_cache(0, file.size())
        file.close()
        self._file = None
        if self._ids:
            self._open(self._ids.pop(0))
            if self.position.sequence != at.sequence:
                raise corrupt(
                    path,
                    at.offset,
                    f"journal record {at.sequence} is missing; the next file begins with "
                    f"{self.position.sequence}",
                )


def _make_durable(file: File, start: JournalPosition, *, seed: int) -> None:
    """Write the tail of the last file again, from the first record on that no later one proves to
    have been synced, and sync it.

    Bytes written by a killed process may be in the page cache only. A sync alone is not enough:
    after one that failed, the cache may hold bytes that the disk lacks, marked as clean (rule 9).
    """
    fetch = windowed(file)
    end, sequence = start.offset, start.sequence
    unproven: deque[tuple[int, int]] = deque()
    while (record := read_record(fetch, end, seed=seed)) and record.sequence == sequence:
        unproven.append((sequence, end))
        while unproven and unproven[0][0] <= record.durable:
            unproven.popleft()
        end, sequence = record.end, sequence + 1
    first = unproven[0][1] if unproven else end
    for at in range(first, end, _WINDOW_BYTES):
        file.write([file.read(at, min(_WINDOW_BYTES, end - at))], at)
    file.sync()
