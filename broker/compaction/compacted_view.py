"""The compacted view of a log: below its horizon the newest message of every key, above it the log.

Positions are the offsets of the log: a read from an offset returns the view's messages at or after
it, so a reader continues correctly when the view is replaced meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left

from fencelog.broker.append.rates import DispatchLimit, DispatchRate
from fencelog.broker.compaction.compacted_entry import read_compacted
from fencelog.broker.ledger_list.ledger_list import Compacted
from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.ledger_list.store import LedgerListStore
from fencelog.broker.read.log_reader import LogReader
from fencelog.broker.read.read_ahead import BrokerReads, Found, LogReadAhead
from fencelog.broker.read.segment_reader import SegmentReader
from fencelog.broker.read.stored import CompactedBatch, ReadLimits, ReadResult
from fencelog.broker.read.time_index import TimeIndexEntry
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.entry_header import read_entry_header
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.limits import MAX_READ_BYTES


class CompactedReader(SegmentReader):
    """The reader of a view's ledger. Its numbers are offsets, with gaps."""

    def __init__(self, ledgers: Ledgers, ledger_id: int, *, end_offset: int) -> None:
        super().__init__(ledgers, ledger_id=ledger_id, base_offset=0)
        self._end_offset = end_offset

    async def load(self, offset: int, max_bytes: int) -> Found:
        """Read batches from the one that holds ``offset``, or the next message after it."""
        reader = await self.reader()
        last = reader.last_confirmed
        entry_id = await self._locate(reader, offset, last)
        batches: list[CompactedBatch] = []
        while not batches and entry_id <= last:
            entries = await reader.read(entry_id, last, max_bytes=min(max_bytes, MAX_READ_BYTES))
            batches = [b for b in map(self._batch_of, entries) if b.end_offset > offset]
            entry_id = entries[-1].entry_id + 1
        if entry_id > last:
            return list(batches), self._end_offset
        self._index().add(batches[-1].end_offset, entry_id)
        return list(batches), batches[-1].end_offset

    async def offset_for_time(self, time_us: int) -> int:
        reader = await self.reader()

        async def read(entry_id: int) -> TimeIndexEntry:
            (entry,) = await reader.read(entry_id, entry_id)
            header = read_entry_header(entry.payload)
            return TimeIndexEntry(entry_id, header.publish_time_us, header.first_number)

        end = TimeIndexEntry(reader.last_confirmed + 1, 0, self._end_offset)
        place = await self._times().first_at(time_us, end, read)
        if place is end:
            return self._end_offset
        (entry,) = await reader.read(place.entry_id, place.entry_id)
        batch = self._batch_of(entry)
        return batch.offsets[bisect_left(batch.publish_times, time_us)]

    def _batch_of(self, entry: Entry) -> CompactedBatch:
        return read_compacted(entry.payload, read_entry_header(entry.payload))


class CompactedView:
    """The reads of one log's view; without a view they are reads of the log."""

    def __init__(
        self,
        node: LedgerListStore,
        ledgers: Ledgers,
        reader: LogReader,
        reads: BrokerReads,
        rate: DispatchRate,
    ) -> None:
        """Create the view. ``rate``: the rate limit of the partition's reads."""
        self._node = node
        self._ledgers = ledgers
        self._reader = reader
        self._reads = reads
        self._of: Compacted | None = None
        self._ledger: CompactedReader | None = None
        self._catch_up: LogReadAhead | None = None
        self._rate = rate

    @property
    def tail_offset(self) -> int:
        return self._reader.tail_offset

    @property
    def is_terminated(self) -> bool:
        return self._reader.has_ended

    @property
    def earliest_offset(self) -> int:
        """Return the first offset of the view: a view begins with the log, even if that was trimmed
        since."""
        return self._reader.earliest_offset if self._node.ledger_list.compacted is None else 0

    async def read(self, offset: int, limits: ReadLimits) -> ReadResult:
        """Read as ``PartitionLog.read``; batches may have gaps in them and between them. Raises
        OFFSET_TRIMMED also where the log was trimmed between the view's horizon and its own
        start."""
        asked, dispatch = limits, self._rate.limit
        if dispatch is not None:
            limits = await dispatch.admit(asked)
        result = await self.fetch(offset, limits)
        if dispatch is not None:
            dispatch.charge(result, offset, asked.max_messages)
        return result

    @property
    def dispatch_limit(self) -> DispatchLimit | None:
        """The limit of the rate of reads, for who reads by ``fetch``; None: there is none."""
        return self._rate.limit

    async def fetch(self, offset: int, limits: ReadLimits) -> ReadResult:
        """Read as ``read`` does, without a rate limit."""
        while True:
            compacted = self._node.ledger_list.compacted
            if compacted is None or offset >= compacted.end_offset:
                return await self._reader.read(offset, limits)
            self._reader.check_open()
            try:
                batches, following = await self._read_below(compacted, offset, limits)
            except FencelogError as error:
                if self._node.ledger_list.compacted is compacted:
                    await self._reader.check_not_deleted(error)
                    raise
                continue  # the view was replaced, and its ledger deleted
            if batches:
                return ReadResult(batches, following, self._reader.tail_offset)
            offset = following

    async def offset_for_time(self, time_us: int) -> int:
        """Return the first offset of the view whose publish time is at or after ``time_us``, the
        tail if there is none. Raises as ``read``."""
        while True:
            compacted = self._node.ledger_list.compacted
            if compacted is None:
                return await self._reader.offset_for_time(time_us)
            self._reader.check_open()
            self._use(compacted)
            try:
                if self._ledger is not None:
                    found = await self._ledger.offset_for_time(time_us)
                    if found < compacted.end_offset:
                        return found
                return max(compacted.end_offset, await self._reader.offset_for_time(time_us))
            except FencelogError as error:
                if self._node.ledger_list.compacted is compacted:
                    await self._reader.check_not_deleted(error)
                    raise

    def clear(self) -> None:
        """Release the chunks that are held in memory."""
        if self._catch_up is not None:
            self._catch_up.clear()
        self._of = self._ledger = self._catch_up = None

    async def _read_below(self, compacted: Compacted, offset: int, limits: ReadLimits) -> Found:
        self._use(compacted)
        if self._catch_up is None:
            return [], compacted.end_offset
        return await self._catch_up.read(offset, limits)

    def _use(self, compacted: Compacted) -> None:
        if self._of is compacted:
            return
        self.clear()
        self._of = compacted
        end = compacted.end_offset
        for ledger_id in compacted.ledgers:  # one, or none where the view is empty
            ledger = CompactedReader(self._ledgers, ledger_id, end_offset=end)
            self._ledger = ledger
            self._catch_up = LogReadAhead(
                self._reads, ledger.load, is_worth=lambda offset: offset < end
            )
