"""What each party may make of a ledger's metadata: pure steps for ``update_metadata``.

A step takes the metadata that stands in the store and returns what should stand there, None when
that is so already, or raises. Being asked again after every conflict and every lost reply, a step
recognises its own work.
"""

from __future__ import annotations

from dataclasses import replace

from fencelog.ledgers.errors import ErrorCode, FencelogError, recovery_incomplete
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, LedgerState


def with_new_ensemble(
    base: LedgerMetadata, *, former: Fragment, fragment: Fragment
) -> LedgerMetadata | None:
    """The writer's step: ``fragment`` after ``former``, or in its place where both begin at the
    same entry; only while OPEN (rule 2).

    Earlier fragments are taken as they stand: whoever replaces lost copies may change those. The
    last one is the writer's own; whoever else changed it has taken the ledger away. Raises
    LEDGER_FENCED; BAD_REQUEST where there is no room for another fragment.
    """
    if base.state is not LedgerState.OPEN or base.last_fragment not in (former, fragment):
        raise _taken_away(base)
    if base.last_fragment == fragment:
        return None
    return base.with_ensemble(fragment.first_entry_id, fragment.bookies)


def closed_by_writer(
    base: LedgerMetadata, *, last_entry_id: int, length: int
) -> LedgerMetadata | None:
    """The writer's close: only from OPEN; CLOSED at the same entry is success (rule 8). Raises
    LEDGER_FENCED, even where it was closed below what the writer knows to be acknowledged: that
    is what accepting a loss may do (``recovery_core.AcceptedLoss``).
    """
    if base.state is LedgerState.OPEN:
        return base.closed(last_entry_id=last_entry_id, length=length)
    if base.is_closed and (base.last_entry_id, base.length) == (last_entry_id, length):
        return None
    raise _taken_away(base)


def _taken_away(base: LedgerMetadata) -> FencelogError:
    is_open = base.state is LedgerState.OPEN
    how = "has an ensemble of" if is_open else f"is {base.state.value} by"
    return FencelogError(ErrorCode.LEDGER_FENCED, f"ledger {base.ledger_id} {how} somebody else")


def begin_recovery(base: LedgerMetadata) -> LedgerMetadata | None:
    """The recoverer's first step: OPEN -> IN_RECOVERY; from here the writer can change nothing."""
    return base.in_recovery() if base.state is LedgerState.OPEN else None


def closed_by_recoverer(
    base: LedgerMetadata,
    *,
    snapshot: LedgerMetadata,
    fragments: tuple[Fragment, ...],
    last_entry_id: int,
    length: int,
) -> LedgerMetadata | None:
    """The recoverer's last step: ensembles, CLOSED, last entry and length at once (rule 5).

    Closed by somebody else meanwhile: theirs holds, and is adopted (seed 001).
    """
    if base.is_closed:
        return None
    if base.fragments != snapshot.fragments:
        raise recovery_incomplete(base.ledger_id, "was changed during its recovery", {})
    recovered = replace(base, fragments=fragments)
    return recovered.closed(last_entry_id=last_entry_id, length=length)
