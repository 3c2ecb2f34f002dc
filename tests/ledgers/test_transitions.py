"""What each party may make of a ledger's metadata, and how it learns that it lost the ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metadata import Fragment, LedgerMetadata, LedgerState, new_metadata
from fencelog.ledgers.transitions import (
    begin_recovery,
    closed_by_recoverer,
    closed_by_writer,
    with_new_ensemble,
)

FIRST = Fragment(0, ("b1", "b2", "b3"))
SECOND = Fragment(7, ("b1", "b4", "b3"))
BASE = new_metadata(1, ensemble=FIRST.bookies, write_quorum=3, ack_quorum=2, token="t")
IN_RECOVERY = BASE.in_recovery()


def refusal(step: object) -> ErrorCode:
    with pytest.raises(FencelogError) as caught:
        step()  # type: ignore[operator]
    return caught.value.code


def test_a_writer_adds_a_fragment_and_knows_its_own_work_again() -> None:
    changed = with_new_ensemble(BASE, former=FIRST, fragment=SECOND)
    assert changed is not None
    assert changed.fragments == (FIRST, SECOND)
    assert with_new_ensemble(changed, former=FIRST, fragment=SECOND) is None


def test_a_writer_leaves_earlier_fragments_as_others_have_made_them() -> None:
    repaired = replace(BASE, fragments=(Fragment(0, ("b1", "b2", "b9")), SECOND))
    third = Fragment(9, ("b5", "b4", "b3"))
    changed = with_new_ensemble(repaired, former=SECOND, fragment=third)
    assert changed is not None
    assert changed.fragments == (*repaired.fragments, third)


@pytest.mark.parametrize(
    "base",
    [
        IN_RECOVERY,
        BASE.closed(last_entry_id=3, length=9),
        BASE.with_ensemble(3, ("b1", "b2", "b9")),
    ],
    ids=["in recovery", "closed", "its last ensemble was changed"],
)
def test_a_writer_adds_no_fragment_to_what_is_not_its_own_any_more(base: LedgerMetadata) -> None:
    code = refusal(lambda: with_new_ensemble(base, former=FIRST, fragment=SECOND))
    assert code is ErrorCode.LEDGER_FENCED


def test_a_writer_closes_from_open_and_knows_its_own_work_again() -> None:
    closed = closed_by_writer(BASE, last_entry_id=3, length=9)
    assert closed is not None
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 3, 9)
    assert closed_by_writer(closed, last_entry_id=3, length=9) is None


@pytest.mark.parametrize(
    "base",
    [
        IN_RECOVERY,
        BASE.closed(last_entry_id=4, length=12),
        BASE.closed(last_entry_id=3, length=10),
    ],
    ids=["in recovery", "closed at another entry", "closed at another length"],
)
def test_a_writer_does_not_close_what_is_not_its_own_any_more(base: LedgerMetadata) -> None:
    code = refusal(lambda: closed_by_writer(base, last_entry_id=3, length=9))
    assert code is ErrorCode.LEDGER_FENCED


def test_a_close_below_an_acknowledged_entry_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="closed below an acknowledged entry"):
        closed_by_writer(BASE.closed(last_entry_id=2, length=6), last_entry_id=3, length=9)


def test_a_recovery_begins_once() -> None:
    assert begin_recovery(BASE) == IN_RECOVERY
    assert begin_recovery(IN_RECOVERY) is None
    assert begin_recovery(BASE.closed(last_entry_id=3, length=9)) is None


def close_recovered(base: LedgerMetadata) -> LedgerMetadata | None:
    return closed_by_recoverer(
        base, snapshot=IN_RECOVERY, fragments=(FIRST, SECOND), last_entry_id=8, length=24
    )


def test_a_recoverer_writes_ensembles_and_end_at_once() -> None:
    closed = close_recovered(IN_RECOVERY)
    assert closed == replace(
        BASE, state=LedgerState.CLOSED, fragments=(FIRST, SECOND), last_entry_id=8, length=24
    )


def test_a_recoverer_adopts_what_somebody_else_has_closed() -> None:
    assert close_recovered(IN_RECOVERY.closed(last_entry_id=2, length=6)) is None


def test_a_recoverer_does_not_close_what_was_changed_behind_its_back() -> None:
    changed = IN_RECOVERY.with_ensemble(1, ("b1", "b2", "b9"))
    assert refusal(lambda: close_recovered(changed)) is ErrorCode.RECOVERY_INCOMPLETE
