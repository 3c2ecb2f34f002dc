"""The merging of many small record batches into one, by columns and not batch by batch.

A loop in Python costs each batch some 30 µs, which for batches of ten messages is all of the time.
Here numpy reads the headers and the offsets of all of them at once; what is left for each batch are
its checksum and the copying of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.limits import MAX_ENTRY_BYTES
from fencelog.ledgers.record_batch.check import open_batch
from fencelog.ledgers.record_batch.codecs import CODEC_NONE, decompress
from fencelog.ledgers.record_batch.format import (
    BODY_START,
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    HEADER,
    VERSION,
    BatchView,
)
from fencelog.spark_connector.read.entry_table import ragged

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
ALL_COLUMNS = HAS_KEY | HAS_EVENT_TIME | HAS_HEADERS

_HEADER = np.dtype(
    [
        ("version", "u1"),
        ("codec", "u1"),
        ("columns", "<u2"),
        ("count", "<u4"),
        ("checksum", "<u4"),
        ("stored", "<u4"),
        ("size", "<u4"),
        ("zero", "<u4"),
        ("lengths", "<u4", 12),
    ]
)

VALUE_OFFSETS, VALUE_DATA, KEY_VALIDITY, KEY_OFFSETS, KEY_DATA, TIME_VALIDITY, TIMES = range(7)
LISTS, NAME_OFFSETS, NAME_DATA, HEADER_OFFSETS, HEADER_DATA = range(7, 12)
"""The buffers of a batch, in their order."""

_NONE = memoryview(b"")
_ALIGNMENT = 8


class InvalidBatchError(ValueError):
    """The batch numbered ``index`` is not valid."""

    def __init__(self, index: int, detail: str) -> None:
        super().__init__(detail)
        self.index = index


class Placed(NamedTuple):
    """The buffer that holds several batches, and where each begins in it."""

    data: memoryview
    starts: Ints

    @property
    def is_aligned(self) -> bool:
        """Tell whether all of them, and the end, are at a multiple of 8."""
        return not (len(self.data) % _ALIGNMENT or (self.starts % _ALIGNMENT).any())


def merge_batches(
    batches: Sequence[memoryview],
    counts: Sequence[int] | Ints,
    columns: int,
    *,
    placed: Placed | None = None,
) -> BatchView:
    """Return the messages of all batches as one batch with the wanted columns (flags like
    HAS_KEY), where any of them has these. ``counts``: the messages that each should have.
    ``placed``: the buffer that the batches are views of, if it is one: they are not copied before
    they are merged.

    All checks of ``open_batch`` that keep a message to its own bytes are made. Raises
    InvalidBatchError.
    """
    return _Merge(batches, np.asarray(counts), placed).view(columns)


class _Merge:
    """The bodies of the batches, and where each buffer of each batch lies in what holds them."""

    def __init__(self, bodies: Sequence[memoryview], counts: Ints, placed: Placed | None) -> None:
        self._counts_told = counts
        self._sizes = np.array([len(body) for body in bodies], np.int64)
        self._bodies = bodies
        self._refuse(self._sizes < BODY_START)
        headers = np.frombuffer(b"".join([body[:BODY_START] for body in bodies]), _HEADER)
        self._check_headers(headers)
        ends = self._place(np.flatnonzero(headers["codec"] != CODEC_NONE).tolist(), placed)
        self._counts = headers["count"].astype(np.int64)
        self._columns = headers["columns"]
        self._lengths = headers["lengths"].astype(np.int64)
        padded = _padded(self._lengths)
        self._starts = ends[:, None] - np.cumsum(padded[:, ::-1], axis=1)[:, ::-1]
        self._check_lengths()

    def _place(self, compressed: list[int], placed: Placed | None) -> Ints:
        """Have all bodies, uncompressed, in one buffer, each at a multiple of 8; return their
        ends."""
        if placed is not None and not compressed and placed.is_aligned:
            self._data: bytes | memoryview = placed.data
            return placed.starts + self._sizes
        joined = list(self._bodies)
        for index in compressed:
            joined[index] = self._uncompressed(index)
        self._data = b"".join(joined)
        return np.cumsum([len(body) for body in joined])

    def view(self, columns: int) -> BatchView:
        present = columns & int(np.bitwise_or.reduce(self._columns))
        buffers = [*self._binary(VALUE_OFFSETS, self._counts), *[_NONE] * 10]
        if present & HAS_KEY:
            buffers[KEY_VALIDITY] = self._validity(KEY_VALIDITY, HAS_KEY)
            buffers[KEY_OFFSETS : KEY_DATA + 1] = self._binary(KEY_OFFSETS, self._counts)
        if present & HAS_EVENT_TIME:
            buffers[TIME_VALIDITY] = self._validity(TIME_VALIDITY, HAS_EVENT_TIME)
            buffers[TIMES] = self._times()
        if present & HAS_HEADERS:
            totals = np.maximum(self._lengths[:, NAME_OFFSETS] // 4 - 1, 0)
            buffers[LISTS] = self._offsets(LISTS, self._counts, totals)
            buffers[NAME_OFFSETS : NAME_DATA + 1] = self._binary(NAME_OFFSETS, totals)
            buffers[HEADER_OFFSETS:] = self._binary(HEADER_OFFSETS, totals)
        return BatchView(int(self._counts.sum()), present, *buffers)

    # -- columns ---------------------------------------------------------------------------------

    def _binary(self, offsets: int, counts: Ints) -> list[memoryview]:
        """Return the offsets and the data of a column, whose data follow its offsets."""
        starts = self._starts[:, offsets + 1].tolist()
        lengths = self._lengths[:, offsets + 1]
        whole = self._data
        parts = [whole[a : a + n] for a, n in zip(starts, lengths.tolist(), strict=True)]
        return [self._offsets(offsets, counts, lengths), memoryview(b"".join(parts))]

    def _offsets(self, buffer: int, counts: Ints, sizes: Ints) -> memoryview:
        """Return the offsets of all batches as those of one. Each batch's rise from 0 to
        ``sizes``; a batch without the column has nothing ``counts`` times."""
        given = np.frombuffer(self._data, "<i4")
        has = self._lengths[:, buffer] > 0
        firsts = np.where(has, self._starts[:, buffer], 0) // 4
        before = given[ragged(counts, np.where(has, firsts, 0))] * np.repeat(has, counts)
        after = given[ragged(counts, np.where(has, firsts + 1, 0))] * np.repeat(has, counts)
        self._refuse(has & (given[firsts] != 0))
        self._refuse(has & (given[firsts + np.where(has, counts, 0)] != sizes))
        if (falling := before > after).any():
            self._refuse(np.bincount(np.repeat(np.arange(len(counts)), counts), falling) > 0)
        bases = np.cumsum(sizes) - sizes
        merged = np.empty(len(after) + 1, "<i4")
        merged[0] = 0
        np.add(after, np.repeat(bases, counts), out=merged[1:], casting="unsafe")
        return merged.data.cast("B")

    def _validity(self, buffer: int, flag: int) -> memoryview:
        """Return the bitmap of a column: null in a batch without it, given in one without a
        bitmap."""
        has = (self._columns & flag) != 0
        has_bitmap = self._lengths[:, buffer] > 0
        given = np.frombuffer(self._data, np.uint8)
        numbers = ragged(self._counts, np.zeros_like(self._counts))
        starts = np.repeat(np.where(has_bitmap, self._starts[:, buffer], 0), self._counts)
        in_bitmap = np.repeat(has_bitmap, self._counts)
        bits = given[starts + np.where(in_bitmap, numbers >> 3, 0)] >> (numbers & 7) & 1
        valid = np.where(in_bitmap, bits, np.repeat(has, self._counts))
        return np.packbits(valid.astype(np.uint8), bitorder="little").data

    def _times(self) -> memoryview:
        has = self._lengths[:, TIMES] > 0
        given = np.frombuffer(self._data, "<i8")
        times = given[ragged(self._counts, np.where(has, self._starts[:, TIMES], 0) // 8)]
        return (times * np.repeat(has, self._counts)).data.cast("B")

    # -- checks ----------------------------------------------------------------------------------

    def _check_headers(self, headers: NDArray[np.void]) -> None:
        """Check sizes and checksums: after this every buffer lies within its batch."""
        padded = _padded(headers["lengths"].astype(np.int64)).sum(axis=1)
        stored = headers["stored"].astype(np.int64)
        self._refuse(
            (headers["version"] != VERSION)
            | (headers["columns"] & ~np.uint16(ALL_COLUMNS) != 0)
            | (headers["zero"] != 0)
            | (headers["count"] == 0)
            | (headers["count"] != self._counts_told)
            | (stored + BODY_START != self._sizes)
            | (padded != headers["size"])
            | (padded > MAX_ENTRY_BYTES)
            | ((headers["codec"] == CODEC_NONE) & (stored != headers["size"]))
        )
        checksums = [crc32c(body[12:], crc32c(body[:8])) for body in self._bodies]
        self._refuse(np.array(checksums, np.uint32) != headers["checksum"])

    def _check_lengths(self) -> None:
        """Check that each column has the buffers that its batch says, of the right sizes."""
        lengths, offsets_size = self._lengths, 4 * (self._counts + 1)
        bitmap_size = (self._counts + 7) // 8
        wrong = lengths[:, VALUE_OFFSETS] != offsets_size
        key = (self._columns & HAS_KEY) != 0
        wrong |= lengths[:, KEY_OFFSETS] != np.where(key, offsets_size, 0)
        time = (self._columns & HAS_EVENT_TIME) != 0
        wrong |= lengths[:, TIMES] != np.where(time, 8 * self._counts, 0)
        for column, buffer in ((key, KEY_VALIDITY), (time, TIME_VALIDITY)):
            given = lengths[:, buffer]
            wrong |= (given != 0) & ((given != bitmap_size) | ~column)
        wrong |= ~key & (lengths[:, KEY_DATA] != 0)
        header = (self._columns & HAS_HEADERS) != 0
        wrong |= lengths[:, LISTS] != np.where(header, offsets_size, 0)
        names = lengths[:, NAME_OFFSETS]
        wrong |= (names != lengths[:, HEADER_OFFSETS]) | (names % 4 != 0) | ((names > 0) != header)
        wrong |= ~header & ((lengths[:, NAME_DATA] != 0) | (lengths[:, HEADER_DATA] != 0))
        self._refuse(wrong)

    def _uncompressed(self, index: int) -> memoryview:
        """Return a compressed batch with the body that its checksum proved to be its own."""
        body = self._bodies[index]
        _, _, _, _, _, _, size, *_ = HEADER.unpack_from(body)
        try:
            whole = decompress(body[1], body[BODY_START:], size)
        except FencelogError as error:
            raise InvalidBatchError(index, error.detail) from error
        return memoryview(bytes(body[:BODY_START]) + whole)

    def _refuse(self, wrong: Flags) -> None:
        """Raise the error of the first batch that is wrong, if there is one."""
        if not wrong.any():
            return
        index = int(np.flatnonzero(wrong)[0])
        try:
            info, _ = open_batch(self._bodies[index])
        except FencelogError as error:
            raise InvalidBatchError(index, error.detail) from error
        told = self._counts_told[index]
        raise InvalidBatchError(index, f"{info.count} messages, its header says {told}")


def _padded(lengths: Ints) -> Ints:
    return (lengths + 7) & ~7
