"""The scan of a range: reads its entries from bookies and makes Arrow batches of them,
asynchronously.

One read is always in flight while the entries of the previous one are decoded. A batch is returned
as its writer wrote it, wrapped and not copied, unless it is small: small ones are joined, since
each costs Spark as much as some thousand rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import anyio
import pyarrow as pa
from anyio.streams.memory import MemoryObjectSendStream

from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, EntryHeader, read_entry_header
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.limits import MIB
from fencelog.ledgers.record_batch.format import BatchView, read_batch
from fencelog.spark_connector.planning.planner import EntryRange
from fencelog.spark_connector.read.columns import Stretch, to_arrow

SMALL_BATCH_ROWS = 8 * 1024
SMALL_BATCH_BYTES = 1 * MIB
"""The size that ends a group of joined batches, as SMALL_BATCH_ROWS does. Measured: from 10,000
rows or 1 MiB on size matters little."""

Emit = Callable[[pa.RecordBatch], Awaitable[None]]


class EntrySource(Protocol):
    """The part of ``LedgerReader`` that a scan needs."""

    async def read(self, first: int, last: int) -> list[Entry]:
        """Read verified entries from ``first`` on, in order, at least one, none after ``last``."""


class _Numbered(NamedTuple):
    entry: Entry
    header: EntryHeader


async def scan_range(
    reader: EntrySource, wanted: EntryRange, schema: pa.Schema, emit: Emit
) -> None:
    """Emit the messages of a range, in order of offset, as batches of ``schema``.

    Raises FencelogError: OFFSET_TRIMMED if the ledger is gone, READ_UNKNOWN, CORRUPT.
    """
    try:
        first = await _first_wanted(reader, wanted)
        await _scan_from(first, reader, wanted, schema, emit)
    except FencelogError as error:
        if not error.code.is_negative:
            raise
        raise FencelogError(
            ErrorCode.OFFSET_TRIMMED,
            f"ledger {wanted.ledger.ledger_id} (partition {wanted.partition} of {wanted.topic}, "
            f"offsets from {wanted.start_offset} on) was trimmed or deleted after the query was "
            f"planned: {error.detail}",
        ) from error


async def _first_wanted(reader: EntrySource, wanted: EntryRange) -> int:
    """Return the first entry that ends after ``start_offset`` (the last one plus 1 if none does).

    The ledger's metadata does not say which entry holds an offset, so this bisects: 16 small reads
    for 50,000 entries, and none where a ledger is wanted from its beginning.
    """
    low, high = wanted.first_entry, wanted.last_entry + 1
    if wanted.start_offset == wanted.base_offset:
        return low
    middle = low  # a range that was cut from a larger one mostly begins within what is wanted
    while low < high:
        (entry,) = await reader.read(middle, middle)
        next_number = read_entry_header(entry.payload).next_number
        if wanted.base_offset + next_number > wanted.start_offset:
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


async def _scan_from(
    first: int, reader: EntrySource, wanted: EntryRange, schema: pa.Schema, emit: Emit
) -> None:
    expected: int | None = None
    read, ahead = anyio.create_memory_object_stream[list[_Numbered]]()
    async with task_group() as group, ahead:
        group.start_soon(_read_from, first, reader, wanted, read)
        async for numbered in ahead:
            await anyio.lowlevel.checkpoint()  # the next read is requested meanwhile
            _check_sequence(numbered, expected)
            expected = numbered[-1].header.next_number
            for batch in _batches(wanted, numbered, schema):
                await emit(batch)


async def _read_from(
    first: int,
    reader: EntrySource,
    wanted: EntryRange,
    read: MemoryObjectSendStream[list[_Numbered]],
) -> None:
    """Send the entries of the range from ``first`` on, as they are read."""
    with read:
        while first <= wanted.last_entry:
            entries = await reader.read(first, wanted.last_entry)
            numbered = [_Numbered(entry, read_entry_header(entry.payload)) for entry in entries]
            await read.send(numbered)
            end, header = numbered[-1]
            if wanted.base_offset + header.next_number >= wanted.end_offset:
                return
            first = end.entry_id + 1


def _check_sequence(numbered: Iterable[_Numbered], expected: int | None) -> None:
    """Check that each entry begins with the message after the previous one's last; otherwise rows
    would be missing."""
    for entry, header in numbered:
        if expected not in (None, header.first_number):
            raise _corrupt(entry, f"begins at message {header.first_number}, expected {expected}")
        expected = header.next_number


def _batches(
    wanted: EntryRange, numbered: Iterable[_Numbered], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows, one Arrow batch for each group of entries."""
    for group in _grouped(entry for entry in numbered if _is_wanted(entry.header, wanted)):
        base = wanted.base_offset + group[0].header.first_number
        end = wanted.base_offset + group[-1].header.next_number
        low, high = max(wanted.start_offset, base), min(wanted.end_offset, end)
        batch = _decode(group, wanted, base, schema)
        yield batch if high - low == end - base else batch.slice(low - base, high - low)


def _is_wanted(header: EntryHeader, wanted: EntryRange) -> bool:
    return (
        header.kind == KIND_MESSAGES
        and wanted.base_offset + header.next_number > wanted.start_offset
        and wanted.base_offset + header.first_number < wanted.end_offset
    )


def _grouped(numbered: Iterable[_Numbered]) -> Iterator[list[_Numbered]]:
    """Yield groups of entries: a large one alone, small neighbours together until they are
    large."""
    group: list[_Numbered] = []
    rows = size = 0
    for entry in numbered:
        count, entry_bytes = entry.header.count, len(entry.entry.payload)
        if group and (count >= SMALL_BATCH_ROWS or entry_bytes >= SMALL_BATCH_BYTES):
            yield group
            group, rows, size = [], 0, 0
        group.append(entry)
        rows += count
        size += entry_bytes
        if rows >= SMALL_BATCH_ROWS or size >= SMALL_BATCH_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _decode(
    group: Sequence[_Numbered], wanted: EntryRange, base_offset: int, schema: pa.Schema
) -> pa.RecordBatch:
    views = [_view(entry, header) for entry, header in group]
    times = [header.publish_time_us for _, header in group]
    try:
        stretch = Stretch(wanted.topic, wanted.partition, base_offset, views, times)
        return to_arrow(stretch, schema)
    except ValueError as error:
        raise _corrupt(group[0].entry, str(error)) from error


def _view(entry: Entry, header: EntryHeader) -> BatchView:
    try:
        _, view = read_batch(entry.payload[header.header_bytes :])
    except FencelogError as error:
        raise _corrupt(entry, error.detail) from error
    if view.count != header.count:
        raise _corrupt(entry, f"{view.count} messages, its header says {header.count}")
    return view


def _corrupt(entry: Entry, what: str) -> FencelogError:
    return FencelogError(
        ErrorCode.CORRUPT,
        f"entry {entry.entry_id} of ledger {entry.ledger_id} is not valid: {what}",
    )
