"""The reads of one ledger of the log by message number: find the entry, return its batches
unchanged.

Entries carry the number of their first message, so an entry is found by bisection over entry ids. A
small sparse index remembers the positions of earlier reads, so a read that continues where another
ended needs no search. Batches are returned as views of the bookie's reply.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, cast

from fencelog.broker.ledger_list.ledger_port import EntryReader, EntryWriter, Ledgers
from fencelog.broker.read.stored import StoredBatch
from fencelog.broker.read.time_index import TimeIndex, TimeIndexEntry
from fencelog.ledgers.errors import ErrorCode, FencelogError, check
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, read_entry_header
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, to_json
from fencelog.ledgers.limits import MAX_READ_BYTES

MAX_POINTS = 1024
"""The positions remembered per ledger; above it every other one is forgotten."""


_BEGINNING = (0, 0)


class SparseIndex:
    """The known (first message number, entry id) positions of one ledger, in order."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = [_BEGINNING]

    def add(self, number: int, entry_id: int) -> None:
        points = self._points
        if number > points[-1][0]:
            points.append((number, entry_id))
        else:
            position = bisect_left(points, (number, -1))
            if points[position][0] != number:
                points.insert(position, (number, entry_id))
        if len(points) > MAX_POINTS:
            del points[1::2]

    def around(self, number: int) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """Return the last position at or before ``number``, and the next one after it, if known."""
        position = bisect_right(self._points, (number, 1 << 62))
        after = self._points[position] if position < len(self._points) else None
        return self._points[position - 1], after


