"""The copying of ranges of entries from other bookies to one, as recovery adds.

A recovery add is stored though the ledger is fenced, and a stored entry stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from fencelog.bookie.repair.copies import Copies, NoCopy
from fencelog.bookie.repair.core import CopyRange, MissingReason
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import COPIES_AT_ONCE, MAX_LOST_ENTRIES_NOTED
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.rpc.bookie_port import AddCallback

_ADD_ATTEMPTS = 100
_ADD_PAUSE_S = 0.1
"""Pause after an add that was refused: a full write cache is empty again after some flushes."""

RecoveryAdd = Callable[[bytes, AddCallback], None]
"""A recovery add to the bookie that gets the copies."""


class EntryCopier:
    """A copier of entries, COPIES_AT_ONCE ranges at a time."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._loop = asyncio.get_running_loop()
        self.copied_entries = 0
        self.copied_bytes = 0

    async def copy(
        self,
        metadata: LedgerMetadata,
        ranges: Iterator[CopyRange],
        add: RecoveryAdd,
        lost: list[NoCopy],
        *,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the ranges; entries of which there is no copy join ``lost``. ``check``: called
        before each copy; it raises where copying is to stop. Raises NoCopy where a
        bookie could not be asked, or too many entries are lost to continue; FencelogError where a
        copy could not be stored."""
        while batch := list(islice(ranges, COPIES_AT_ONCE)):
            tasks = [
                self._loop.create_task(self._copy_range(metadata, copy_range, add, lost, check))
                for copy_range in batch
            ]
            try:
                for task in tasks:
                    await task
            finally:
                await cancel_all(tasks)

    async def _copy_range(
        self,
        metadata: LedgerMetadata,
        copy_range: CopyRange,
        add: RecoveryAdd,
        lost: list[NoCopy],
        check: Callable[[], None],
    ) -> None:
        entry_id = copy_range.first
        while entry_id <= copy_range.last:
            check()
            try:
                run = await self._copies.run(metadata, copy_range, entry_id)
            except NoCopy as missing:
                lost.append(missing)
                if missing.reason is MissingReason.UNREACHED or len(lost) > MAX_LOST_ENTRIES_NOTED:
                    raise
                entry_id += 1
                continue
            await self._store(run, add)
            header = read_run_header(run)
            entry_id = header.last_entry_id + 1
            self.copied_entries += header.entries
            self.copied_bytes += header.size

    async def _store(self, run: bytes, add: RecoveryAdd) -> None:
        """Store a run, durably on return. Raises FencelogError."""
        for _ in range(_ADD_ATTEMPTS):
            error = await self._answer(run, add)
            if error is None:
                return
            if error.code is not ErrorCode.OVERLOADED:
                raise error
            await asyncio.sleep(_ADD_PAUSE_S)
        raise FencelogError(ErrorCode.OVERLOADED, "the write cache stays full")

    async def _answer(self, run: bytes, add: RecoveryAdd) -> FencelogError | None:
        answer: asyncio.Future[FencelogError | None] = self._loop.create_future()

        def on_reply(error: FencelogError | None) -> None:
            if not answer.done():
                answer.set_result(error)

        add(run, on_reply)
        return await answer


def first_lost(lost: list[NoCopy]) -> NoCopy:
    """Return the entry without a copy that tells most: one that no bookie has, if there is one."""
    return next((missing for missing in lost if missing.reason is MissingReason.LOST), lost[0])
