"""The content of an index, item by item, including inconsistent items."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fencelog.bookie.disk.port import KeyValueStore
from fencelog.bookie.format.ledger_state import BookieLedgerState
from fencelog.bookie.offline.inspect_records import Item
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.bookie.storage.index import Index
from fencelog.ledgers.errors import ErrorCode, FencelogError

_RUN_KEY = struct.Struct(">cQQ")
_LOCATION = struct.Struct("<QQII")


@dataclass(slots=True)
class IndexedLedger:
    """The items of one ledger in the index. ``runs`` are to be taken before the next ledger."""

    ledger_id: int
    state: BookieLedgerState | None
    runs: Iterator[StoredRun]


def index_runs(store: KeyValueStore) -> Iterator[StoredRun]:
    """Yield all runs, by ledger and entry. Raises OSError, FencelogError(CORRUPT)."""
    for key, value in store.scan(b"R", b"S"):
        yield _decode_run(key, value)


def index_ledgers(store: KeyValueStore) -> Iterator[IndexedLedger]:
    """Yield all ledgers that have a state or runs, ascending. Raises OSError, FencelogError."""
    runs = _Peekable(index_runs(store))
    for ledger_id, state in Index(store).states():
        while (run := runs.peek()) is not None and run.ledger_id < ledger_id:
            yield IndexedLedger(run.ledger_id, None, runs.of_ledger(run.ledger_id))
        yield IndexedLedger(ledger_id, state, runs.of_ledger(ledger_id))
    while (run := runs.peek()) is not None:
        yield IndexedLedger(run.ledger_id, None, runs.of_ledger(run.ledger_id))


def inspect_index(store: KeyValueStore) -> Iterator[Item]:
    """Yield the mark, then the runs, state and totals of each ledger. Raises OSError,
    FencelogError."""
    yield {"mark": Index(store).mark()}
    for ledger in index_ledgers(store):
        count = entries = size = 0
        for run in ledger.runs:
            yield describe_run(run)
            count += 1
            entries += run.last_entry_id - run.first_entry_id + 1
            size += run.size
        totals = {"runs": count, "entries": entries, "bytes": size}
        yield {"ledger": ledger.ledger_id} | describe_state(ledger.state) | totals


def describe_run(run: StoredRun) -> Item:
    return {
        "run of": run.ledger_id,
        "first": run.first_entry_id,
        "last": run.last_entry_id,
        "file": run.file_id,
        "offset": run.offset,
        "bytes": run.size,
    }


def describe_state(state: BookieLedgerState | None) -> Item:
    if state is None:
        return {"state": "missing"}
    flags = {"fenced": state.fenced, "limbo": state.limbo, "deleted": state.deleted}
    names = [name for name, is_set in flags.items() if is_set]
    return {"state": "+".join(names) or "open", "last entry": state.last_entry, "lac": state.lac}


class _Peekable:
    """An iterator of runs with a look at the next one."""

    def __init__(self, runs: Iterator[StoredRun]) -> None:
        self._runs = runs
        self._next = next(runs, None)

    def peek(self) -> StoredRun | None:
        return self._next

    def of_ledger(self, ledger_id: int) -> Iterator[StoredRun]:
        while self._next is not None and self._next.ledger_id == ledger_id:
            run = self._next
            self._next = next(self._runs, None)
            yield run


def _decode_run(key: bytes, value: bytes) -> StoredRun:
    try:
        _letter, ledger_id, last = _RUN_KEY.unpack(key)
        file_id, offset, size, count = _LOCATION.unpack(value)
    except struct.error as error:
        raise FencelogError(
            ErrorCode.CORRUPT, f"index: {key.hex()} -> {value.hex()} is no run: {error}"
        ) from error
    return StoredRun(ledger_id, last - count + 1, last, file_id, offset, size)
