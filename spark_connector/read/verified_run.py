"""The entries of adjacent runs, verified by columns: thousands of small ones cost no object
each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fencelog.ledgers.format.digest import DigestType, crc32c, digest_size
from fencelog.ledgers.format.run import (
    ENTRY_HEADER,
    RUN_HEADER,
    Buffer,
    Entry,
    read_run_header,
)
from fencelog.ledgers.reader.entry_reads import verify_runs
from fencelog.ledgers.rpc.bookie_port import Place

_ENTRY = np.dtype(
    [
        ("ledger_id", "<u8"),
        ("entry_id", "<u8"),
        ("lac", "<i8"),
        ("length", "<u8"),
        ("size", "<u4"),
        ("digest_type", "u1"),
        ("zero", "u1", 3),
        ("digest", "<u8"),
    ]
)
"""An entry's header and its CRC32C, as ``run`` lays them out."""

Ints = NDArray[np.int64]


class VerifiedRun(Sequence[Entry]):
    """The verified entries of adjacent runs. ``data``: the memory that holds the runs; ``starts``
    and ``sizes``: where the payloads lie in it."""

    def __init__(self, data: memoryview, heads: NDArray[np.void], starts: Ints, sizes: Ints):
        self.data = data
        self.starts = starts
        self.sizes = sizes
        self._heads = heads

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> VerifiedRun: ...
    def __getitem__(self, index: int | slice) -> Entry | VerifiedRun:
        if isinstance(index, slice):
            return VerifiedRun(self.data, self._heads[index], self.starts[index], self.sizes[index])
        ledger_id, entry_id, lac, length, *_ = self._heads[index].item()
        start = int(self.starts[index])
        payload = self.data[start : start + int(self.sizes[index])]
        return Entry(ledger_id, entry_id, lac, length, payload)


def verified_runs(
    data: Buffer,
    places: Sequence[Place],
    *,
    digest_type: DigestType = DigestType.CRC32C,
    key: bytes = b"",
) -> Sequence[Entry]:
    """Return the entries of adjacent runs; the contract of ``verify_runs``, at half its price."""
    if digest_type is not DigestType.CRC32C:
        return verify_runs(data, places, digest_type=digest_type, key=key)
    view = memoryview(data)
    headers = [read_run_header(view, offset) for offset, _ in places]
    counts = [header.entries for header in headers]
    index = np.concatenate(
        [
            np.frombuffer(view, "<u4", count, offset + RUN_HEADER.size).astype(np.int64) + offset
            for count, (offset, _) in zip(counts, places, strict=True)
        ]
    )
    ends = np.repeat([offset + size for offset, size in places], counts)
    in_runs = np.frombuffer(view, np.uint8)
    heads = in_runs[index[:, None] + np.arange(_ENTRY.itemsize)].view(_ENTRY)[:, 0]
    starts = index + ENTRY_HEADER.size + digest_size(digest_type)
    sizes = heads["size"].astype(np.int64)
    ids = np.arange(len(index), dtype=np.uint64) + np.uint64(headers[0].first_entry_id)
    are_its_own = (
        (heads["ledger_id"] == headers[0].ledger_id)
        & (heads["entry_id"] == ids)
        & (heads["digest_type"] == digest_type)
        & (starts + sizes <= ends)
    )
    if not are_its_own.all() or heads["digest"].tolist() != _digests(view, index, starts, sizes):
        # It raises the error of the entry that is wrong.
        return verify_runs(view, places, digest_type=digest_type, key=key)
    return VerifiedRun(view, heads, starts, sizes)


def _digests(data: memoryview, index: Ints, starts: Ints, sizes: Ints) -> list[int]:
    places = zip(index.tolist(), starts.tolist(), (starts + sizes).tolist(), strict=True)
    size = ENTRY_HEADER.size
    return [crc32c(data[a:b], crc32c(data[head : head + size])) for head, a, b in places]
