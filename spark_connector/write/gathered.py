"""Rows that wait for more of their partition, so that record batches are large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fencelog.spark_connector.write.batches import split
from fencelog.spark_connector.write.limits import (
    PART_BYTES,
    ROW_BYTES,
    SPARE_BYTES,
    TARGET_BYTES,
)


class Gathered:
    """Rows that wait for more, so that record batches are large: by partition, in order.

    Where a record batch ends is decided by its rows alone, and not by the batches in which they
    come: those of a repetition that has the same rows are the same. With ``most_bytes`` it is not:
    when more waits, the largest parts leave early.
    """

    def __init__(self, *, most_bytes: int | None = None) -> None:
        self._most_bytes = most_bytes
        self._waiting: dict[int, _Waiting] = {}
        self._held = _Held()
        self._bytes = 0

    def add(
        self, rows: pa.RecordBatch, partitions: NDArray[np.int64]
    ) -> Iterator[tuple[int, pa.Table]]:
        """Add rows, each to its partition; yield those of a partition that are enough once the next
        one is there: as they came, or as they are sorted by partition, not copied again."""
        by_partition, parts = split(rows, partitions)
        sizes = _sizes(by_partition)
        source = _Source(int(sizes.sum()))
        for partition, start, end in parts:
            waiting = self._waiting.setdefault(partition, _Waiting(self._held))
            self._bytes -= waiting.bytes
            part = by_partition.slice(start, end - start)
            for full in waiting.add(part, sizes[start:end], source):
                yield partition, full
            self._bytes += waiting.bytes
        if self._most_bytes is not None and self._bytes > self._most_bytes:
            yield from self._largest(self._most_bytes)
        if self._held.bytes - self._bytes > max(self._bytes, SPARE_BYTES):
            for waiting in self._waiting.values():
                waiting.own()

    def rest(self) -> Iterable[tuple[int, pa.Table]]:
        """Yield what is left."""
        for partition in sorted(self._waiting):
            yield partition, self._leave(partition)

    def _largest(self, most_bytes: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the largest parts, until no more is left than may wait."""
        sizes = {partition: waiting.bytes for partition, waiting in self._waiting.items()}
        for partition in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if self._bytes <= most_bytes:
                break
            yield partition, self._leave(partition)

    def _leave(self, partition: int) -> pa.Table:
        waiting = self._waiting.pop(partition)
        self._bytes -= waiting.bytes
        return waiting.leave()


@dataclass(slots=True)
class _Source:
    """A batch whose buffers its parts share: all of it is kept while one of them waits."""

    bytes: int
    parts: int = 0
    """The number of parts that wait."""


class _Held:
    """The memory that is kept for the parts that wait."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, source: _Source) -> None:
        """Count one more part of the source."""
        self.bytes += PART_BYTES + (0 if source.parts else source.bytes)
        source.parts += 1

    def remove(self, source: _Source) -> None:
        """Count one part of the source less."""
        source.parts -= 1
        self.bytes -= PART_BYTES + (0 if source.parts else source.bytes)


class _Waiting:
    """The rows of one partition that wait, at least one after ``add``."""

    def __init__(self, held: _Held) -> None:
        self.bytes = 0
        self._held = held
        self._parts: list[pa.RecordBatch] = []
        self._sources: list[_Source] = []

    def add(
        self, rows: pa.RecordBatch, sizes: NDArray[np.int64], source: _Source
    ) -> Iterator[pa.Table]:
        """Add rows of these sizes, which share the buffers of the source; yield those that are
        enough."""
        ends = np.cumsum(sizes)
        start = 0
        while start < rows.num_rows:
            begin = int(ends[start - 1]) if start else 0
            fit = int(np.searchsorted(ends, begin + TARGET_BYTES - self.bytes, side="right"))
            end = max(start, fit)
            if end == start and not self._parts:
                end = start + 1  # a row that is larger than a batch
            if end > start:
                self._append(rows.slice(start, end - start), source)
                self.bytes += int(ends[end - 1]) - begin
            if end < rows.num_rows:
                yield self.leave()
            start = end

    def own(self) -> None:
        """Copy the rows into buffers of their own, and let go of the batches that they came in."""
        if len(self._parts) == 1 and self._sources[0].bytes <= self.bytes:
            return  # they have been copied, or were the whole batch
        is_one = len(self._parts) == 1
        size, rows = self.bytes, self.leave()
        # Arrow takes a single chunk for combined, and does not copy it
        copied = rows.take(pa.array(np.arange(len(rows)))) if is_one else rows.combine_chunks()
        self.bytes, source = size, _Source(size)
        for part in copied.to_batches():
            self._append(part, source)

    def leave(self) -> pa.Table:
        """Return all rows, which wait no more."""
        for source in self._sources:
            self._held.remove(source)
        parts, self._parts, self._sources, self.bytes = self._parts, [], [], 0
        return pa.Table.from_batches(parts)

    def _append(self, part: pa.RecordBatch, source: _Source) -> None:
        self._parts.append(part)
        self._sources.append(source)
        self._held.add(source)


def _sizes(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the bytes of each row, about; the same wherever the row stands."""
    sizes = np.full(rows.num_rows, ROW_BYTES, np.int64)
    for name in ("value", "key"):
        if name in rows.schema.names:
            sizes += _lengths(rows[name])
    if "headers" in rows.schema.names:
        lists = rows["headers"]
        pairs = lists.flatten()
        each = _lengths(pc.struct_field(pairs, "name")) + _lengths(pc.struct_field(pairs, "value"))
        ends = np.concatenate(([0], np.cumsum(each + ROW_BYTES)))
        last = np.cumsum(
            pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        )
        sizes += np.diff(ends[np.concatenate(([0], last))])
    return sizes


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = pc.fill_null(lengths, 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
