"""The scan of a range: reads its entries from bookies and makes Arrow batches of them,
asynchronously.

One read is always in flight while the entries of the previous one are decoded. A batch is returned
as its writer wrote it, wrapped and not copied, unless it is small: small ones are merged
(``decode``), since each costs Spark as much as some thousand rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

import anyio
import numpy as np
import pyarrow as pa
from anyio.streams.memory import MemoryObjectSendStream

from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, read_entry_header
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.limits import MAX_RUN_ENTRIES
from fencelog.spark_connector.planning.planner import EntryRange
from fencelog.spark_connector.read.decode import StoredBatches, decode, grouped
from fencelog.spark_connector.read.entry_table import EntryTable, corrupt
from fencelog.spark_connector.read.merge import InvalidBatchError, Placed

Emit = Callable[[pa.RecordBatch], Awaitable[None]]


class EntrySource(Protocol):
    """The part of ``LedgerReader`` that a scan needs."""

    async def read(self, first: int, last: int) -> Sequence[Entry]:
        """Read verified entries from ``first`` on, in order, at least one, none after ``last``."""


async def scan_range(
    reader: EntrySource, wanted: EntryRange, schema: pa.Schema, emit: Emit
) -> None:
    """Emit the messages of a range, all of them and in order of offset, as batches of ``schema``.

    Raises FencelogError: CORRUPT if the entries do not hold all of them, what ``reader`` raises.
    """
    first = await _first_wanted(reader, wanted)
    await _scan_from(first, reader, wanted, schema, emit)


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
    begins = _begins_by(first, wanted)
    expected: int | None = None
    read, ahead = anyio.create_memory_object_stream[EntryTable]()
    async with task_group() as group, ahead:
        group.start_soon(_read_from, first, reader, wanted, read)
        async for table in ahead:
            await anyio.lowlevel.checkpoint()  # the next read is requested meanwhile
            if expected is None and begins is not None:
                table.check_begins_by(begins)
            expected = table.check_sequence(expected)
            for batch in _batches(wanted, table, schema):
                await emit(batch)
    end = wanted.end_offset - wanted.base_offset
    if wanted.holds_end and (expected is None or expected < end):
        raise FencelogError(
            ErrorCode.CORRUPT,
            f"{wanted} ends with its entry {wanted.last_entry}, before its last offset",
        )


def _begins_by(first: int, wanted: EntryRange) -> int | None:
    """Return the number of the message that entry ``first`` holds, or an entry before it; None
    where a range that was cut off before this one ends at an unknown number."""
    is_found = first > wanted.first_entry
    return wanted.start_offset - wanted.base_offset if is_found or wanted.holds_start else None


async def _read_from(
    first: int,
    reader: EntrySource,
    wanted: EntryRange,
    read: MemoryObjectSendStream[EntryTable],
) -> None:
    """Send the entries of the range from ``first`` on, as they are read."""
    with read:
        while first <= wanted.last_entry:
            table = EntryTable(await _read_some(reader, first, wanted.last_entry))
            await read.send(table)
            if wanted.base_offset + int(table.next_numbers[-1]) >= wanted.end_offset:
                return
            first = table[-1].entry_id + 1


async def _read_some(reader: EntrySource, first: int, last: int) -> Sequence[Entry]:
    """Read entries from ``first`` on; fewer at a time where that fails: each replica may be damaged
    in another entry. Raises the error of the first entry that cannot be read from any."""
    while True:
        try:
            return await reader.read(first, last)
        except FencelogError as error:
            if error.code.is_negative or first == last:
                raise
            last = min((first + last) // 2, first + MAX_RUN_ENTRIES // 2)


def _batches(wanted: EntryRange, table: EntryTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows, one Arrow batch for each group of entries."""
    indices = _wanted(table, wanted)
    counts = table.counts[indices].tolist()
    for group in grouped(counts, table.batch_bytes(indices)):
        picked = indices[group.start : group.stop]
        times = table.publish_times[picked].tolist()
        if wanted.publish_time_us is not None:
            times = [wanted.publish_time_us] * len(picked)
        stored = StoredBatches(
            wanted.topic,
            wanted.partition,
            table.batches(picked),
            counts[group.start : group.stop],
            (table.first_numbers[picked] + wanted.base_offset).tolist(),
            times,
            Placed(table.data, table.batch_starts(picked)),
        )
        try:
            yield decode(
                stored, schema, start_offset=wanted.start_offset, end_offset=wanted.end_offset
            )
        except InvalidBatchError as error:
            raise corrupt(table[picked[error.index]], str(error)) from error


def _wanted(table: EntryTable, wanted: EntryRange) -> list[int]:
    """Return which entries of the table hold wanted messages."""
    holds = (
        (table.kinds == KIND_MESSAGES)
        & (table.next_numbers > wanted.start_offset - wanted.base_offset)
        & (table.first_numbers < wanted.end_offset - wanted.base_offset)
    )
    found: list[int] = np.flatnonzero(holds).tolist()
    return found