class SegmentReader:
    """One ledger of the log; ``base_offset`` is the offset of its first message.

    While the log writes the ledger itself (``writer``) reads go up to its last acknowledged entry,
    reported through ``confirm``; afterwards ``seal`` bounds them permanently. ``last_publish_us``:
    that of its last message, or of the message before the ledger where it is empty. ``is_adopted``:
    it is the publish time of every message, whatever the entries say.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        *,
        ledger_id: int,
        base_offset: int,
        messages: int | None = None,
        last_publish_us: int = 0,
        writer: EntryWriter | None = None,
        is_adopted: bool = False,
    ) -> None:
        self._ledgers = ledgers
        self.ledger_id = ledger_id
        self.base_offset = base_offset
        self.messages = messages
        self.last_publish_us = last_publish_us
        self._writer = writer
        self._is_adopted = is_adopted
        self._reader: EntryReader | None = None
        self._known: SparseIndex | None = None
        self._known_times: TimeIndex | None = None
        self._confirmed = -1
        self._confirmed_number = 0

    @property
    def is_open(self) -> bool:
        """Tell whether the log still writes this ledger."""
        return self._writer is not None

    @property
    def is_described(self) -> bool:
        """Tell whether ``describe`` has the ledger's metadata."""
        return self._writer is not None or self._reader is not None

    def _index(self) -> SparseIndex:
        """Return the known positions. Most ledgers are never read, so they begin at the first
        use."""
        if self._known is None:
            self._known = SparseIndex()
        return self._known

    def _times(self) -> TimeIndex:
        if self._known_times is None:
            self._known_times = TimeIndex()
        return self._known_times

    def confirm(self, last_entry_id: int, next_number: int) -> None:
        """Record that the log's own writer has its acks up to this entry; ``next_number`` follows
        it."""
        self._confirmed = last_entry_id
        self._confirmed_number = next_number
        self._index().add(next_number, last_entry_id + 1)

    def seal(self, metadata: LedgerMetadata, *, messages: int) -> None:
        """Record that the ledger is closed."""
        self.messages = messages
        self._writer = None
        self._reader = self._ledgers.reader(metadata)

    async def reader(self) -> EntryReader:
        """Return the ledger's reader, bounded by its confirmed end."""
        if self._writer is not None:
            if self._reader is None:
                self._reader = self._ledgers.reader(self._writer.metadata)
            self._reader.update(self._writer.metadata)
            self._reader.confirm(self._confirmed)
        elif self._reader is None:
            self._reader = await self._ledgers.open(self.ledger_id)
        return self._reader

    async def refresh(self) -> None:
        """Read the metadata of a closed ledger anew: its bookies may have been replaced. That of
        the ledger which the log writes is always its latest."""
        if self._writer is None:
            opened = await self._ledgers.open(self.ledger_id)
            (self._reader or opened).update(opened.metadata)
            self._reader = self._reader or opened

    def describe(self, *, from_offset: int, end_offset: int) -> dict[str, Any]:
        """Return a JSON-compatible description, if ``is_described``. Entries that are known to lie
        before ``from_offset`` are left out; ``end_offset`` ends an open ledger."""
        if self._writer is not None:
            metadata, last = self._writer.metadata, self._confirmed
            size = self._writer.length
        else:
            check(self._reader is not None, f"ledger {self.ledger_id} was not opened")
            metadata = cast(EntryReader, self._reader).metadata
            last, size = metadata.last_entry_id, metadata.length
        messages = end_offset - self.base_offset if self.messages is None else self.messages
        (_, first), _ = self._index().around(max(0, from_offset - self.base_offset))
        adopted = {"publish_time": self.last_publish_us} if self._is_adopted else {}
        return adopted | {
            "base_offset": self.base_offset,
            "messages": messages,
            "first_entry": first,
            "last_entry": last,
            "bytes": size,
            "ledger": to_json(metadata),
        }

    async def read(self, offset: int, *, max_bytes: int) -> list[StoredBatch]:
        """Read batches from the one that holds ``offset``, at least one. Raises FencelogError."""
        reader = await self.reader()
        last = self._confirmed if self._writer is not None else reader.last_confirmed
        number = offset - self.base_offset
        entry_id = await self._locate(reader, number, last)
        while True:
            size = min(max_bytes, MAX_READ_BYTES)
            entries = await reader.read(entry_id, last, max_bytes=size)
            batches = self._batches_of(entries)
            if batches:
                return batches
            entry_id = entries[-1].entry_id + 1  # control entries only: read on

    def _batches_of(self, entries: Sequence[Entry]) -> list[StoredBatch]:
        """Return the batches in these entries."""
        batches: list[StoredBatch] = []
        end = (0, 0)
        for entry in entries:
            header = read_entry_header(entry.payload)
            end = (header.next_number, entry.entry_id + 1)
            place = TimeIndexEntry(entry.entry_id, header.publish_time_us, header.first_number)
            if header.kind == KIND_MESSAGES:
                offset = self.base_offset + header.first_number
                batch = entry.payload[header.header_bytes :]
                time = self.last_publish_us if self._is_adopted else header.publish_time_us
                batches.append(StoredBatch(offset, header.count, time, batch))
        self._index().add(*end)
        self._times().add(place)
        return batches

    async def offset_for_time(self, time_us: int) -> int:
        """Return the offset of the first message published at or after ``time_us``; the confirmed
        end of the ledger if there is none."""
        if self._is_adopted:
            is_before = time_us <= self.last_publish_us
            return self.base_offset + (0 if is_before else cast(int, self.messages))
        reader = await self.reader()
        if self._writer is not None:
            last, number = self._confirmed, self._confirmed_number
        else:
            last, number = reader.last_confirmed, cast(int, self.messages)

        async def read(entry_id: int) -> TimeIndexEntry:
            (entry,) = await reader.read(entry_id, entry_id)
            header = read_entry_header(entry.payload)
            return TimeIndexEntry(entry_id, header.publish_time_us, header.first_number)

        place = await self._times().first_at(time_us, TimeIndexEntry(last + 1, 0, number), read)
        return self.base_offset + place.number

    async def _locate(self, reader: EntryReader, number: int, last: int) -> int:
        """Return the id of the entry that holds message ``number``."""
        (known, low), after = self._index().around(number)
        if known == number:
            return low
        high = last if after is None else after[1] - 1
        while low < high:
            middle = (low + high + 1) // 2
            (entry,) = await reader.read(middle, middle)
            first = read_entry_header(entry.payload).first_number
            if first == number:
                return middle
            if first < number:
                low = middle
            else:
                high = middle - 1
        if low > last:
            raise FencelogError(
                ErrorCode.CORRUPT, f"ledger {self.ledger_id} does not hold message {number}"
            )
        return low
