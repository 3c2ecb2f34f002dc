"""The reading half of a partition's log: newest batches from memory, older ones from ledgers."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any

from fencelog.broker.ledger_list.ledger_list import LedgerList, Segment
from fencelog.broker.ledger_list.ledger_port import EntryWriter, Ledgers
from fencelog.broker.limits import OPENED_AT_ONCE
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.read.read_ahead import BrokerReads, Found, LogReadAhead
from fencelog.broker.read.segment_reader import SegmentReader
from fencelog.broker.read.stored import ONE_MESSAGE, ReadLimits, ReadResult, StoredBatch
from fencelog.broker.read.tail_cache import TailCache, TailCaches, TailNotifier
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

_DELETED = (ErrorCode.LEDGER_NOT_FOUND, ErrorCode.NO_SUCH_LEDGER, ErrorCode.NO_SUCH_ENTRY)
"""The errors of a ledger that was deleted: not by this owner, or its list would not have it."""

_LAST_PUBLISH = attrgetter("last_publish_us")


class LogReader:
    """The reader of a log. Reads never go past ``tail_offset``, the end of the acknowledged
    messages."""

    def __init__(
        self,
        ledgers: Ledgers,
        ledger_list: LedgerList,
        caches: TailCaches,
        reads: BrokerReads,
        *,
        metrics: BrokerCounts,
    ) -> None:
        """Create a reader. ``ledger_list``: as committed at takeover: all its segments are sealed,
        except the ledger that is about to be written (a terminated log has none)."""
        self._metrics = metrics
        self._ledgers = ledgers
        self._on_tail_moved: Callable[[], None] = _nothing
        self._is_still_ours: Callable[[], Awaitable[bool]] = _unverified
        self._cache = TailCache(caches)
        self._catch_up = LogReadAhead(reads, self._load, is_worth=self._is_in_ledgers_alone)
        self._notifier = TailNotifier()
        self._segments: list[SegmentReader] = []
        self._bases: list[int] = []
        self.last_publish_us = 0
        for segment in ledger_list.segments:
            if segment.sealed is not None and segment.base_offset is not None:
                self.last_publish_us = max(self.last_publish_us, segment.sealed.last_publish_us)
                self._add(
                    SegmentReader(
                        ledgers,
                        ledger_id=segment.ledger_id,
                        base_offset=segment.base_offset,
                        messages=segment.sealed.messages,
                        last_publish_us=self.last_publish_us,
                        is_adopted=segment.is_adopted,
                    )
                )
        last = ledger_list.segments[-1].base_offset if ledger_list.segments else None
        self.tail_offset = (last if ledger_list.next_base is None else ledger_list.next_base) or 0
        first = self._bases[0] if self._bases else self.tail_offset
        self.earliest_offset = max(ledger_list.start_offset, first)
        self.closed: FencelogError | None = None
        self.has_ended = False
        self.was_asked = False
        """True once readers or subscriptions have asked, until ``QuietCheck`` resets it."""
        self.bytes_in = 0
        self.bytes_out = 0

    def call_when_tail_moves(self, on_tail_moved: Callable[[], None]) -> None:
        """Call ``on_tail_moved`` when the tail has moved, and when the log is closed."""
        self._on_tail_moved = on_tail_moved

    def verify_owner_by(self, is_still_ours: Callable[[], Awaitable[bool]]) -> None:
        """Call ``is_still_ours`` before a refusal that a later owner may not make: it tells whether
        the log still belongs to this owner, as far as can be known."""
        self._is_still_ours = is_still_ours

    # -- reports of the writing half -------------------------------------------------------------

    def begin(self, writer: EntryWriter) -> None:
        """Continue the log in this ledger."""
        ledger_id = writer.ledger_id
        self._add(
            SegmentReader(
                self._ledgers,
                ledger_id=ledger_id,
                base_offset=self.tail_offset,
                last_publish_us=self.last_publish_us,
                writer=writer,
            )
        )

    def stored(self, batches: list[StoredBatch]) -> None:
        """Add batches that were acknowledged."""
        self._cache.extend(batches)
        for batch in batches:
            self.bytes_in += len(batch.batch)
        self.tail_offset = batches[-1].end_offset
        self.last_publish_us = batches[-1].publish_time_us
        self._segments[-1].last_publish_us = self.last_publish_us
        self._notifier.notify()
        self._on_tail_moved()

    def adopt(self, segments: Iterable[tuple[Segment, LedgerMetadata]]) -> None:
        """Add closed ledgers that have joined the log at its tail. The one before them is
        sealed."""
        for segment, metadata in segments:
            assert segment.sealed is not None
            self.last_publish_us = segment.sealed.last_publish_us
            reader = SegmentReader(
                self._ledgers,
                ledger_id=segment.ledger_id,
                base_offset=self.tail_offset,
                last_publish_us=self.last_publish_us,
                is_adopted=True,
            )
            reader.seal(metadata, messages=segment.sealed.messages)
            self._add(reader)
            self.tail_offset += segment.sealed.messages
            self.bytes_in += segment.sealed.size
        self._cache.clear()  # what it holds is followed by messages that it does not hold
        self._notifier.notify()
        self._on_tail_moved()

    def confirm(self, last_entry_id: int) -> None:
        """Confirm the current ledger up to this entry, which ends at the tail."""
        segment = self._segments[-1]
        segment.confirm(last_entry_id, self.tail_offset - segment.base_offset)

    def seal(self, metadata: LedgerMetadata, *, messages: int) -> None:
        """Record that a ledger was closed."""
        for segment in reversed(self._segments):
            if segment.ledger_id == metadata.ledger_id:
                segment.seal(metadata, messages=messages)
                return

    def trim(self, start_offset: int) -> None:
        """Move the beginning of the log, after the ledger list: nothing below is readable any more,
        and ledgers that end there may be deleted at once. It never goes back, and never past the
        tail."""
        self.earliest_offset = max(self.earliest_offset, min(start_offset, self.tail_offset))
        gone = bisect_right(self._ends(), self.earliest_offset)
        if gone and self._segments[gone - 1].is_open:
            gone -= 1  # an empty ledger at the tail is written next
        del self._segments[:gone], self._bases[:gone]
        self._catch_up.trim(self.earliest_offset)

    def end(self) -> None:
        """End the log, which is terminated: reads no longer wait at its tail."""
        self.has_ended = True
        self._notifier.notify()

    def close(self, error: FencelogError) -> None:
        """Fail every read from now on, waiting ones included."""
        self.closed = error
        self._cache.clear()
        self._catch_up.clear()
        self._notifier.notify()
        self._on_tail_moved()

    def _add(self, segment: SegmentReader) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def _ends(self) -> list[int]:
        """Return the current end of each segment."""
        return [*self._bases, self.tail_offset][1:]

    # -- for readers -----------------------------------------------------------------------------

    async def read(self, offset: int, limits: ReadLimits) -> ReadResult:
        """Read batches from the one that holds ``offset``; none if it is the tail and remains the
        tail.

        Raises OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, READ_UNKNOWN, CORRUPT, NO_OWNER, or the error
        with which the log was closed.
        """
        if offset > self.tail_offset:
            await self.check_below_tail(offset)
        self._check(offset)
        if offset == self.tail_offset and limits.wait_ms > 0 and not self.has_ended:
            await self._notifier.wait(limits.wait_ms)
            self._check(offset)
        if offset == self.tail_offset:
            return ReadResult([], offset, offset)
        batches = self._cache.read(offset, limits)
        if batches:
            self._metrics.cached_reads += 1
        else:
            self._metrics.ledger_reads += 1
            try:
                batches, _ = await self._catch_up.read(offset, limits)
            except FencelogError as error:
                self._check(offset)  # its ledger was trimmed meanwhile, or the log is closed
                await self.check_not_deleted(error)
                raise
        self.bytes_out += sum([len(stored.batch) for stored in batches])
        return ReadResult(batches, batches[-1].end_offset, self.tail_offset)

    def publish_us_in_memory(self, offset: int) -> int | None:
        """Return when the message at ``offset`` was published, if that is in memory."""
        found = self._cache.read(offset, ONE_MESSAGE)
        return found[0].publish_time_us if found else None

    async def offset_for_time(self, time_us: int) -> int:
        """Return the first offset whose publish time is at or after ``time_us``; the tail if there
        is none. Raises READ_UNKNOWN, CORRUPT, or the error with which the log was closed."""
        while True:
            self.check_open()
            if time_us > self.last_publish_us:
                return self.tail_offset
            recent = self._cache.offset_for_time(time_us)
            if recent is not None:
                return max(recent, self.earliest_offset)
            position = bisect_left(self._segments, time_us, key=_LAST_PUBLISH)
            if position == len(self._segments):
                return self.tail_offset
            segment = self._segments[position]
            try:
                return max(await segment.offset_for_time(time_us), self.earliest_offset)
            except FencelogError as error:
                if segment in self._segments:  # otherwise it was trimmed meanwhile
                    await self.check_not_deleted(error)
                    raise

    async def _load(self, offset: int, max_bytes: int) -> Found:
        self._check(offset)  # the log may have been trimmed during the read
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        batches = await segment.read(offset, max_bytes=max_bytes)
        return batches, batches[-1].end_offset

    def _is_in_ledgers_alone(self, offset: int) -> bool:
        return (
            self.closed is None
            and self.earliest_offset <= offset < self.tail_offset
            and not self._cache.holds(offset)
        )

    def check_open(self) -> None:
        """Raise the error with which the log was closed, if it is closed."""
        self.was_asked = True
        if self.closed is not None:
            raise FencelogError(self.closed.code, self.closed.detail)

    async def check_owner(self) -> None:
        """Check that no other owner had taken the log over when this was called. Raises the error
        with which the log was closed, NO_OWNER where that cannot be determined."""
        self.check_open()
        if not await self._is_still_ours():
            self.check_open()
            raise FencelogError(
                ErrorCode.NO_OWNER,
                "cannot tell whether another broker has taken the log over: metadata are "
                "unavailable",
            )

    @asynccontextmanager
    async def refusing_as_owner(self, *codes: ErrorCode) -> AsyncIterator[None]:
        """Verify, before an error with one of these codes leaves the context, that this is still
        the owner: its successor may have no reason for it. Raises that error, or as
        ``check_owner``."""
        try:
            yield
        except FencelogError as refusal:
            if refusal.code in codes:
                await self.check_owner()
            raise

    async def check_not_deleted(self, error: FencelogError) -> None:
        """Verify, before the error of a ledger that is on the list and gone is answered, that this
        is still the owner: its successor may have deleted it. Raises as ``check_owner``."""
        if error.code in _DELETED:
            await self.check_owner()

    async def check_below_tail(self, offset: int) -> None:
        """Check that an offset is not beyond the tail, also if an owner that was replaced is asked:
        its successor may have messages there. Raises OFFSET_BEYOND_TAIL, and as ``check_owner``."""
        if offset > self.tail_offset:
            await self.check_owner()
        if offset > self.tail_offset:
            raise FencelogError(
                ErrorCode.OFFSET_BEYOND_TAIL,
                f"offset {offset} is beyond the tail {self.tail_offset}",
                tail_offset=self.tail_offset,
            )

    def _check(self, offset: int) -> None:
        self.check_open()
        if offset < self.earliest_offset:
            raise FencelogError(
                ErrorCode.OFFSET_TRIMMED,
                f"offset {offset} was trimmed, the log begins at {self.earliest_offset}",
                earliest_offset=self.earliest_offset,
            )

    async def refresh(self, ledger_id: int) -> None:
        """Read the metadata of a ledger of the log anew, for ``segments``. Raises FencelogError;
        nothing for a ledger that the log does not have, or that was trimmed meanwhile."""
        self.check_open()
        for segment in self._segments:
            if segment.ledger_id == ledger_id:
                await self._unless_trimmed(segment, segment.refresh())
                return

    async def segments(self, from_offset: int = 0) -> dict[str, Any]:
        """Return what direct reads from bookies need, JSON-compatible: ranges of ledger entries up
        to the confirmed end, each with its ledger's metadata; only those that hold ``from_offset``
        or what follows it. Raises the error with which the log was closed, METADATA_…."""
        self.check_open()
        wanted = bisect_right(self._ends()[:-1], from_offset)  # the last one may grow meanwhile
        await self._open_all([each for each in self._segments[wanted:] if not each.is_described])
        self.check_open()
        # From here on nothing waits, so that the ranges and the end belong together. A ledger ends
        # where its successor begins, even while it is being closed and messages continue there.
        described = [
            segment.describe(from_offset=from_offset, end_offset=end)
            for segment, end in zip(self._segments, self._ends(), strict=True)
            if end > from_offset
        ]
        return {
            "earliest_offset": self.earliest_offset,
            "end_offset": self.tail_offset,
            "segments": [fields for fields in described if fields["messages"]],
        }

    async def _open_all(self, segments: Sequence[SegmentReader]) -> None:
        """Read the metadata of ledgers, OPENED_AT_ONCE at a time."""
        for first in range(0, len(segments), OPENED_AT_ONCE):
            some = segments[first : first + OPENED_AT_ONCE]
            opening = [self._unless_trimmed(each, each.reader()) for each in some]
            for done in await asyncio.gather(*opening, return_exceptions=True):
                if done is not None:
                    raise done

    async def _unless_trimmed(self, segment: SegmentReader, request: Awaitable[object]) -> None:
        """Await a request for a ledger, which may fail once the ledger was trimmed."""
        try:
            await request
        except FencelogError:
            if segment in self._segments:
                raise


def _nothing() -> None:
    """Do nothing: there is no listener yet."""


async def _unverified() -> bool:
    """Return True: there is nothing to verify it by yet."""
    return True
