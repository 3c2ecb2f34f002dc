"""What a ledger lacks by its mark, its metadata and the bookies' lists, and what restores it."""

from __future__ import annotations

import pytest

from fencelog.bookie.repair.core import CopyRange
from fencelog.bookie.replication.core import (
    Action,
    Answer,
    BookieEntries,
    ClosedFragment,
    RepairPlan,
    Step,
    Wait,
    closed_fragments,
    decommissioned,
    leaving_bookies,
    missing_ranges,
    moved,
    plan_repair,
    sources,
    urgency,
)
from fencelog.bookie.replication.store import Cause, FragmentMove, UnderReplicatedLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.metastore.port import NO_VERSION

OPEN = new_metadata(7, ensemble=("a", "b", "c"), write_quorum=3, ack_quorum=2, token="t")
GROWN = OPEN.with_ensemble(5, ("a", "d", "c"))
CLOSED = GROWN.closed(last_entry_id=9, length=1)
STRIPED = new_metadata(
    8, ensemble=("a", "b", "c", "d"), write_quorum=2, ack_quorum=2, token="t"
).closed(last_entry_id=7, length=1)
FIRST = ClosedFragment(0, 4, ("a", "b", "c"))
LAST = ClosedFragment(5, 9, ("a", "d", "c"))
AWAY = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "is away")
NOTHING = BookieEntries(Availability())
ALL = BookieEntries(Availability.of([(0, 9)]))
SOME = BookieEntries(Availability.of([(0, 2), (5, 9)]))


def marked(*causes: Cause, bookie: str = "b", **others: Cause) -> UnderReplicatedLedger:
    missing = {bookie: frozenset(causes)}
    missing |= {name: frozenset({cause}) for name, cause in others.items()}
    return UnderReplicatedLedger(7, missing, 3, NO_VERSION)


def plan(
    metadata: LedgerMetadata,
    mark: UnderReplicatedLedger,
    attempts: int = 0,
    *,
    registered: str = "abcd",
    **answers: Answer,
) -> RepairPlan:
    return plan_repair(
        metadata,
        mark,
        answers,
        registered=registered,
        attempts=attempts,
        self_repair_attempts=3,
    )


def test_closed_fragments_end_where_the_next_one_begins_or_the_ledger() -> None:
    assert list(closed_fragments(CLOSED)) == [FIRST, LAST]
    assert list(closed_fragments(GROWN)) == [FIRST]
    assert list(closed_fragments(OPEN)) == []
    assert list(closed_fragments(GROWN.in_recovery())) == []
    empty = list(closed_fragments(GROWN.closed(last_entry_id=4, length=0)))
    assert empty[1] == ClosedFragment(5, 4, ("a", "d", "c"))


def test_a_bookie_that_is_lost_and_away_is_replaced_in_each_closed_fragment() -> None:
    mark = marked(Cause.LOST_BOOKIE, bookie="a")
    assert plan(CLOSED, mark, a=AWAY) == RepairPlan(
        (Step(Action.REPLACE, FIRST, "a"), Step(Action.REPLACE, LAST, "a"))
    )
    assert plan(CLOSED, marked(Cause.LOST_BOOKIE), b=AWAY).steps == (
        Step(Action.REPLACE, FIRST, "b"),
    )
    assert plan(CLOSED, mark, a=ALL).is_done


def test_a_lost_bookie_is_back_once_it_is_registered() -> None:
    """One that answers without may be cut off from the metadata store; nobody would mark it again
    when it dies."""
    for held in (ALL, SOME, BookieEntries(Availability(), in_limbo=True)):
        found = plan(CLOSED, marked(Cause.LOST_BOOKIE), registered="acd", b=held)
        assert found.steps == (Step(Action.REPLACE, FIRST, "b"),)
    for cause in (Cause.MISSING_COPIES, Cause.DAMAGED):
        found = plan(CLOSED, marked(cause), registered="acd", b=SOME)
        assert found.steps == (Step(Action.FILL, FIRST, "b"),)


def test_a_bookie_that_is_left_time_is_told_from_one_that_is_not_asked() -> None:
    limbo = BookieEntries(Availability(), in_limbo=True)
    mark = marked(Cause.MISSING_COPIES)
    assert plan(CLOSED, mark, b=SOME).leaves_time
    assert plan(CLOSED, mark, b=limbo).leaves_time
    assert not plan(CLOSED, mark, b=AWAY).leaves_time
    assert not plan(CLOSED, mark, 3, b=SOME).leaves_time
    assert not plan(CLOSED, marked(Cause.DECOMMISSION), b=SOME).leaves_time


def test_what_is_unavailable_is_not_missing() -> None:
    for cause in (Cause.MISSING_COPIES, Cause.DAMAGED, Cause.PLACEMENT):
        for attempts in (0, 99):
            found = plan(CLOSED, marked(cause), attempts, b=AWAY)
            assert found == RepairPlan((), (Wait("unreached", "bookie b: is away"),))


