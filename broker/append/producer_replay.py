"""The rebuilding of a partition's producer table from the entries after the last snapshot.

Ledgers that name no producer are not read at all, and in one that does each entry links to the
latest before it that has sequence ranges; so a log without producers costs the last entries that
the recovery reads anyhow. Entries are read from the last one backwards, several at a time where
most of them have ranges, and only their headers are kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed
from fencelog.broker.ledger_list.ledger_port import EntryReader
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import EntryHeader, read_entry_header, read_ranges

MAX_WINDOW = 256
"""Entries of one step backwards; each read of it is bounded in bytes as well."""

DENSE = 8
"""The next step is larger if one entry in this many had ranges, so that few entries are read in
vain."""

_Found = tuple[EntryHeader, bytes, int]
"""An entry with ranges: its header, also as stored, and the entry's size in bytes."""


async def replay_producers(
    open_ledger: Callable[[int], Awaitable[EntryReader]],
    ledger_list: LedgerList,
    recovered: Mapping[int, Sealed],
    table: ProducerTable,
) -> None:
    """Bring ``table``, which has its snapshot, up to the end of a recovered log.

    ``open_ledger`` returns the reader of a ledger whose end is known.
    ``recovered``: the facts of at least the ledgers whose facts are not in the ledger list. Raises
    FencelogError: READ_UNKNOWN, CORRUPT (also where the snapshot knows more than the log holds).
    """
    base = (
        ledger_list.segments[0].base_offset or 0
        if ledger_list.segments
        else ledger_list.start_offset
    )
    for segment in ledger_list.segments:
        facts = recovered.get(segment.ledger_id) or segment.sealed
        if facts is None:
            raise FencelogError(ErrorCode.INTERNAL, f"ledger {segment.ledger_id} is not recovered")
        end = base + facts.messages
        if facts.has_producers and end > table.end_offset:
            reader = await open_ledger(segment.ledger_id)
            found = await _entries_with_ranges(reader, facts.entries - 1, table.end_offset - base)
            for header, stored, size in reversed(found):
                offset = base + header.first_number
                table.commit(read_ranges(stored, header), offset, header.publish_time_us, size)
        base = end
    if table.end_offset > base:
        raise FencelogError(
            ErrorCode.CORRUPT,
            f"the log ends at offset {base}, its producers are known up to {table.end_offset}",
        )


async def _entries_with_ranges(reader: EntryReader, last: int, known: int) -> list[_Found]:
    """Return the entries that name producers and end after number ``known`` of the ledger, the last
    first."""
    found: list[_Found] = []
    window = 1
    while last >= 0:
        first = max(0, last - window + 1)
        step = await _headers(reader, first, last)
        for header, stored, size in reversed(step):
            if header.next_number <= known:
                return found
            if header.range_count:
                found.append((header, stored, size))
        with_ranges = sum(header.range_count > 0 for header, _, _ in step)
        window = min(2 * window, MAX_WINDOW) if DENSE * with_ranges >= len(step) else 1
        last = step[0][0].previous_range_entry
    return found


async def _headers(reader: EntryReader, first: int, last: int) -> list[_Found]:
    found: list[_Found] = []
    while first <= last:
        for entry in await reader.read(first, last):
            header = read_entry_header(entry.payload)
            stored = bytes(entry.payload[: header.header_bytes])
            found.append((header, stored, len(entry.payload)))
            first = entry.entry_id + 1
    return found
