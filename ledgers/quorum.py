"""Quorum arithmetic: the write set of an entry, and when enough bookies have answered.

Definitions follow seed 000 ("Quorum Coverage") and seed 001 ("Write quorums"). For a cohort of
bookies and an ack quorum Qa, a property *covers* the cohort when every possible ack quorum within
it holds at least one bookie that satisfies the property. Four equivalent ways to say so stand in
``tests/properties/test_quorum.py``; here is the cheapest.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_ENSEMBLE


def validate_quorums(*, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """Refuse sizes that do not satisfy E >= Qw >= Qa >= 1 (seed 001).

    Raises FencelogError(BAD_REQUEST).
    """
    if not MAX_ENSEMBLE >= ensemble_size >= write_quorum >= ack_quorum >= 1:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"need {MAX_ENSEMBLE} >= E >= Qw >= Qa >= 1, "
            f"got E={ensemble_size} Qw={write_quorum} Qa={ack_quorum}",
        )


def write_set(entry_id: int, *, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """Return the ensemble indices that store an entry: ``(entry_id + k) mod E``, k < Qw (rule
    1)."""
    return tuple((entry_id + k) % ensemble_size for k in range(write_quorum))


def coverage_threshold(*, cohort: int, ack_quorum: int) -> int:
    """Return how many members must satisfy a property so that no ack quorum is left without one."""
    return cohort - ack_quorum + 1


def is_ensemble_covered(
    indices: AbstractSet[int], *, ensemble_size: int, write_quorum: int, ack_quorum: int
) -> bool:
    """Tell whether every write set of the ensemble holds (Qw - Qa) + 1 of ``indices`` (rule 4).

    This is BookKeeper's condition for fencing; for E = Qw it equals (E - Qa) + 1, for E > Qw it is
    weaker than seed 002's ensemble coverage and sufficient: an add needs Qa acks *within one write
    set*.
    """
    need = coverage_threshold(cohort=write_quorum, ack_quorum=ack_quorum)
    return all(
        sum(
            index in indices
            for index in write_set(start, ensemble_size=ensemble_size, write_quorum=write_quorum)
        )
        >= need
        for start in range(ensemble_size)
    )
