"""The index: which entry log holds which run, and the state of every ledger.

Keys are big-endian so that they sort as numbers; values are little-endian.

    "R" u64 ledger id, u64 LAST entry id -> u64 file id, u64 offset, u32 size, u32 entries
    "L" u64 ledger id                    -> state (ledger_state.py)
    "M"                                  -> u8 version 1, 7 zero bytes, u64 mark

A run is found under its last entry: the first key at or behind (ledger, e) is the run that holds e
or, where none does, the next one. Runs of a ledger never overlap. Everything with a journal
sequence below the mark is in the index; it moves in the same atomic write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from fencelog.bookie.disk import KeyValueStore
from fencelog.bookie.entry_log import StoredRun
from fencelog.bookie.ledger_state import LedgerState, decode_state
from fencelog.bookie.runs import Range
from fencelog.ledgers.errors import ErrorCode, FencelogError

_RUN_KEY = struct.Struct(">cQQ")
_LEDGER_KEY = struct.Struct(">cQ")
_LOCATION = struct.Struct("<QQII")
_MARK_KEY = b"M"
_MARK = struct.Struct("<B7xQ")
_VERSION = 1
_LAST_ENTRY = (1 << 64) - 2


class Index:
    """Typed access to the store. Its methods block: they are lane work. They raise
    FencelogError(STORAGE_FAILED) when the store cannot be read, CORRUPT for senseless values."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

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
        and of those that end in the entries ``replaced``; all of it is durable on return. Raises
        OSError, after which the bookie has to stop."""
        delete = [_run_keys(ledger_id, (0, _LAST_ENTRY)) for ledger_id in removed]
        delete += [_run_keys(*entries) for entries in replaced]
        self._store.write(_items(runs, states, mark), delete=delete)

    def mark(self) -> int:
        """Journal sequence up to which (exclusive) everything is here."""
        try:
            data = self._store.get(_MARK_KEY)
        except OSError as error:
            raise _failed(error) from error
        if data is None or len(data) != _MARK.size or data[0] != _VERSION:
            raise FencelogError(ErrorCode.CORRUPT, "index has no valid mark")
        return int(_MARK.unpack(data)[1])

    def runs_from(self, ledger_id: int, entry_id: int) -> Iterator[StoredRun]:
        """Runs of a ledger in entry order, from the one that holds ``entry_id`` or follows it."""
        try:
            for key, value in self._store.scan(*_run_keys(ledger_id, (entry_id, _LAST_ENTRY))):
                last = _RUN_KEY.unpack(key)[2]
                file_id, offset, size, count = _LOCATION.unpack(value)
                yield StoredRun(ledger_id, last - count + 1, last, file_id, offset, size)
        except OSError as error:
            raise _failed(error) from error
        except struct.error as error:
            raise FencelogError(
                ErrorCode.CORRUPT, f"index of ledger {ledger_id} is not valid: {error}"
            ) from error

    def ranges(self, ledger_id: int, wanted: Range) -> list[Range]:
        """The stored runs that hold any of the entries wanted."""
        found: list[Range] = []
        for run in self.runs_from(ledger_id, wanted[0]):
            if run.first_entry_id > wanted[1]:
                break
            found.append((run.first_entry_id, run.last_entry_id))
        return found

    def states(self) -> Iterator[tuple[int, LedgerState]]:
        """All the ledgers that the bookie knows."""
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
    """First key, and the one behind the last, of runs whose last entry is in a range."""
    first, last = last_entries
    return _RUN_KEY.pack(b"R", ledger_id, first), _RUN_KEY.pack(b"R", ledger_id, last + 1)


def _items(
    runs: Iterable[StoredRun], states: Iterable[tuple[int, bytes]], mark: int
) -> Iterator[tuple[bytes, bytes]]:
    for run in runs:
        count = run.last_entry_id - run.first_entry_id + 1
        yield (
            _RUN_KEY.pack(b"R", run.ledger_id, run.last_entry_id),
            _LOCATION.pack(run.file_id, run.offset, run.size, count),
        )
    for ledger_id, state in states:
        yield _LEDGER_KEY.pack(b"L", ledger_id), state
    yield _MARK_KEY, _MARK.pack(_VERSION, mark)


def _failed(error: OSError) -> FencelogError:
    return FencelogError(ErrorCode.STORAGE_FAILED, f"index cannot be read: {error}")
