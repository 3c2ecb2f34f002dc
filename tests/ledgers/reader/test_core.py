"""The reader's decisions, value by value: whom to ask next, what the answers mean."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.limits import MAX_SIDE_BY_SIDE_READS, MIB
from fencelog.ledgers.reader.core import (
    LacRound,
    ReadRound,
    ReadVerdict,
    expected_entry_bytes,
    is_older,
    no_such_entry,
    read_unknown,
    side_by_side,
)

TIMEOUT = FencelogError(ErrorCode.REQUEST_TIMEOUT, "no answer")
LIMBO = FencelogError(ErrorCode.LEDGER_IN_LIMBO, "may have forgotten")
NO_ENTRY = FencelogError(ErrorCode.NO_SUCH_ENTRY, "not here")
NO_LEDGER = FencelogError(ErrorCode.NO_SUCH_LEDGER, "not here")


def ledger(ensemble: str = "b1 b2 b3", write_quorum: int = 3) -> LedgerMetadata:
    return new_metadata(
        1, ensemble=tuple(ensemble.split()), write_quorum=write_quorum, ack_quorum=2, token="t"
    )


def round_of(*bookies: str, is_closed: bool = True) -> ReadRound:
    return ReadRound(bookies, is_closed)


def test_bookies_are_asked_in_order_each_once() -> None:
    read = round_of("b2", "b3", "b1")
    asked = [read.ask_next(), read.overdue()]
    had_more = read.has_more
    assert [*asked, read.ask_next()] == ["b2", "b3", "b1"]
    assert (had_more, read.has_more) == (True, False)
    assert (read.ask_next(), read.overdue()) == (None, None)


@pytest.mark.parametrize(
    ("answers", "is_closed", "verdict"),
    [
        ([], True, ReadVerdict.WAITING),
        ([None], True, ReadVerdict.FOUND),
        ([NO_ENTRY, TIMEOUT, None], True, ReadVerdict.FOUND),
        ([NO_ENTRY, NO_ENTRY], True, ReadVerdict.WAITING),
        ([NO_ENTRY, NO_LEDGER, NO_ENTRY], True, ReadVerdict.ABSENT),
        ([NO_ENTRY, NO_LEDGER, NO_ENTRY], False, ReadVerdict.UNKNOWN),
        ([NO_ENTRY, TIMEOUT, NO_ENTRY], True, ReadVerdict.UNKNOWN),
        ([NO_ENTRY, LIMBO, NO_ENTRY], True, ReadVerdict.UNKNOWN),
    ],
)
def test_what_answers_mean(
    answers: list[FencelogError | None], is_closed: bool, verdict: ReadVerdict
) -> None:
    read = round_of("b1", "b2", "b3", is_closed=is_closed)
    for bookie, answer in zip(read.candidates, answers, strict=False):
        read.answer(bookie, answer)
    assert read.verdict is verdict


def test_the_first_copy_wins() -> None:
    read = round_of("b1", "b2")
    read.answer("b2", None)
    read.answer("b1", None)
    assert read.winner == "b2"


def test_who_failed_or_was_overtaken_is_unreliable_who_said_no_is_not() -> None:
    read = round_of("b1", "b2", "b3", "b4")
    read.ask_next()
    read.overdue()  # b1 is slow
    read.answer("b2", NO_ENTRY)
    read.ask_next()
    read.answer("b3", TIMEOUT)
    read.ask_next()
    read.overdue()  # b1 still, b4 too
    assert read.unreliable == {"b1", "b3", "b4"}
    read.answer("b4", None)
    assert read.unreliable == {"b1", "b3"}


def test_the_highest_lac_is_the_best_and_one_failure_is_none() -> None:
    lacs = LacRound(ledger())
    lacs.answer(0, 4)
    assert not lacs.is_covered
    lacs.answer(1, TIMEOUT)
    lacs.answer(2, 2)
    assert (lacs.highest, lacs.is_covered, lacs.is_over) == (4, True, True)
    assert lacs.unknown() is None


def test_a_bookie_that_does_not_know_the_ledger_has_answered() -> None:
    lacs = LacRound(ledger())
    lacs.answer(0, NO_LEDGER)
    lacs.answer(1, NO_LEDGER)
    assert (lacs.highest, lacs.is_covered, lacs.is_over) == (-1, True, False)


def test_without_any_answer_the_lac_is_unknown() -> None:
    lacs = LacRound(ledger())
    for index in range(3):
        lacs.answer(index, TIMEOUT)
    unknown = lacs.unknown()
    assert unknown is not None
    assert unknown.code is ErrorCode.READ_UNKNOWN
    assert unknown.extra["missing_bookies"] == ["b1", "b2", "b3"]


def test_with_striping_each_write_set_has_to_be_heard() -> None:
    lacs = LacRound(ledger("b1 b2 b3 b4", write_quorum=2))
    lacs.answer(0, 1)
    assert not lacs.is_covered
    lacs.answer(2, 1)
    assert lacs.is_covered


def test_as_many_entries_at_once_as_the_bytes_allow() -> None:
    assert side_by_side(entry_bytes=MIB, budget_bytes=4 * MIB) == 4
    assert side_by_side(entry_bytes=8 * MIB, budget_bytes=4 * MIB) == 1
    assert side_by_side(entry_bytes=0, budget_bytes=4 * MIB) == MAX_SIDE_BY_SIDE_READS


def test_a_large_entry_is_forgotten_bit_by_bit() -> None:
    assert expected_entry_bytes(800, 10) == 700
    assert expected_entry_bytes(800, 900) == 900


def test_what_is_older() -> None:
    first = ledger()
    second = first.with_ensemble(3, ("b1", "b4", "b3"))
    closed = second.closed(last_entry_id=4, length=5)
    moved = first.closed(last_entry_id=4, length=5)
    assert [is_older(first, m) for m in (first, second, closed)] == [False, True, True]
    assert [is_older(second, m) for m in (first, second, closed)] == [False, False, True]
    assert [is_older(closed, m) for m in (first, second, closed, moved)] == [False] * 4


def test_errors_name_the_entry_and_the_bookies() -> None:
    assert no_such_entry(3, 7).extra == {"ledger_id": 3, "entry_id": 7}
    error = read_unknown(3, "entry 7", {"b2": TIMEOUT, "b1": NO_ENTRY})
    assert error.extra["missing_bookies"] == ["b1", "b2"]
    assert "entry 7 of ledger 3" in error.detail
