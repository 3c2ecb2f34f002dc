"""The copying of entries that this bookie should hold of a closed ledger and lacks."""

from __future__ import annotations

import asyncio
from itertools import islice

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.repair.copier import EntryCopier, all_lost
from fencelog.bookie.repair.copies import Copies, NoCopy
from fencelog.bookie.repair.core import missing_copy_ranges, wanted_ranges
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.rpc.bookie_port import AddCallback

_RANGES_AT_ONCE = 1024
"""Number of ranges compared in one turn of the event loop, which takes about a millisecond."""


class MissingEntries:
    """The repair of missing entries. It compares a ledger with the stored entries, a page of the
    index at a time, and copies the missing ones as recovery adds."""

    def __init__(self, bookie: Bookie, copies: Copies) -> None:
        self._bookie = bookie
        self._copier = EntryCopier(copies)

    @property
    def copied_entries(self) -> int:
        return self._copier.copied_entries

    @property
    def copied_bytes(self) -> int:
        return self._copier.copied_bytes

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
                await self._copier.copy(metadata, missing, self._add, lost)
                await asyncio.sleep(0)
            position = held.next_entry
        if lost:
            raise all_lost(lost)

    def _add(self, run: bytes, on_reply: AddCallback) -> None:
        self._bookie.add(run, recovery=True, on_reply=on_reply)
