"""The chain of a log: the window, what is folded on both sides, and who took over from whom."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed
from fencelog.broker.partition.ledger_view_core import OpenPart, describe_ledgers


def sealed(messages: int) -> Sealed:
    return Sealed(messages, messages, 10 * messages, 7, 8)


def taken(ledger_list: LedgerList, open_messages: int, ledger_id: int, owner: str) -> LedgerList:
    open_id = ledger_list.segments[-1].ledger_id
    return ledger_list.taken_over(
        {open_id: sealed(open_messages)}, ledger_id=ledger_id, created_us=ledger_id, owner=owner
    )


def six_ledgers() -> LedgerList:
    """Ledgers 1 to 6 of ten messages each, the last one open; broker b took over with ledger 3, c
    with 5."""
    ledger_list = LedgerList().taken_over({}, ledger_id=1, created_us=1, owner="a")
    ledger_list = ledger_list.with_next(ledger_id=2, created_us=2).with_sealed(1, sealed(10))
    ledger_list = taken(ledger_list, 10, 3, "b")
    ledger_list = ledger_list.with_next(ledger_id=4, created_us=4).with_sealed(3, sealed(10))
    ledger_list = taken(ledger_list, 10, 5, "c")
    return ledger_list.with_next(ledger_id=6, created_us=6).with_sealed(5, sealed(10))


def described(limit: int = 40, before: int | None = None) -> dict[str, Any]:
    return describe_ledgers(
        six_ledgers(), OpenPart(6, 4, 50), tail_offset=55, limit=limit, before=before
    )


def shown(view: dict[str, Any]) -> list[int]:
    return [each["ledger_id"] for each in view["segments"]]


def test_the_whole_chain_has_the_open_ledger_and_all_takeovers() -> None:
    view = described()
    assert (view["ledgers"], view["older"], view["newer"]) == (6, None, None)
    assert shown(view) == [1, 2, 3, 4, 5, 6]
    assert [(each["epoch"], each["from"], each["broker_id"]) for each in view["takeovers"]] == [
        (1, None, "a"),
        (2, "a", "b"),
        (3, "b", "c"),
    ]
    last = view["segments"][-1]
    assert (last["is_closed"], last["is_written"], last["entries"], last["size"]) == (
        False,
        True,
        5,
        50,
    )
    assert (last["base_offset"], last["end_offset"]) == (50, 55)
    assert view["segments"][0]["last_publish_us"] == 7


def test_older_ledgers_are_folded() -> None:
    view = described(limit=2)
    assert shown(view) == [5, 6]
    assert view["older"] == {
        "ledgers": 4,
        "epochs": 2,
        "from_offset": 0,
        "to_offset": 40,
        "created_us": 1,
    }
    assert [each["from"] for each in view["takeovers"]] == ["b"]


def test_a_window_in_the_middle_has_both_sides() -> None:
    view = described(limit=2, before=35)
    assert shown(view) == [3, 4]
    assert (view["older"]["ledgers"], view["newer"]["ledgers"]) == (2, 2)
    assert view["newer"]["to_offset"] == 55


@pytest.mark.parametrize("before", [0, 1, 10])
def test_the_first_ledger_is_shown_if_none_begins_below(before: int) -> None:
    assert shown(described(before=before)) == [1]


def test_a_ledger_that_follows_an_unclosed_one_begins_at_the_tail() -> None:
    rolling = six_ledgers().with_next(ledger_id=7, created_us=7)
    view = describe_ledgers(rolling, OpenPart(7, -1, 0), tail_offset=55, limit=40, before=None)
    closing, last = view["segments"][-2:]
    assert (closing["is_written"], closing["entries"], closing["end_offset"]) == (
        False,
        None,
        55,
    )
    assert (last["base_offset"], last["end_offset"], last["entries"]) == (55, 55, 0)


def test_a_terminated_log_may_have_no_ledger() -> None:
    empty = LedgerList(epoch=1, terminated=True)
    view = describe_ledgers(empty, None, tail_offset=5, limit=40, before=3)
    assert (view["segments"], view["older"], view["newer"], view["takeovers"]) == (
        [],
        None,
        None,
        [],
    )
