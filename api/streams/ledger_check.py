"""The comparison of the entries that the bookies of a ledger have with those that they should
have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from itertools import islice

from fencelog.bookie.repair.core import wanted_ranges
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieDirectory

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
    """Check one bookie after the other. In a ledger that is not closed all entries up to its LAC
    count; there up to Qw - Qa copies of an entry may be missing and be no fault. Raises
    READ_UNKNOWN where the LAC cannot be learnt."""
    if not metadata.is_closed:
        lac = await LedgerReader(metadata, bookies=bookies).read_lac()
        metadata = replace(metadata, last_entry_id=lac)
    members = {bookie for fragment in metadata.fragments for bookie in fragment.bookies}
    for bookie_id in sorted(members):
        holding = Holding(bookie_id)
        try:
            await _ask(bookies.client(bookie_id), metadata, holding)
        except FencelogError as error:
            if error.code.is_negative:
                wanted = wanted_ranges(metadata, bookie_id, 0, metadata.last_entry_id)
                holding.missing = list(islice(wanted, _SHOWN_RANGES + 1))
            else:
                holding.unknown = error
        yield holding


async def _ask(client: BookieClient, metadata: LedgerMetadata, holding: Holding) -> None:
    position: int | None = 0
    while position is not None and position <= metadata.last_entry_id:
        held = await client.list_entries(metadata.ledger_id, position)
        holding.in_limbo |= held.in_limbo
        end = metadata.last_entry_id if held.next_entry is None else held.next_entry - 1
        wanted = wanted_ranges(metadata, holding.bookie_id, position, end)
        capacity = _SHOWN_RANGES + 1 - len(holding.missing)
        holding.missing += islice(held.availability.missing_from(wanted), capacity)
        position = held.next_entry
