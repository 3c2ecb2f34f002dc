"""The changes that each party may make to metadata in any state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    new_metadata,
)
from fencelog.ledgers.ledger_metadata.transitions import (
    begin_recovery,
    closed_by_recoverer,
    closed_by_writer,
    with_new_ensemble,
    with_replaced_bookie,
)

OPEN = new_metadata(1, ensemble=("a", "b", "c"), write_quorum=3, ack_quorum=2, token="t")
FIRST = OPEN.last_fragment
SECOND = Fragment(5, ("a", "d", "c"))
GROWN = OPEN.with_ensemble(5, SECOND.bookies)
IN_RECOVERY = OPEN.in_recovery()
CLOSED = OPEN.closed(last_entry_id=4, length=40)


def test_a_new_fragment_follows_the_former_or_takes_its_place() -> None:
    assert with_new_ensemble(OPEN, previous=FIRST, fragment=SECOND) == GROWN
    third = Fragment(5, ("a", "e", "c"))
    replaced = with_new_ensemble(GROWN, previous=SECOND, fragment=third)
    assert replaced is not None
    assert replaced.fragments == (FIRST, third)


def test_a_change_knows_its_own_work() -> None:
    assert with_new_ensemble(GROWN, previous=FIRST, fragment=SECOND) is None


def test_a_change_back_to_the_former_bookies_is_a_change() -> None:
    back = with_new_ensemble(GROWN, previous=SECOND, fragment=Fragment(9, FIRST.bookies))
    assert back is not None
    assert [fragment.first_entry_id for fragment in back.fragments] == [0, 5, 9]


@pytest.mark.parametrize(
    "found",
    [
        IN_RECOVERY,
        CLOSED,
        GROWN.in_recovery(),
        OPEN.with_ensemble(5, ("a", "b", "e")),
        OPEN.with_ensemble(4, SECOND.bookies),
    ],
)
def test_a_change_is_refused_where_somebody_else_was(found: LedgerMetadata) -> None:
    with pytest.raises(FencelogError, match="another client") as caught:
        with_new_ensemble(found, previous=FIRST, fragment=SECOND)
    assert caught.value.code is ErrorCode.LEDGER_FENCED


def test_a_fragment_below_the_last_one_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="fragment at 4 after"):
        with_new_ensemble(GROWN, previous=SECOND, fragment=Fragment(4, FIRST.bookies))


def test_the_writer_closes_from_open_only() -> None:
    assert closed_by_writer(OPEN, last_entry_id=4, length=40) == CLOSED
    assert closed_by_writer(CLOSED, last_entry_id=4, length=40) is None
    for found in (
        IN_RECOVERY,
        replace(CLOSED, last_entry_id=5),
        replace(CLOSED, last_entry_id=3),  # a loss was accepted
        replace(CLOSED, length=41),
    ):
        with pytest.raises(FencelogError, match="another client") as caught:
            closed_by_writer(found, last_entry_id=4, length=40)
        assert caught.value.code is ErrorCode.LEDGER_FENCED


def test_recovery_begins_once() -> None:
    assert begin_recovery(OPEN) == IN_RECOVERY
    assert begin_recovery(IN_RECOVERY) is None
    assert begin_recovery(CLOSED) is None


def test_a_recoverer_closes_what_nobody_changed_and_adopts_what_another_closed() -> None:
    def close(found: LedgerMetadata) -> LedgerMetadata | None:
        return closed_by_recoverer(
            found,
            snapshot=IN_RECOVERY,
            fragments=(FIRST, SECOND),
            last_entry_id=6,
            length=60,
        )

    closed = close(IN_RECOVERY)
    assert closed is not None
    assert closed.fragments == (FIRST, SECOND)
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 6, 60)
    assert close(CLOSED) is None
    with pytest.raises(FencelogError) as caught:
        close(GROWN.in_recovery())
    assert caught.value.code is ErrorCode.RECOVERY_INCOMPLETE


MOVED: dict[str, Any] = {
    "first_entry_id": 0,
    "last_entry_id": 4,
    "index": 1,
    "old": "b",
    "new": "e",
}


def test_a_copied_bookie_is_replaced_and_all_else_stays() -> None:
    later = GROWN.with_ensemble(9, ("a", "f", "c"))
    for before in (GROWN, later, later.closed(last_entry_id=11, length=99)):
        after = with_replaced_bookie(before, **MOVED)
        assert after == replace(
            before, fragments=(Fragment(0, ("a", "e", "c")), *before.fragments[1:])
        )


def test_the_last_fragment_of_a_closed_ledger_may_be_empty() -> None:
    closed = GROWN.closed(last_entry_id=4, length=40)
    moved = with_replaced_bookie(
        closed, first_entry_id=5, last_entry_id=4, index=2, old="c", new="e"
    )
    assert moved is not None
    assert moved.fragments == (FIRST, Fragment(5, ("a", "d", "e")))
    assert with_replaced_bookie(CLOSED, **MOVED) is not None


def test_a_copy_elsewhere_does_not_change_when_the_ensemble_was_changed() -> None:
    changed = with_new_ensemble(OPEN, previous=FIRST, fragment=replace(SECOND, since_us=7))
    assert changed is not None
    moved = with_replaced_bookie(
        changed.closed(last_entry_id=9, length=9),
        first_entry_id=5,
        last_entry_id=9,
        index=2,
        old="c",
        new="e",
    )
    assert moved is not None
    assert (moved.last_fragment.bookies, moved.last_fragment.since_us) == (("a", "d", "e"), 7)


def test_a_replacement_knows_its_own_work() -> None:
    moved = with_replaced_bookie(GROWN, **MOVED)
    assert moved is not None
    assert with_replaced_bookie(moved, **MOVED) is None


@pytest.mark.parametrize(
    "found",
    [
        OPEN,  # the writer's
        GROWN.in_recovery(),  # the recoverer's, all of them
        OPEN.with_ensemble(4, SECOND.bookies),  # it ends before
        OPEN.with_ensemble(6, SECOND.bookies),  # it ends behind
        OPEN.closed(last_entry_id=3, length=1),
        OPEN.closed(last_entry_id=5, length=1),
        replace(GROWN, fragments=(Fragment(0, ("a", "x", "c")), SECOND)),  # another was faster
        replace(GROWN, fragments=(Fragment(0, ("b", "a", "c")), SECOND)),
        replace(GROWN, fragments=(Fragment(0, ("a", "b", "e")), SECOND)),  # "e" is in it
    ],
)
def test_a_fragment_that_is_not_the_copied_one_stays(found: LedgerMetadata) -> None:
    with pytest.raises(FencelogError, match="fragment at 0") as caught:
        with_replaced_bookie(found, **MOVED)
    assert caught.value.code is ErrorCode.METADATA_CONFLICT


@pytest.mark.parametrize(
    "step",
    [
        {"first_entry_id": 2, "last_entry_id": 4},
        {"first_entry_id": 5, "last_entry_id": 9},  # the open end
        {"index": 3},
    ],
)
def test_a_fragment_that_does_not_exist_is_not_replaced(step: dict[str, int]) -> None:
    with pytest.raises(FencelogError) as caught:
        with_replaced_bookie(GROWN, **{**MOVED, **step})
    assert caught.value.code is ErrorCode.METADATA_CONFLICT
