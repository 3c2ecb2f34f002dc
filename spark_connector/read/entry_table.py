"""The headers of many entries at once, as columns: a reply of small entries has thousands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


class EntryTable:
    """Consecutive entries with the fields of their headers, checked as ``read_entry_header`` checks
    them. ``sizes``: bytes of their payloads."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Read the headers. Raises FencelogError(CORRUPT) naming an entry whose header is not
        valid."""
        self.entries = entries
        self.sizes = np.array([len(entry.payload) for entry in entries], np.int64)
        if self.sizes.min() < HEADER.size:
            self._refuse(self.sizes < HEADER.size)
        packed = b"".join([entry.payload[: HEADER.size] for entry in entries])
        headers = np.frombuffer(packed, _HEADER)
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
                read_entry_header(self.entries[index].payload)
            except FencelogError as error:
                raise corrupt(self.entries[index], error.detail) from error

    def batch_bytes(self, indices: Sequence[int]) -> list[int]:
        """Return the sizes of these entries' batches as their headers have them, uncompressed.
        Raises FencelogError(CORRUPT) naming an entry that has no batch."""
        starts = self.header_bytes.tolist()
        sizes = [self.entries[i].payload[(start := starts[i] + 16) : start + 4] for i in indices]
        packed = b"".join(sizes)
        if len(packed) != 4 * len(indices):
            short = next(i for i, size in zip(indices, sizes, strict=True) if len(size) < 4)
            raise corrupt(self.entries[short], "it has no batch")
        found: list[int] = np.frombuffer(packed, "<u4").tolist()
        return found

    def check_sequence(self, expected: int | None) -> int:
        """Check that each entry begins with the message after the previous one's last, the first
        entry with ``expected``; otherwise rows would be missing. Returns the next number."""
        before = np.concatenate(([self.first_numbers[0]], self.next_numbers[:-1]))
        if expected is not None:
            before[0] = expected
        for index in np.flatnonzero(self.first_numbers != before).tolist():
            what = f"begins at message {self.first_numbers[index]}, expected {before[index]}"
            raise corrupt(self.entries[index], what)
        return int(self.next_numbers[-1])


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
