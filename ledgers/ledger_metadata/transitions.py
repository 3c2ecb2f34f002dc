"""The changes that each party may make to a ledger's metadata: pure steps for ``update_metadata``.

A step takes the metadata in the store and returns the metadata that should replace it, None when no
change is needed, or raises. It is called again after every conflict and every lost reply, so it
recognises its own work.
"""

from __future__ import annotations

from dataclasses import replace

from fencelog.ledgers.errors import ErrorCode, FencelogError, recovery_incomplete
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, LedgerState


def with_new_ensemble(
    base: LedgerMetadata, *, previous: Fragment, fragment: Fragment
) -> LedgerMetadata | None:
    """Add ``fragment`` after ``previous``, or in its place where both begin at the same entry: the
    writer's step, possible only while OPEN (rule 2).

    Earlier fragments are accepted as they are: the repair of lost copies may change them. The last
    one belongs to the writer; if another client changed it, the writer has lost the ledger. Raises
    LEDGER_FENCED; BAD_REQUEST where there is no space for another fragment.
    """
    if base.state is not LedgerState.OPEN or base.last_fragment not in (previous, fragment):
        raise _taken_away(base)
    if base.last_fragment == fragment:
        return None
    return base.with_ensemble(fragment.first_entry_id, fragment.bookies, fragment.since_us)


def closed_by_writer(
    base: LedgerMetadata, *, last_entry_id: int, length: int
) -> LedgerMetadata | None:
    """Close the ledger for its writer: only from OPEN; CLOSED at the same entry is success (rule
    8). Raises LEDGER_FENCED, even where it was closed below the writer's last acknowledged entry,
    which an accepted loss may cause (``recovery.rules.AcceptedLoss``)."""
    if base.state is LedgerState.OPEN:
        return base.closed(last_entry_id=last_entry_id, length=length)
    if base.is_closed and (base.last_entry_id, base.length) == (last_entry_id, length):
        return None
    raise _taken_away(base)


def _taken_away(base: LedgerMetadata) -> FencelogError:
    is_open = base.state is LedgerState.OPEN
    how = "has an ensemble of" if is_open else f"is {base.state.value} by"
    return FencelogError(ErrorCode.LEDGER_FENCED, f"ledger {base.ledger_id} {how} another client")


def begin_recovery(base: LedgerMetadata) -> LedgerMetadata | None:
    """Begin a recovery, OPEN -> IN_RECOVERY; from here on the writer can change nothing."""
    return base.in_recovery() if base.state is LedgerState.OPEN else None


def with_replaced_bookie(
    base: LedgerMetadata,
    *,
    first_entry_id: int,
    last_entry_id: int,
    index: int,
    old: str,
    new: str,
) -> LedgerMetadata | None:
    """Replace one bookie of one fragment, after the entries ``first_entry_id`` …
    ``last_entry_id`` that belong there were copied to ``new``: the step of a replication worker
    (rule 11). Everything else stays as it is.

    The last fragment belongs to the writer until the ledger is closed, and all of them belong to a
    recoverer, whose close would otherwise fail. Raises METADATA_CONFLICT where the fragment is not
    the one whose entries were copied.
    """
    firsts = [fragment.first_entry_id for fragment in base.fragments]
    if base.state is LedgerState.IN_RECOVERY or first_entry_id not in firsts:
        raise _not_as_copied(base, first_entry_id)
    at = firsts.index(first_entry_id)
    is_last = at == len(firsts) - 1
    end = base.last_entry_id if is_last else firsts[at + 1] - 1
    copied = base.fragments[at]
    bookies = copied.bookies
    if (is_last and not base.is_closed) or end != last_entry_id or index >= len(bookies):
        raise _not_as_copied(base, first_entry_id)
    if bookies[index] == new:
        return None
    if bookies[index] != old or new in bookies:
        raise _not_as_copied(base, first_entry_id)
    fragment = replace(copied, bookies=(*bookies[:index], new, *bookies[index + 1 :]))
    return replace(base, fragments=(*base.fragments[:at], fragment, *base.fragments[at + 1 :]))


def _not_as_copied(base: LedgerMetadata, first_entry_id: int) -> FencelogError:
    return FencelogError(
        ErrorCode.METADATA_CONFLICT,
        f"ledger {base.ledger_id} is {base.state.value}, and its fragment at {first_entry_id} is "
        f"not the one whose entries were copied",
    )


def closed_by_recoverer(
    base: LedgerMetadata,
    *,
    snapshot: LedgerMetadata,
    fragments: tuple[Fragment, ...],
    last_entry_id: int,
    length: int,
) -> LedgerMetadata | None:
    """Close the ledger for its recoverer: ensembles, CLOSED, last entry and length at once (rule
    5).

    If another client has closed it meanwhile, that close is valid and is adopted (seed 001).
    """
    if base.is_closed:
        return None
    if base.fragments != snapshot.fragments:
        raise recovery_incomplete(base.ledger_id, "was changed during its recovery", {})
    recovered = replace(base, fragments=fragments)
    return recovered.closed(last_entry_id=last_entry_id, length=length)
