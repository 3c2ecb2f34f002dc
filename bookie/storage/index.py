"""The index: the location of every run in the entry logs, and the state of every ledger.

Keys are big-endian so that they sort as numbers; values are little-endian.

    "R" u64 ledger id, u64 LAST entry id -> u64 file id, u64 offset, u32 size, u32 entries
    "L" u64 ledger id                    -> state (format/ledger_state.py)
    "M"                                  -> u8 version 1, 7 zero bytes, u64 mark

The key of a run has its last entry: the first key at or behind (ledger, e) is the run that holds e
or, where none does, the next one. Runs of a ledger never overlap. All records with a journal
sequence below the mark are in the index; the mark moves in the same atomic write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from fencelog.bookie.disk.port import KeyValueStore
from fencelog.bookie.format.ledger_state import BookieLedgerState, decode_state
from fencelog.bookie.format.records import record_bytes
from fencelog.bookie.format.runs import Range
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.ledgers.errors import ErrorCode, FencelogError

_RUN_KEY = struct.Struct(">cQQ")
_LEDGER_KEY = struct.Struct(">cQ")
_LOCATION = struct.Struct("<QQII")
_MARK_KEY = b"M"
_MARK = struct.Struct("<B7xQ")
FIRST = b"R"
"""The position of ``Index.runs_behind`` before all runs."""
_RUNS_END = b"S"
_VERSION = 1
_LAST_ENTRY = (1 << 64) - 2


class Index:
    """Typed access to the store. Its methods block: call them on an I/O thread. They raise
    FencelogError(STORAGE_FAILED) when the store cannot be read, CORRUPT for invalid values."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._has_failed = False

    def write(
        self,
        runs: Iterable[StoredRun],
        states: Iterable[tuple[int, bytes]],
        *,
        mark: int,
        removed: Iterable[int] = (),
        replaced: Iterable[tuple[int, Range]] = (),
    ) -> None:
        """Add runs that are durable in entry logs, in place of all runs of the ledgers ``removed``
        and of those that begin or end in the entries ``replaced``; all of it is durable on return.
        Raises OSError, FencelogError, after which the bookie has to stop."""
        delete = [_run_keys(ledger_id, (0, _LAST_ENTRY)) for ledger_id in removed]
        delete += [_run_keys(*self._with_last_run(*entries)) for entries in replaced]
        self._write(_items(runs, states, mark), delete)

    def _with_last_run(self, ledger_id: int, entries: Range) -> tuple[int, Range]:
        """Return the entries, and those of the run that begins among them and goes on behind: the
        ledger ended within it."""
        first, last = entries
        following = next(self.runs_from(ledger_id, last + 1), None)
        if following is not None and first <= following.first_entry_id <= last:
            last = following.last_entry_id
        return ledger_id, (first, last)

    def repoint(self, moves: Iterable[tuple[StoredRun, StoredRun]]) -> int:
        """Change the items that still point to the first place of a move to point to the second,
        durable in an entry log too: runs that were removed or replaced meanwhile stay so. All of it
        is durable on return. Return how many were moved. Call it on the I/O thread of ``write``, so
        that no write comes between the check and the change. Raises as ``write``, and
        FencelogError."""
        try:
            items = [
                (_run_key(old), _location(new))
                for old, new in moves
                if self._store.get(_run_key(old)) == _location(old)
            ]
        except OSError as error:
            raise _failed(error) from error
        if items:
            self._write(items)
        return len(items)

    def check_durable(self) -> None:
        """Check that all that could be read so far is on the disk. Call it on the I/O thread of
        ``write``. Raises FencelogError(STORAGE_FAILED) once a write has failed: its items may be
        visible."""
        if self._has_failed:
            raise _failed(OSError("a write has failed"))

    def _write(
        self, items: Iterable[tuple[bytes, bytes]], delete: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        try:
            self._store.write(items, delete=delete)
        except OSError:
            self._has_failed = True
            raise

    def mark(self) -> int:
        """Return the journal sequence up to which (exclusive) all records are here."""
        try:
            data = self._store.get(_MARK_KEY)
        except OSError as error:
            raise _failed(error) from error
        if data is None or len(data) != _MARK.size or data[0] != _VERSION:
            raise FencelogError(ErrorCode.CORRUPT, "index has no valid mark")
        return int(_MARK.unpack(data)[1])

    def runs_from(self, ledger_id: int, entry_id: int) -> Iterator[StoredRun]:
        """Yield the runs of a ledger in entry order, from the one that holds ``entry_id`` or
        follows it."""
        try:
            for key, value in self._store.scan(*_run_keys(ledger_id, (entry_id, _LAST_ENTRY))):
                yield _stored_run(key, value)
        except OSError as error:
            raise _failed(error) from error
        except struct.error as error:
            raise FencelogError(
                ErrorCode.CORRUPT, f"index of ledger {ledger_id} is not valid: {error}"
            ) from error

    def runs_behind(self, position: bytes, most: int) -> tuple[list[StoredRun], bytes | None]:
        """Return the first runs of all behind a position (``FIRST``), ascending by ledger and
        entry, and the position to go on from; None: there are no more."""
        items, rest = self._items_behind(position, most)
        try:
            return [_stored_run(key, value) for key, value in items], rest
        except struct.error as error:
            raise FencelogError(ErrorCode.CORRUPT, f"index: {error}") from error

    def bytes_behind(self, position: bytes, most: int) -> tuple[dict[int, int], bytes | None]:
        """Return the same as ``runs_behind``, summed up: bytes of records by entry log."""
        items, rest = self._items_behind(position, most)
        sizes: dict[int, int] = {}
        try:
            for _, value in items:
                file_id, _, size, _ = _LOCATION.unpack(value)
                sizes[file_id] = sizes.get(file_id, 0) + record_bytes(size)
        except struct.error as error:
            raise FencelogError(ErrorCode.CORRUPT, f"index: {error}") from error
        return sizes, rest

    def _items_behind(
        self, position: bytes, most: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        try:
            items = list(islice(self._store.scan(position, _RUNS_END), most))
        except OSError as error:
            raise _failed(error) from error
        return items, items[-1][0] + b"\0" if len(items) == most else None

    def compact(self, first_ledger_id: int, last_ledger_id: int) -> None:
        """Compact the range of these ledgers and those between, most of whose runs were removed, so
        that the remains do not slow down scans."""
        first, _ = _run_keys(first_ledger_id, (0, _LAST_ENTRY))
        _, end = _run_keys(last_ledger_id, (0, _LAST_ENTRY))
        try:
            self._store.compact(first, end)
        except OSError as error:
            raise _failed(error) from error

    def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """Return the ranges of stored runs that hold any of the wanted entries."""
        found: list[Range] = []
        for run in self.runs_from(ledger_id, wanted[0]):
            if run.first_entry_id > wanted[1]:
                break
            found.append((run.first_entry_id, run.last_entry_id))
        return found

    def states(self) -> Iterator[tuple[int, BookieLedgerState]]:
        """Yield the states of all ledgers that the bookie knows."""
        try:
            for key, value in self._store.scan(b"L", b"M"):
                ledger_id = _LEDGER_KEY.unpack(key)[1]
                yield ledger_id, decode_state(ledger_id, value)
        except OSError as error:
            raise _failed(error) from error
        except struct.error as error:
            raise FencelogError(ErrorCode.CORRUPT, f"index: {error}") from error

    def close(self) -> None:
        self._store.close()


def _run_keys(ledger_id: int, last_entries: Range) -> tuple[bytes, bytes]:
    """Return the first key, and the one behind the last, of runs whose last entry is in a range."""
    first, last = last_entries
    return _RUN_KEY.pack(b"R", ledger_id, first), _RUN_KEY.pack(b"R", ledger_id, last + 1)


def _run_key(run: StoredRun) -> bytes:
    return _RUN_KEY.pack(b"R", run.ledger_id, run.last_entry_id)


def _location(run: StoredRun) -> bytes:
    count = run.last_entry_id - run.first_entry_id + 1
    return _LOCATION.pack(run.file_id, run.offset, run.size, count)


def _stored_run(key: bytes, value: bytes) -> StoredRun:
    _, ledger_id, last = _RUN_KEY.unpack(key)
    file_id, offset, size, count = _LOCATION.unpack(value)
    return StoredRun(ledger_id, last - count + 1, last, file_id, offset, size)


def _items(
    runs: Iterable[StoredRun], states: Iterable[tuple[int, bytes]], mark: int
) -> Iterator[tuple[bytes, bytes]]:
    for run in runs:
        yield _run_key(run), _location(run)
    for ledger_id, state in states:
        yield _LEDGER_KEY.pack(b"L", ledger_id), state
    yield _MARK_KEY, _MARK.pack(_VERSION, mark)


def _failed(error: OSError) -> FencelogError:
    return FencelogError(ErrorCode.STORAGE_FAILED, f"index cannot be read: {error}")
