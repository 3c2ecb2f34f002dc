"""Marks for a better place of healthy copies: fragments in too few racks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from fencelog.bookie.auditor.limits import MAX_CHOSEN_MARKS, MIN_RACKS_PER_WRITE_SET
from fencelog.bookie.auditor.placement_core import poor_fragments
from fencelog.bookie.auditor.registered import KnownBookies, read_bookies
from fencelog.bookie.auditor.scan import scan_ledgers
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.port import MetadataStore


@dataclass(slots=True)
class PlacementCheck:
    """The result of a placement check. ``impossible``: ledgers for which no bookie of another rack
    takes adds; ``put_off``: those for which there was no mark left this time."""

    ledgers: int = 0
    violating: int = 0
    marked: int = 0
    impossible: int = 0
    put_off: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "ledgers": self.ledgers,
            "violating": self.violating,
            "marked": self.marked,
            "impossible": self.impossible,
            "put_off": self.put_off,
        }


async def check_placement(
    store: MetadataStore, *, host: Host, most: int = MAX_CHOSEN_MARKS
) -> PlacementCheck:
    """Mark closed ledgers that violate the placement policy, and could be repaired, until ``most``
    ledgers are marked for any cause: lost copies come first. Raises FencelogError:
    METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT; some ledgers may be marked then."""
    marks, result = UnderReplicatedLedgers(store), PlacementCheck()
    marked = {ledger_id async for ledger_id in marks.list_ids()}
    capacity = max(0, most - len(marked))
    known = await read_bookies(store)
    async for metadata in scan_ledgers(store, unreadable=[]):
        if not metadata.is_closed:
            continue
        result.ledgers += 1
        poor = list(poor_fragments(metadata, known.racks, min_racks=MIN_RACKS_PER_WRITE_SET))
        if not poor:
            continue
        result.violating += 1
        members = sorted(set(_replaceable(metadata, known)))
        if not members:
            result.impossible += 1
        elif metadata.ledger_id in marked:
            continue
        elif result.marked >= capacity:
            result.put_off += 1
        else:
            now_us = host.now_us()
            await marks.mark(
                metadata.ledger_id, missing=members, why=Cause.PLACEMENT, now_us=now_us
            )
            result.marked += 1
    return result


def _replaceable(metadata: LedgerMetadata, known: KnownBookies) -> Iterator[str]:
    """Yield one member of each poor write set that a bookie of another rack could replace."""
    for poor in poor_fragments(metadata, known.racks, min_racks=MIN_RACKS_PER_WRITE_SET):
        ensemble = metadata.fragment_of(poor.first_entry_id).bookies
        if _has_candidate(known, ensemble, poor.racks):
            yield poor.crowded[-1]


def _has_candidate(known: KnownBookies, ensemble: Collection[str], racks: Collection[str]) -> bool:
    return any(
        bookie not in ensemble and info.rack not in racks for bookie, info in known.writable.items()
    )