def test_a_bookie_that_lacks_entries_gets_them_and_is_replaced_after_vain_attempts() -> None:
    for cause in (Cause.MISSING_COPIES, Cause.LOST_BOOKIE, Cause.DAMAGED, Cause.PLACEMENT):
        for held in (SOME, NOTHING):
            assert plan(CLOSED, marked(cause), 2, b=held).steps == (Step(Action.FILL, FIRST, "b"),)
        assert plan(CLOSED, marked(cause), 3, b=SOME).steps == (Step(Action.REPLACE, FIRST, "b"),)


def test_a_bookie_in_limbo_repairs_itself_at_first() -> None:
    limbo = BookieEntries(Availability(), in_limbo=True)
    (wait,) = plan(CLOSED, marked(Cause.LOST_BOOKIE), 2, b=limbo).waits
    assert wait.why == "self_repair"
    assert plan(CLOSED, marked(Cause.LOST_BOOKIE), 3, b=limbo).steps == (
        Step(Action.REPLACE, FIRST, "b"),
    )
    whole = BookieEntries(ALL.availability, in_limbo=True)
    assert plan(CLOSED, marked(Cause.LOST_BOOKIE), b=whole).is_done


def test_each_fragment_is_judged_by_itself_and_a_reason_to_wait_is_told_once() -> None:
    mark = marked(Cause.MISSING_COPIES, bookie="a", c=Cause.DAMAGED)
    assert plan(CLOSED, mark, a=SOME, c=AWAY) == RepairPlan(
        (Step(Action.FILL, FIRST, "a"),), (Wait("unreached", "bookie c: is away"),)
    )


def test_a_bookie_that_leaves_is_replaced_whatever_it_has() -> None:
    for answer in (ALL, SOME, AWAY):
        assert plan(CLOSED, marked(Cause.DECOMMISSION, Cause.LOST_BOOKIE), b=answer).steps == (
            Step(Action.REPLACE, FIRST, "b"),
        )


def test_damaged_and_badly_placed_copies() -> None:
    assert plan(CLOSED, marked(Cause.DAMAGED, Cause.PLACEMENT), b=ALL).steps == (
        Step(Action.VERIFY, FIRST, "b"),
    )
    assert plan(CLOSED, marked(Cause.PLACEMENT), b=ALL).steps == (Step(Action.SPREAD, FIRST, "b"),)


def test_an_open_end_is_left_alone_and_has_to_be_closed_for_a_bookie_that_leaves() -> None:
    for cause in (Cause.LOST_BOOKIE, Cause.DECOMMISSION):
        mark = marked(cause, bookie="d")
        assert plan(GROWN, mark) == RepairPlan(needs_close=True)
        assert plan(GROWN.in_recovery(), mark) == RepairPlan(needs_close=True)
        assert plan(GROWN, marked(cause), b=AWAY).needs_close is False
        assert plan(GROWN.in_recovery(), marked(cause)).needs_close


def test_a_lost_bookie_that_is_back_ends_no_writer() -> None:
    mark = marked(Cause.LOST_BOOKIE, bookie="d")
    assert plan(GROWN, mark, d=SOME).is_done
    assert plan(GROWN, mark, d=AWAY).needs_close
    assert plan(GROWN, mark, registered="abc", d=SOME).needs_close
    assert plan(GROWN, marked(Cause.DECOMMISSION, bookie="d"), d=SOME).needs_close
    both = marked(Cause.LOST_BOOKIE, bookie="a", d=Cause.LOST_BOOKIE)
    assert leaving_bookies(both, {"a": AWAY, "d": ALL}, "abcd") == {"a"}


def test_a_recovery_is_finished_before_its_ledger_counts_as_repaired() -> None:
    """Whoever began it may be gone, and nothing can be compared until the close."""
    for cause in set(Cause) - {Cause.BALANCE}:
        assert plan(GROWN.in_recovery(), marked(cause)) == RepairPlan(needs_close=True)
        assert plan(GROWN.in_recovery(), marked(cause, bookie="elsewhere")).is_done
        assert plan(GROWN, marked(cause, bookie="elsewhere")).is_done
    for cause in (Cause.MISSING_COPIES, Cause.DAMAGED, Cause.PLACEMENT):
        assert plan(GROWN, marked(cause, bookie="d")).is_done


def test_a_bookie_that_no_fragment_names_is_done() -> None:
    assert plan(CLOSED, marked(Cause.LOST_BOOKIE, bookie="z")).is_done


@pytest.mark.parametrize(
    ("bookie", "wanted"),
    [("a", [(0, 0), (3, 4), (7, 7)]), ("b", [(0, 1), (4, 5)]), ("d", [(2, 3), (6, 7)])],
)
def test_missing_entries_of_a_striped_fragment(bookie: str, wanted: list[tuple[int, int]]) -> None:
    (fragment,) = closed_fragments(STRIPED)
    assert list(missing_ranges(STRIPED, fragment, bookie, Availability())) == wanted
    held = Availability.of(wanted)
    assert list(missing_ranges(STRIPED, fragment, bookie, held)) == []


