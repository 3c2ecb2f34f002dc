"""The comparison of the entries that the bookies of a ledger have with those that they should
have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from itertools import islice

from fencelog.bookie.auditor.check_core import Answer
from fencelog.bookie.auditor.entry_lists import EntryLists
from fencelog.bookie.repair.core import wanted_ranges
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_SHOWN_RANGES = 10


@dataclass(slots=True)
class Holding:
    """The entries that a bookie has of those that metadata assigns to it. ``missing``: the first
    ranges of those that it lacks; ``unknown``: why it could not be asked to the end."""

    bookie_id: str
    missing: list[tuple[int, int]] = field(default_factory=list)
    in_limbo: bool = False
    unknown: FencelogError | None = None

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.in_limbo and self.unknown is None

    def __str__(self) -> str:
        said = []
        if self.missing:
            ranges = [f"{first}..{last}" for first, last in self.missing[:_SHOWN_RANGES]]
            more = ["…"] if len(self.missing) > _SHOWN_RANGES else []
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
    if not metadata.is_closed:
        lac = await LedgerReader(metadata, bookies=bookies).read_lac()
        metadata = replace(metadata, last_entry_id=lac)
    members = {bookie for fragment in metadata.fragments for bookie in fragment.bookies}
    holdings = {bookie_id: Holding(bookie_id) for bookie_id in sorted(members)}
    lists = EntryLists(metadata, bookies)
    async for window in lists.windows():
        for bookie_id, held in window.held.items():
            holding = holdings[bookie_id]
            holding.in_limbo |= held.answer is Answer.IN_LIMBO
            if held.answer is not Answer.UNAVAILABLE:
                wanted = wanted_ranges(metadata, bookie_id, window.first, window.last)
                capacity = _SHOWN_RANGES + 1 - len(holding.missing)
                holding.missing += islice(held.listed.missing_from(wanted), capacity)
    for bookie_id, holding in holdings.items():
        holding.unknown = lists.failures.get(bookie_id)
        yield holding
