"""The headers of many entries at once, as columns: a reply of small entries has thousands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    HEADER,
    KIND_COMPACTED,
    RANGE,
    VERSION,
    read_entry_header,
)
from fencelog.ledgers.format.run import Entry
from fencelog.spark_connector.read.verified_run import VerifiedRun

_HEADER = np.dtype(
    [
        ("version", "u1"),
        ("kind", "u1"),
        ("header_bytes", "<u2"),
        ("count", "<u4"),
        ("first_number", "<u8"),
        ("publish_time_us", "<i8"),
        ("range_count", "<u4"),
        ("link", "<u4"),
    ]
)
"""The fields of an entry's header, as ``entry_header`` lays them out."""

_BATCH_SIZE_END = 20
"""The end of the field of a batch's header that says how large its body is, uncompressed."""


class EntryTable:
    """Consecutive entries with the fields of their headers, checked as ``read_entry_header`` checks
    them. ``sizes``: bytes of their payloads."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Read the headers. Raises FencelogError(CORRUPT) naming an entry whose header is not
        valid."""
        self._entries = entries
        run = entries if isinstance(entries, VerifiedRun) else _joined(entries)
        self._data, self._starts, self.sizes = run.data, run.starts, run.sizes
        if self.sizes.min() < HEADER.size:
            self._refuse(self.sizes < HEADER.size)
        headers = _gathered(self._data, self._starts, _HEADER)
        self.kinds = headers["kind"]
        self.header_bytes = headers["header_bytes"].astype(np.int64)
        self.counts = headers["count"].astype(np.int64)
        self.first_numbers = headers["first_number"].astype(np.int64)
        self.publish_times = headers["publish_time_us"]
        self.next_numbers = self.first_numbers + self.counts
        self._refuse(
            (headers["version"] != VERSION)
            | (self.kinds > KIND_COMPACTED)
            | (self.header_bytes != HEADER.size + RANGE.size * headers["range_count"].astype(int))
            | (self.header_bytes > self.sizes)
        )

    def _refuse(self, wrong: NDArray[np.bool_]) -> None:
        """Raise the error of the first entry that is wrong, if there is one."""
        for index in np.flatnonzero(wrong).tolist():
            try:
                read_entry_header(self._entries[index].payload)
            except FencelogError as error:
                raise corrupt(self._entries[index], error.detail) from error

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    @property
    def data(self) -> memoryview:
        """Return the buffer that holds all entries."""
        return self._data

    def batch_starts(self, indices: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return where the batches of these entries begin in ``data``."""
        return self._starts[indices] + self.header_bytes[indices]

    def batches(self, indices: NDArray[np.intp]) -> list[memoryview]:
        """Return the batches of these entries."""
        begins, ends = self.batch_starts(indices), self._starts[indices] + self.sizes[indices]
        data = self._data
        return [data[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]

    def batch_bytes(self, indices: NDArray[np.intp]) -> list[int]:
        """Return the sizes of these entries' batches as their headers have them, uncompressed.
        Raises FencelogError(CORRUPT) naming an entry that has no batch."""
        begins = self.header_bytes[indices]
        for short in np.flatnonzero(self.sizes[indices] - begins < _BATCH_SIZE_END).tolist():
            raise corrupt(self._entries[int(indices[short])], "it has no batch")
        at = self._starts[indices] + begins + _BATCH_SIZE_END - 4
        found: list[int] = _gathered(self._data, at, np.dtype("<u4")).tolist()
        return found

    def check_begins_by(self, number: int) -> None:
        """Check that the first entry begins at this message or before it."""
        if self.first_numbers[0] > number:
            what = f"begins at message {self.first_numbers[0]}, expected {number} at the latest"
            raise corrupt(self._entries[0], what)

    def check_sequence(self, expected: int | None) -> int:
        """Check that each entry begins with the message after the previous one's last, the first
        entry with ``expected``; otherwise rows would be missing. Returns the next number."""
        before = np.concatenate(([self.first_numbers[0]], self.next_numbers[:-1]))
        if expected is not None:
            before[0] = expected
        for index in np.flatnonzero(self.first_numbers != before).tolist():
            what = f"begins at message {self.first_numbers[index]}, expected {before[index]}"
            raise corrupt(self._entries[index], what)
        return int(self.next_numbers[-1])


def _gathered(data: memoryview, starts: NDArray[np.int64], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return what is of this type at each of the places."""
    found = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(kind.itemsize)]
    values: NDArray[Any] = found.view(kind)[:, 0]
    return values


class _Joined(NamedTuple):
    data: memoryview
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


def _joined(entries: Sequence[Entry]) -> _Joined:
    """Put the payloads of entries from several runs into one buffer, each at a multiple of 8."""
    sizes = np.array([len(entry.payload) for entry in entries], np.int64)
    padded = (sizes + 7) & ~7
    data = memoryview(bytearray(int(padded.sum())))
    starts = np.cumsum(padded) - padded
    for entry, start in zip(entries, starts.tolist(), strict=True):
        data[start : start + len(entry.payload)] = entry.payload
    return _Joined(data, starts, sizes)


def corrupt(entry: Entry, what: str) -> FencelogError:
    """Return the error of an entry that passed its digest and is not valid: no replica is
    better."""
    return FencelogError(
        ErrorCode.CORRUPT,
        f"entry {entry.entry_id} of ledger {entry.ledger_id} is not valid: {what}",
    )


def ragged(lengths: NDArray[Any], starts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the positions of all items of many stretches, one after the other: ``lengths[i]`` of
    them from ``starts[i]`` on."""
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    positions: NDArray[np.int64] = np.arange(total) + np.repeat(starts - before, lengths)
    return positions
