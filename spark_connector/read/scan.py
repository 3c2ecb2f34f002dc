"""The scan of a range: reads its entries from bookies, asynchronously, and makes Arrow batches of
them as these are taken.

A batch is returned as its writer wrote it, wrapped and not copied, unless it is small: small ones
are merged (``decode``), since each costs Spark as much as some thousand rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, read_entry_header
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.limits import MAX_RUN_ENTRIES
from fencelog.spark_connector.planning.planner import EntryRange
from fencelog.spark_connector.read.decode import StoredBatches, decode, grouped
from fencelog.spark_connector.read.entry_table import EntryTable, corrupt
from fencelog.spark_connector.read.merge import InvalidBatchError, Placed

Emit = Callable[[Iterable[pa.RecordBatch]], Awaitable[None]]
"""Hands over the batches of one read, to be taken once. They are decoded as they are taken, in the
thread of whoever does: what is handed from thread to thread costs as much as a batch."""


class EntrySource(Protocol):
    """The part of ``LedgerReader`` that a scan needs."""

    async def read(self, first: int, last: int) -> Sequence[Entry]:
        """Read verified entries from ``first`` on, in order, at least one, none after ``last``."""


async def scan_range(
    reader: EntrySource, wanted: EntryRange, schema: pa.Schema, emit: Emit
) -> None:
    """Emit the messages of a range, all of them and in order of offset, as batches of ``schema``.

    Raises FencelogError: CORRUPT if the entries do not hold all of them, what ``reader`` raises.
    Whoever takes the batches gets CORRUPT where one is not valid.
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
    end = wanted.end_offset - wanted.base_offset
    expected: int | None = None
    while first <= wanted.last_entry and (expected is None or expected < end):
        table = EntryTable(await _read_some(reader, first, wanted.last_entry))
        if expected is None and begins is not None:
            table.check_begins_by(begins)
        expected = table.check_sequence(expected)
        await emit(_batches(wanted, table, schema))
        first = table[-1].entry_id + 1
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
    held = _wanted(table, wanted)
    batches, starts = table.batches(held), table.batch_starts(held)
    messages = table.counts[held].tolist()
    first_offsets = (table.first_numbers[held] + wanted.base_offset).tolist()
    times = table.publish_times[held].tolist()
    if wanted.publish_time_us is not None:
        times = [wanted.publish_time_us] * len(held)
    for group in grouped(messages, table.batch_bytes(held)):
        part = slice(group.start, group.stop)
        stored = StoredBatches(
            wanted.topic,
            wanted.partition,
            batches[part],
            messages[part],
            first_offsets[part],
            times[part],
            Placed(table.data, starts[part]),
        )
        try:
            yield decode(
                stored, schema, start_offset=wanted.start_offset, end_offset=wanted.end_offset
            )
        except InvalidBatchError as error:
            raise corrupt(table[int(held[part][error.index])], str(error)) from error


def _wanted(table: EntryTable, wanted: EntryRange) -> NDArray[np.intp]:
    """Return which entries of the table hold wanted messages."""
    holds = (
        (table.kinds == KIND_MESSAGES)
        & (table.next_numbers > wanted.start_offset - wanted.base_offset)
        & (table.first_numbers < wanted.end_offset - wanted.base_offset)
    )
    return np.flatnonzero(holds)
