"""The question whether other bookies hold what is held here, before garbage collection removes it.

Metadata that was restored from a backup may name bookies from which the entries were moved since:
they have removed their copies, and those here may be the only ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.format.runs import Range
from fencelog.bookie.repair.core import wanted_ranges
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import SOURCE_REST_MS
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_RANGES_AT_ONCE = 128
"""Number of ranges compared in one turn of the event loop, which takes about a millisecond. Of
comparisons that run side by side, one takes a turn."""

_SILENT = (ErrorCode.BOOKIE_UNAVAILABLE, ErrorCode.REQUEST_TIMEOUT)
"""Errors of a bookie that is asked nothing more for a while: one that is down costs a pass one
time-out, not one for each ledger."""


class OtherCopies:
    """The comparison of one bookie's entries with the lists of the bookies that metadata names.
    Lists come from indexes: no entry is read."""

    def __init__(self, bookie: Bookie, bookies: BookieDirectory) -> None:
        self._bookie = bookie
        self._bookies = bookies
        self._loop = asyncio.get_running_loop()
        self._resting: dict[str, tuple[float, FencelogError]] = {}
        self._computing = asyncio.Lock()

    async def doubt(self, metadata: LedgerMetadata) -> str | None:
        """Return why it is not certain that each entry up to the end of a closed ledger that is
        here is also on all bookies that the metadata names for it; None: it is. Raises
        FencelogError if the entries that are here cannot be listed."""
        position: int | None = 0
        while position is not None and position <= metadata.last_entry_id:
            own = await self._bookie.list_entries(metadata.ledger_id, position)
            last = metadata.last_entry_id if own.next_entry is None else own.next_entry - 1
            last = min(last, metadata.last_entry_id)
            for member in _members(metadata):
                doubt = await self._compare(metadata, member, position, last, own.availability)
                if doubt is not None:
                    return f"bookie {member} {doubt}"
            position = own.next_entry
        return None

    async def _compare(
        self, metadata: LedgerMetadata, member: str, first: int, last: int, own: Availability
    ) -> str | None:
        """Return what is wrong with the entries ``first`` … ``last`` on one bookie."""
        ours = _ours(metadata, member, first, last, own)
        if (some := next(ours, None)) is None:
            return None  # none of them belongs there
        try:
            listed, in_limbo = await self._list(member, metadata.ledger_id, first, last)
        except FencelogError as error:
            return error.detail
        if in_limbo:
            return "has the ledger in limbo"
        ranges = [some]
        async with self._computing:
            while ranges:
                if (missing := next(listed.missing_from(ranges), None)) is not None:
                    return f"has no entry {missing[0]}"
                await asyncio.sleep(0)
                ranges = list(islice(ours, _RANGES_AT_ONCE))
        return None

    async def _list(
        self, bookie_id: str, ledger_id: int, first: int, last: int
    ) -> tuple[Availability, bool]:
        """Return the entries ``first`` … ``last`` that a bookie has, and whether the ledger is in
        limbo there. Raises FencelogError, a negative too."""
        rest = self._resting.get(bookie_id)
        if rest is not None and self._loop.time() < rest[0]:
            raise copy_of(rest[1])
        client = self._bookies.client(bookie_id)
        ranges: list[Range] = []
        position, in_limbo = first, False
        while position <= last:
            try:
                page = await client.list_entries(ledger_id, position)
            except FencelogError as error:
                if error.code in _SILENT:
                    until_s = self._loop.time() + SOURCE_REST_MS / 1000
                    self._resting[bookie_id] = (until_s, copy_of(error))
                raise
            end = last if page.next_entry is None else min(page.next_entry - 1, last)
            ranges += page.availability.ranges(position, end)
            in_limbo |= page.in_limbo
            position = end + 1
        return Availability.of(ranges), in_limbo


def _members(metadata: LedgerMetadata) -> list[str]:
    """Return the bookies of all fragments, sorted."""
    return sorted({bookie for fragment in metadata.fragments for bookie in fragment.bookies})


def _ours(
    metadata: LedgerMetadata, member: str, first: int, last: int, own: Availability
) -> Iterator[Range]:
    """Yield the entries that belong on the bookie ``member``, out of those that are here."""
    for low, high in own.ranges(first, last):
        yield from wanted_ranges(metadata, member, low, high)
