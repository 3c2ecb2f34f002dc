"""Ensembles that violate the placement policy. Pure.

Placement spreads each write set over as many racks as it can (``ledgers/placement``). Racks come
and go, and an ensemble may date from a time when there were fewer: what has to hold is that no
single rack has all copies of an entry, as long as the cluster has bookies in more than one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fencelog.bookie.auditor.check_core import Violation, ViolationKind
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.quorum import write_set


@dataclass(frozen=True, slots=True)
class PoorFragment:
    """A fragment with a write set in fewer racks than it could be. ``crowded``: the members of the
    poorest write set; any of them may be replaced by a bookie of another rack."""

    first_entry_id: int
    crowded: tuple[str, ...]
    racks: tuple[str, ...]
    needed: int


def needed_racks(racks: Collection[str], *, write_quorum: int, min_racks: int) -> int:
    """Return the number of racks that a write set has to span, in a cluster with bookies in these
    racks."""
    return min(len(set(racks)), write_quorum, min_racks)


def poor_fragments(
    metadata: LedgerMetadata, racks: Mapping[str, str], *, min_racks: int
) -> Iterator[PoorFragment]:
    """Yield the fragments with entries that violate the policy. ``racks``: those of the registered
    bookies. The rack of any other bookie is unknown, and may be the one that is missing."""
    needed = needed_racks(racks.values(), write_quorum=metadata.write_quorum, min_racks=min_racks)
    if needed < 2:
        return
    for fragment in metadata.fragments:
        if metadata.is_closed and fragment.first_entry_id > metadata.last_entry_id:
            continue
        poorest: tuple[str, ...] | None = None
        fewest = needed
        for start in range(metadata.ensemble_size):
            indices = write_set(
                start, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
            )
            members = tuple(fragment.bookies[index] for index in indices)
            if any(bookie not in racks for bookie in members):
                continue
            if (count := len({racks[bookie] for bookie in members})) < fewest:
                poorest, fewest = members, count
        if poorest is not None:
            found = tuple(sorted({racks[bookie] for bookie in poorest}))
            yield PoorFragment(fragment.first_entry_id, poorest, found, needed)


def placement_violations(
    metadata: LedgerMetadata, racks: Mapping[str, str], *, min_racks: int
) -> Iterator[Violation]:
    """Yield the violations of a ledger."""
    for poor in poor_fragments(metadata, racks, min_racks=min_racks):
        yield Violation(
            ViolationKind.PLACEMENT,
            metadata.ledger_id,
            f"fragment at {poor.first_entry_id}: {', '.join(poor.crowded)} are in "
            f"{'rack' if len(poor.racks) == 1 else 'racks'} {', '.join(poor.racks)} alone, "
            f"{poor.needed} racks are possible",
            poor.first_entry_id,
        )
