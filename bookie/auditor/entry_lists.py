"""The lists of entries of all bookies of a ledger, asked for as far as they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass

from fencelog.bookie.auditor.check_core import Answer, ListedEntries
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Availability
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import MAX_LISTED_RUNS
from fencelog.ledgers.rpc.bookie_port import BookieDirectory


@dataclass(frozen=True, slots=True)
class ListedWindow:
    """A range of entries, and what each bookie of the ledger has of it."""

    first: int
    last: int
    held: Mapping[str, ListedEntries]


class EntryLists:
    """The lists of one ledger. A long list comes in pages: the ledger is gone through in windows,
    each as far as the shortest page goes, so that memory is bounded by one page of each bookie.

    ``gone``: bookies that are not asked, because an operator has given up their copies.
    ``resting``: bookies that are not asked because they have failed just now. ``failures``: these,
    and the bookies that did not answer, or not in a way that can be understood; they are not asked
    again.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        bookies: BookieDirectory,
        *,
        gone: Collection[str] = (),
        resting: Mapping[str, FencelogError] | None = None,
    ) -> None:
        self._metadata = metadata
        self._bookies = bookies
        self._gone = gone
        self._resting = resting or {}
        self._pages: dict[str, EntryList] = {}
        self.failures: dict[str, FencelogError] = {}
        self.in_limbo: set[str] = set()

    async def windows(self) -> AsyncIterator[ListedWindow]:
        """Yield windows from entry 0 to the last entry of the ledger."""
        last = self._metadata.last_entry_id
        first = 0
        while first <= last:
            used = self._members_from(first)
            await self._ask(used, first)
            ends = (self._end(bookie) for bookie in used)
            end = min([last, *ends])
            yield ListedWindow(first, end, {bookie: self._held(bookie) for bookie in used})
            first = end + 1

    def _members_from(self, first: int) -> list[str]:
        """Return the bookies of the fragments with entries from ``first`` on, sorted."""
        fragments = self._metadata.fragments
        ends = [fragment.first_entry_id for fragment in fragments[1:]] + [MAX_ENTRY_ID + 1]
        return sorted(
            {
                bookie
                for fragment, end in zip(fragments, ends, strict=True)
                if end > first and fragment.first_entry_id <= self._metadata.last_entry_id
                for bookie in fragment.bookies
            }
        )

    async def _ask(self, bookies: Collection[str], first: int) -> None:
        """Ask the bookies whose page ends before ``first`` for the next one, side by side."""
        self.failures |= {b: self._resting[b] for b in bookies if b in self._resting}
        due = [b for b in bookies if self._is_asked(b) and self._end(b) < first]
        await asyncio.gather(*(self._ask_one(bookie, first) for bookie in due))

    async def _ask_one(self, bookie_id: str, first: int) -> None:
        try:
            page = await self._bookies.client(bookie_id).list_entries(
                self._metadata.ledger_id, first
            )
            _check_size(bookie_id, page)
        except FencelogError as error:
            if error.code.is_negative:
                self._pages[bookie_id] = EntryList(Availability())
            else:
                self._pages.pop(bookie_id, None)
                self.failures[bookie_id] = error
        else:
            self._pages[bookie_id] = page
            if page.in_limbo:
                self.in_limbo.add(bookie_id)

    def _is_asked(self, bookie_id: str) -> bool:
        return bookie_id not in self._gone and bookie_id not in self.failures

    def _end(self, bookie_id: str) -> int:
        """Return the last entry up to which it is known what the bookie has."""
        if not self._is_asked(bookie_id):
            return MAX_ENTRY_ID
        page = self._pages.get(bookie_id)
        if page is None:
            return -1
        return MAX_ENTRY_ID if page.next_entry is None else page.next_entry - 1

    def _held(self, bookie_id: str) -> ListedEntries:
        if bookie_id in self._gone:
            return ListedEntries(Answer.GONE)
        if bookie_id in self.failures:
            return ListedEntries(Answer.UNAVAILABLE)
        page = self._pages[bookie_id]
        answer = Answer.IN_LIMBO if page.in_limbo else Answer.COMPLETE
        return ListedEntries(answer, page.availability)


def _check_size(bookie_id: str, page: EntryList) -> None:
    """Check that a page has no more sequences than it may cover stored runs: the comparison takes
    time in proportion to them. Raises CORRUPT (= unknown)."""
    sequences = sum(group.sequences for group in page.availability.groups)
    if sequences > MAX_LISTED_RUNS:
        raise FencelogError(
            ErrorCode.CORRUPT,
            f"bookie {bookie_id} lists {sequences} sequences of entries in one answer",
        )
