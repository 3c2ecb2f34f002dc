"""The copying of entries that this bookie should hold of a closed ledger and lacks."""

from __future__ import annotations

import asyncio
from itertools import islice

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.repair.copies import Copies, NoCopy
from fencelog.bookie.repair.core import CopyRange, MissingReason, missing_copy_ranges, wanted_ranges
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import COPIES_AT_ONCE, MAX_LOST_ENTRIES_NOTED
from fencelog.ledgers.reader.fan_out import cancel_all

_RANGES_AT_ONCE = 1024
"""Number of ranges compared in one turn of the event loop, which takes about a millisecond."""

_ADD_ATTEMPTS = 100
_ADD_PAUSE_S = 0.1
"""Pause after an add that was refused: a full write cache is empty again after some flushes."""


class MissingEntries:
    """The repair of missing entries. It compares a ledger with the stored entries, a page of the
    index at a time, and copies the missing ones as recovery adds: they are stored though the ledger
    is fenced, and stored entries stay."""

    def __init__(self, bookie: Bookie, copies: Copies) -> None:
        self._bookie = bookie
        self._copies = copies
        self._loop = asyncio.get_running_loop()
        self.copied_entries = 0
        self.copied_bytes = 0

    async def copy(self, metadata: LedgerMetadata) -> None:
        """Return when all entries that belong on this bookie are here, durably. If one has no copy,
        the others are copied all the same. Raises NoCopy for the one without a copy; or
        FencelogError."""
        me, ledger_id = self._bookie.bookie_id, metadata.ledger_id
        lost: list[NoCopy] = []
        position: int | None = 0
        while position is not None and position <= metadata.last_entry_id:
            held = await self._bookie.list_entries(ledger_id, position)
            end = metadata.last_entry_id if held.next_entry is None else held.next_entry - 1
            wanted = wanted_ranges(metadata, me, position, end)
            while ranges := list(islice(wanted, _RANGES_AT_ONCE)):
                missing = missing_copy_ranges(metadata, me, ranges, held.availability)
                while batch := list(islice(missing, COPIES_AT_ONCE)):
                    await self._copy_batch(metadata, batch, lost)
                await asyncio.sleep(0)
            position = held.next_entry
        if lost:
            raise next(
                (missing for missing in lost if missing.reason is MissingReason.LOST), lost[0]
            )

    async def _copy_batch(
        self, metadata: LedgerMetadata, batch: list[CopyRange], lost: list[NoCopy]
    ) -> None:
        tasks = [
            self._loop.create_task(self._copy_range(metadata, copy_range, lost))
            for copy_range in batch
        ]
        try:
            for task in tasks:
                await task
        finally:
            await cancel_all(tasks)

    async def _copy_range(
        self, metadata: LedgerMetadata, copy_range: CopyRange, lost: list[NoCopy]
    ) -> None:
        """Copy the entries of a range. Raises NoCopy where a bookie could not be asked, or too many
        entries are lost to continue."""
        entry_id = copy_range.first
        while entry_id <= copy_range.last:
            try:
                run = await self._copies.run(metadata, copy_range, entry_id)
            except NoCopy as missing:
                lost.append(missing)
                if missing.reason is MissingReason.UNREACHED or len(lost) > MAX_LOST_ENTRIES_NOTED:
                    raise
                entry_id += 1
                continue
            await self._store(run)
            header = read_run_header(run)
            entry_id = header.last_entry_id + 1
            self.copied_entries += header.entries
            self.copied_bytes += header.size

    async def _store(self, run: bytes) -> None:
        """Store a run, durably on return. Raises FencelogError."""
        for _ in range(_ADD_ATTEMPTS):
            error = await self._add(run)
            if error is None:
                return
            if error.code is not ErrorCode.OVERLOADED:
                raise error
            await asyncio.sleep(_ADD_PAUSE_S)
        raise FencelogError(ErrorCode.OVERLOADED, "the write cache stays full")

    async def _add(self, run: bytes) -> FencelogError | None:
        answer: asyncio.Future[FencelogError | None] = self._loop.create_future()

        def on_reply(error: FencelogError | None) -> None:
            if not answer.done():
                answer.set_result(error)

        self._bookie.add(run, recovery=True, on_reply=on_reply)
        return await answer