def test_missing_entries_of_a_closed_fragment_of_an_open_ledger() -> None:
    held = Availability.of([(0, 1), (4, 9)])
    assert list(missing_ranges(GROWN, FIRST, "b", held)) == [(2, 3)]


def test_the_metadata_with_the_target_is_that_of_the_change() -> None:
    step = Step(Action.REPLACE, FIRST, "b")
    wanted = moved(CLOSED, step, "e")
    assert wanted.fragments[0].bookies == ("a", "e", "c")
    assert moved(wanted, step, "e") == wanted
    with pytest.raises(FencelogError):
        moved(CLOSED, step, "c")


def test_all_sources_take_turns_and_a_lost_bookie_comes_last() -> None:
    found = list(sources(STRIPED, "e", (0, 6), last_resort="b"))
    assert found == [
        CopyRange(0, 0, ("a", "b")),
        CopyRange(1, 1, ("c", "b")),
        CopyRange(2, 2, ("c", "d")),
        CopyRange(3, 3, ("a", "d")),
        CopyRange(4, 4, ("a", "b")),
        CopyRange(5, 5, ("c", "b")),
        CopyRange(6, 6, ("d", "c")),
    ]
    assert [part.sources[0] for part in sources(CLOSED, "a", (0, 9), last_resort=None)] == [
        "c",
        "c",
    ]
    long = OPEN.closed(last_entry_id=3 * 4096 - 1, length=1)
    turns = [part.sources for part in sources(long, "e", (0, 3 * 4096 - 1), last_resort=None)]
    assert turns == [("b", "c", "a"), ("c", "a", "b"), ("a", "b", "c")]


def test_the_most_endangered_ledgers_come_first() -> None:
    two = marked(Cause.LOST_BOOKIE, c=Cause.MISSING_COPIES)
    one = marked(Cause.LOST_BOOKIE)
    moving = marked(Cause.DECOMMISSION, c=Cause.PLACEMENT)
    assert sorted([moving, one, two], key=urgency) == [two, one, moving]


def test_only_a_bookie_that_is_to_leave_gets_no_copies() -> None:
    mark = marked(Cause.DECOMMISSION, Cause.LOST_BOOKIE, c=Cause.LOST_BOOKIE)
    assert decommissioned(mark) == {"b"}
    assert decommissioned(marked(Cause.MISSING_COPIES)) == set()


def to_move(*moves: FragmentMove, **others: Cause) -> UnderReplicatedLedger:
    missing = {move.bookie_id: frozenset({Cause.BALANCE}) for move in moves}
    missing |= {name: frozenset({cause}) for name, cause in others.items()}
    return UnderReplicatedLedger(7, missing, 3, NO_VERSION, moves)


def test_a_move_is_made_in_its_fragment_and_to_its_target() -> None:
    moves = (FragmentMove(0, "b", "e"), FragmentMove(5, "c", "f"))
    assert plan(CLOSED, to_move(*moves)).steps == (
        Step(Action.MOVE, FIRST, "b", "e"),
        Step(Action.MOVE, LAST, "c", "f"),
    )
    assert plan(GROWN, to_move(*moves)).steps == (Step(Action.MOVE, FIRST, "b", "e"),)


@pytest.mark.parametrize(
    "move",
    [
        FragmentMove(0, "d", "e"),
        FragmentMove(5, "b", "e"),
        FragmentMove(4, "b", "e"),
        FragmentMove(0, "b", "c"),
        FragmentMove(0, "x", "y"),
    ],
)
def test_a_move_that_does_not_fit_the_metadata_is_none(move: FragmentMove) -> None:
    assert plan(CLOSED, to_move(move)).is_done
    assert plan(OPEN, to_move(move)).is_done


def test_what_lacks_copies_is_repaired_and_nothing_is_moved() -> None:
    mark = to_move(FragmentMove(0, "b", "e"), c=Cause.LOST_BOOKIE)
    assert not mark.is_for_balance
    assert mark.lacking == {"c": {Cause.LOST_BOOKIE}}
    found = plan(CLOSED, mark, c=AWAY)
    assert [(step.action, step.bookie_id) for step in found.steps] == [
        (Action.REPLACE, "c"),
        (Action.REPLACE, "c"),
    ]
    assert plan(CLOSED, mark, c=ALL).is_done


def test_moves_are_the_least_urgent() -> None:
    moving, placed = to_move(FragmentMove(0, "b", "e")), marked(Cause.PLACEMENT)
    assert not urgency(moving)[0]
    assert urgency(marked(Cause.MISSING_COPIES)) < urgency(placed)
    assert plan(OPEN.in_recovery(), moving).is_done
