"""The compaction of one log: reads new messages, writes a new view, replaces the previous one by
it.

A pass reads the log from the previous horizon to its current end twice: once for the keys, once for
the messages that are kept (``core``). They are written, after the messages kept from the previous
view, to a ledger of their own; when that is closed, one compare-and-set of the ledger list makes it
the view, and the previous ledger is deleted. So a crash, or a takeover, at any step leaves the
previous view as it was, or the new one whole; a ledger that is on no list carries the log's name
and epoch, by which the sweep finds it.

A pass is a reader like others, under the same fair scheduling of bytes and of the event loop.
Producers, sequences and cursors are not affected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from fencelog.broker.compaction.compacted_view import CompactedView
from fencelog.broker.compaction.core import NewestOffsets, ViewEntry
from fencelog.broker.ledger_list.ledger_list import Compacted
from fencelog.broker.ledger_list.open_ledger import LedgerFactory, OpenLedger
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.limits import COMPACTION_RETRY_MS, MAX_COMPACTION_KEYS, MAX_READ_MESSAGES
from fencelog.broker.read.log_reader import LogReader
from fencelog.broker.read.read_fairness import LoopYielder
from fencelog.broker.read.rows import Row, rows_in_steps
from fencelog.broker.read.stored import ONE_MESSAGE, ReadLimits, ReadResult
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

_AT_ONCE = ReadLimits(MAX_READ_MESSAGES, 1 * MIB)
"""The bytes requested in one read of a pass: small, since others read and append meanwhile."""

ENTRIES_IN_FLIGHT = 8
"""The entries of the new view that are not acknowledged yet: 4 MiB."""

_Read = Callable[[int, ReadLimits], Awaitable[ReadResult]]

log = logging.getLogger(__name__)


class LogCompaction:
    """The compaction of one log. It has a task only while a pass runs."""

    def __init__(
        self,
        node: LedgerListStore,
        factory: LedgerFactory,
        reader: LogReader,
        view: CompactedView,
        yielder: LoopYielder,
        *,
        max_keys: int = MAX_COMPACTION_KEYS,
    ) -> None:
        self._node = node
        self._factory = factory
        self._reader = reader
        self._view = view
        self._yielder = yielder
        self._max_keys = max_keys
        self._running: asyncio.Task[None] | None = None
        self._error: FencelogError | None = None
        self._not_before_us = 0

    @property
    def view(self) -> CompactedView:
        return self._view

    @property
    def horizon(self) -> int:
        """Return the offset up to which the log is compacted."""
        compacted = self._node.ledger_list.compacted
        return 0 if compacted is None else compacted.end_offset

    @property
    def _lacks_from(self) -> int:
        """The offset from which the view lacks what the log had. A trim of all that is new leaves a
        gap, too, which a pass over nothing closes."""
        compacted = self._node.ledger_list.compacted
        return self._reader.earliest_offset if compacted is None else compacted.end_offset

    def due_us(self, interval_ms: int) -> int | None:
        """Return the time at which the view is due for an update; None while it ends where the log
        does."""
        if self._reader.tail_offset <= self._lacks_from:
            return None
        compacted, now_us = self._node.ledger_list.compacted, self._factory.host.now_us()
        due_us = 0
        # One of the future was made by a clock that was ahead.
        if compacted is not None and compacted.created_us <= now_us:
            due_us = compacted.created_us + interval_ms * 1000
        return max(due_us, min(self._not_before_us, now_us + COMPACTION_RETRY_MS * 1000))

    def status(self) -> dict[str, Any]:
        """Return the status, JSON-compatible. ``state``: ``none`` (there is no view), ``running``,
        ``failed`` (the last pass; ``error`` says why, and it is repeated) or ``ready``."""
        compacted = self._node.ledger_list.compacted
        state = "none" if compacted is None else "ready"
        if self._running is not None:
            state = "running"
        elif self._error is not None:
            state = "failed"
        return {
            "state": state,
            "end_offset": self.horizon,
            "messages": 0 if compacted is None else compacted.messages,
            "bytes": 0 if compacted is None else compacted.size,
            "created_us": None if compacted is None else compacted.created_us,
            "error": None if self._error is None else str(self._error),
        }

    async def run(self) -> None:
        """Compact the whole current log. Never raises; one call at a time."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(
                self._run(), name=f"compaction {self._node.path}"
            )
        await asyncio.wait((self._running,))

    async def close(self) -> None:
        """End a pass in progress; the view stays as it is. Never raises."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
        self._view.clear()

    async def _run(self) -> None:
        try:
            begin, end = self.horizon, self._reader.tail_offset
            while self._lacks_from < end:
                await self._pass_or_anew(end, tombstones_from=begin)
            self._error = None
        except FencelogError as error:
            log.warning("%s: not compacted: %s", self._node.path, error)
            self._error = error
            self._not_before_us = self._factory.host.now_us() + COMPACTION_RETRY_MS * 1000
        except Exception:
            log.exception("%s: compaction has failed", self._node.path)
            self._error = FencelogError(ErrorCode.INTERNAL, "an unexpected error, see the log")
            self._not_before_us = self._factory.host.now_us() + COMPACTION_RETRY_MS * 1000
        finally:
            self._running = None

    # -- one pass --------------------------------------------------------------------------------

    async def _pass_or_anew(self, end: int, *, tombstones_from: int) -> None:
        """Take a pass; make the view anew from the log where its ledger is gone, as after a restore
        of metadata that name one which was replaced since: every pass would fail, and retention
        would wait for it."""
        try:
            await self._pass(end, tombstones_from=tombstones_from)
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND or not await self._is_view_gone():
                raise
            begin = self._reader.earliest_offset
            what = "the compacted view is made anew from the log, which begins at"
            log.error("%s: %s: %s %d", self._node.path, error, what, begin)
            await self._pass(end, tombstones_from=tombstones_from, is_anew=True)

    async def _is_view_gone(self) -> bool:
        compacted = self._node.ledger_list.compacted
        if compacted is None or not compacted.ledgers:
            return False
        try:
            await self._view.fetch(0, ONE_MESSAGE)
        except FencelogError as error:
            return error.code is ErrorCode.LEDGER_NOT_FOUND
        return False

    async def _pass(self, end: int, *, tombstones_from: int, is_anew: bool = False) -> None:
        """Compact up to ``end``, or as far as there is space for keys. Tombstones below an offset
        are removed. ``is_anew``: nothing is taken from the previous view."""
        previous, begin = self._node.ledger_list.compacted, self._reader.earliest_offset
        kept_end = 0
        if previous is not None and not is_anew:
            begin = max(begin, previous.end_offset)
            # An empty view has nothing to read: behind it is the log, which may be trimmed there.
            kept_end = previous.end_offset if previous.ledgers else 0
        newest = NewestOffsets(self._max_keys, tombstones_from=tombstones_from)
        end = await self._look(newest, begin, end)
        if previous is not None and end < previous.end_offset:
            what = f"{self._max_keys} keys end at {end}, the view before, which is gone, at"
            raise FencelogError(ErrorCode.LIMIT_REACHED, f"{what} {previous.end_offset}")
        output = ViewWriter(self._factory, self._node.ledger_list.epoch)
        try:
            async for rows in self._rows(0, kept_end, self._view.fetch):
                await output.add([row for row in rows if newest.keeps_previous(row[0], row[2])])
            async for rows in self._rows(begin, end, self._reader.read):
                await output.add([row for row in rows if newest.keeps(row[0], row[2])])
            compacted = await output.close(end_offset=end)
        except BaseException:
            await output.abandon()
            raise
        try:
            await self._node.change(lambda ledger_list: ledger_list.with_compacted(compacted))
        except LedgerListLost as lost:
            await output.discard(lost)
            raise
        for ledger_id in () if previous is None else previous.ledgers:
            with suppress(FencelogError):  # on no list any more: the sweep finds it
                await self._factory.ledgers.delete(ledger_id, unfenced=True)

    async def _look(self, newest: NewestOffsets, begin: int, end: int) -> int:
        """Find the newest messages of a part; return where it ends."""
        async for rows in self._rows(begin, end, self._reader.read):
            stop = newest.add(rows[0][0], [message for _, _, message in rows])
            if stop is not None:
                return stop
        return end

    async def _rows(self, begin: int, end: int, read: _Read) -> AsyncIterator[list[Row]]:
        """Yield messages from ``begin`` to ``end``, a step at a time."""
        offset = begin
        while offset < end:
            result = await read(offset, _AT_ONCE)
            for rows in rows_in_steps(result.entries, start=begin, end=end):
                await self._yielder.turn()
                yield rows
            offset = result.next_offset


class ViewWriter:
    """The writer of a view's entries, to a ledger that is created with the first of them."""

    def __init__(self, factory: LedgerFactory, epoch: int) -> None:
        self._factory = factory
        self._epoch = epoch
        self._ledger: OpenLedger | None = None
        self._entry = ViewEntry()
        self._messages = 0
        self._last_entry = -1
        self._wakeup = asyncio.Event()

    async def add(self, rows: list[Row]) -> None:
        """Add rows. Raises FencelogError when the ledger fails, or cannot be created."""
        for row in rows:
            self._entry.add(*row)
            if self._entry.is_full:
                await self._write()

    async def close(self, *, end_offset: int) -> Compacted:
        """Wait until all entries are durable, close the ledger, and return the new view."""
        if len(self._entry):
            await self._write()
        ledger, size = self._ledger, 0
        if ledger is not None:
            await self._acknowledged(ledger, self._last_entry)
            size = (await ledger.writer.close()).length
            await ledger.writer.abandon()
        return Compacted(
            ledgers=() if ledger is None else (ledger.ledger_id,),
            end_offset=end_offset,
            messages=self._messages,
            size=size,
            created_us=self._factory.host.now_us(),
        )

    async def abandon(self) -> None:
        """Delete the ledger, which is on no list."""
        if self._ledger is not None:
            await self._ledger.writer.abandon()
            with suppress(FencelogError):
                await self._factory.ledgers.delete(self._ledger.ledger_id, unfenced=True)

    async def discard(self, lost: LedgerListLost) -> None:
        """Delete the ledger after its listing was refused."""
        if self._ledger is not None:
            await self._factory.discard(self._ledger, lost)

    def on_ack(self, ledger: OpenLedger) -> None:
        self._wakeup.set()

    def on_failure(self, ledger: OpenLedger) -> None:
        self._wakeup.set()

    async def _write(self) -> None:
        if self._ledger is None:
            self._ledger = await self._factory.create(self._epoch)
            self._ledger.notify(self)
        ledger = self._ledger
        self._last_entry = ledger.writer.append(self._entry.pack())
        self._messages += len(self._entry)
        self._entry = ViewEntry()
        await self._acknowledged(ledger, self._last_entry - ENTRIES_IN_FLIGHT)

    async def _acknowledged(self, ledger: OpenLedger, entry_id: int) -> None:
        while ledger.last_confirmed < entry_id:
            if ledger.failure is not None:
                raise FencelogError(ledger.failure.code, ledger.failure.detail)
            self._wakeup.clear()
            await self._wakeup.wait()
