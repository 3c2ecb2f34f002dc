"""The changes that each party may make to metadata in any state."""

from __future__ import annotations

from dataclasses import replace

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
