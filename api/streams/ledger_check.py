"""The comparison of the entries that the bookies of a ledger have with those that they should
have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace

from fencelog.bookie.auditor.check_core import Answer
from fencelog.bookie.auditor.entry_lists import EntryLists, ListedWindow
from fencelog.bookie.repair.core import wanted_ranges
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_SHOWN_RANGES = 10


@dataclass(slots=True)
class Holding:
    """The entries that a bookie has of those that metadata assigns to it: so many are ``expected``,
    so many are there (``held``). ``missing``: the first ranges of those that it lacks, where
    ``are_more`` says that there are others; ``unknown``: why it could not be asked to the end."""

    bookie_id: str
    expected: int = 0
    held: int = 0
    missing: list[tuple[int, int]] = field(default_factory=list)
    are_more: bool = False
    in_limbo: bool = False
    unknown: FencelogError | None = None

    def add(self, metadata: LedgerMetadata, window: ListedWindow) -> None:
        """Add what the bookie has of a part of the ledger."""
        listed = window.held.get(self.bookie_id)
        if listed is None:
            return
        wanted = list(wanted_ranges(metadata, self.bookie_id, window.first, window.last))
        self.expected += _entries_in(wanted)
        self.in_limbo |= listed.answer is Answer.IN_LIMBO
        if listed.answer is Answer.UNAVAILABLE:
            return
        missing = list(listed.listed.missing_from(wanted))
        self.held += _entries_in(wanted) - _entries_in(missing)
        self.missing += missing
        self.are_more |= len(self.missing) > _SHOWN_RANGES
        del self.missing[_SHOWN_RANGES:]

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.in_limbo and self.unknown is None

    def __str__(self) -> str:
        said = []
        if self.missing:
            ranges = [f"{first}..{last}" for first, last in self.missing]
            more = ["…"] if self.are_more else []
            said.append("missing " + ", ".join(ranges + more))
        if self.in_limbo:
            said.append("in limbo: it may have forgotten what is missing")
        if self.unknown is not None:
            said.append(f"not known: {self.unknown.detail}")
        return f"{self.bookie_id}: {'; '.join(said) or 'whole'}"


async def check_ledger(
    metadata: LedgerMetadata, bookies: BookieDirectory
) -> AsyncIterator[Holding]:
    """Check all bookies of a ledger side by side. In a ledger that is not closed all entries up to
    its LAC count; there up to Qw - Qa copies of an entry may be missing and be no fault. Raises
    READ_UNKNOWN where the LAC cannot be learnt."""
    metadata = await as_far_as_confirmed(metadata, bookies)
    lists = EntryLists(metadata, bookies)
    holdings = [Holding(bookie_id) for bookie_id in members_of(metadata)]
    async for window in lists.windows():
        for holding in holdings:
            holding.add(metadata, window)
    for holding in holdings:
        holding.unknown = lists.failures.get(holding.bookie_id)
        yield holding


async def check_bookie(
    metadata: LedgerMetadata, bookies: BookieDirectory, bookie_id: str
) -> Holding:
    """Check one bookie of a ledger that is closed, or seen ``as_far_as_confirmed``."""
    others = [each for each in members_of(metadata) if each != bookie_id]
    lists, holding = EntryLists(metadata, bookies, gone=others), Holding(bookie_id)
    async for window in lists.windows():
        holding.add(metadata, window)
    holding.unknown = lists.failures.get(bookie_id)
    return holding


async def as_far_as_confirmed(metadata: LedgerMetadata, bookies: BookieDirectory) -> LedgerMetadata:
    """Return the metadata of a ledger as if it ended where it is confirmed by now. Raises
    READ_UNKNOWN."""
    if metadata.is_closed:
        return metadata
    lac = await LedgerReader(metadata, bookies=bookies).read_lac()
    return replace(metadata, last_entry_id=lac)


def members_of(metadata: LedgerMetadata) -> list[str]:
    """Return all bookies of a ledger, sorted."""
    return sorted({bookie for fragment in metadata.fragments for bookie in fragment.bookies})


def _entries_in(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)
