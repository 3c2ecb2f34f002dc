"""The drill's arithmetic: it has to notice everything that can go wrong with a message."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.drills.harness.account import (
    Account,
    Attempt,
    account,
    message_name,
    message_value,
)
from fencelog.api.drills.harness.report import DrillReport


def values(*names: tuple[int, int]) -> list[bytes]:
    return [message_value(client, sequence, size=20) for client, sequence in names]


ATTEMPTS = [
    Attempt(client=0, first_sequence=0, count=2, offset=0),
    Attempt(client=1, first_sequence=0, count=1, offset=2),
    Attempt(client=0, first_sequence=2, count=1, offset=None),
    Attempt(client=0, first_sequence=3, count=1, offset=3),
]
LOG = values((0, 0), (0, 1), (1, 0), (0, 3))


def test_all_acknowledged_messages_are_there_and_the_unknown_one_is_not() -> None:
    assert account(ATTEMPTS, LOG) == Account(acknowledged=4, unknown=1)
    assert account(ATTEMPTS, LOG).is_clean


def test_an_unknown_message_may_be_there() -> None:
    result = account([*ATTEMPTS[:3]], values((0, 0), (0, 1), (1, 0), (0, 2)))
    assert result == Account(acknowledged=3, unknown=1, unknown_present=1)
    assert result.is_clean


def test_a_missing_message_is_lost() -> None:
    result = account(ATTEMPTS, LOG[:3])
    assert (result.lost, result.is_clean) == (1, False)


def test_a_second_occurrence_is_a_duplicate() -> None:
    result = account(ATTEMPTS, LOG + values((1, 0)))
    assert (result.duplicated, result.lost, result.is_clean) == (1, 0, False)


def test_an_unknown_message_may_not_be_there_twice() -> None:
    log = LOG + values((0, 2), (0, 2))
    assert account(ATTEMPTS, log).duplicated == 1


def test_a_message_at_another_offset_than_the_acknowledged_one_is_out_of_order() -> None:
    result = account(ATTEMPTS, values((0, 0), (1, 0), (0, 1), (0, 3)))
    assert (result.out_of_order, result.is_clean) == (2, False)


def test_a_client_is_not_acknowledged_below_what_it_was_acknowledged_before() -> None:
    attempts = [Attempt(0, 0, 1, offset=1), Attempt(0, 1, 1, offset=0)]
    result = account(attempts, values((0, 1), (0, 0)))
    assert (result.out_of_order, result.is_clean) == (1, False)


def test_a_message_of_unknown_outcome_may_come_late() -> None:
    result = account(ATTEMPTS, [*LOG, *values((0, 2))])
    assert result == Account(acknowledged=4, unknown=1, unknown_present=1)


def test_an_acknowledgement_need_not_say_where() -> None:
    attempts = [Attempt(0, 0, 1, offset=1), Attempt(0, 1, 1, offset=-1)]
    assert account(attempts, values((5, 0), (0, 0), (0, 1))).out_of_order == 0
    assert account(attempts, values((0, 1), (0, 0))).out_of_order == 1


def test_a_message_that_was_refused_is_foreign() -> None:
    result = account(ATTEMPTS, [*LOG, *values((1, 7))])
    assert (result.foreign, result.is_clean) == (1, False)


@given(st.integers(0, 99), st.integers(0, 10**9), st.integers(0, 200))
def test_a_message_names_itself(client: int, sequence: int, size: int) -> None:
    value = message_value(client, sequence, size=size)
    assert message_name(value) == (client, sequence)
    assert len(value) >= size


def clean(**fields: Any) -> DrillReport:
    return DrillReport("drain", Account(acknowledged=1), **fields)


def test_a_drill_that_never_worked_again_is_not_clean() -> None:
    assert clean().is_clean
    assert not clean(failover_ms=None).is_clean
    assert not DrillReport("drain", Account(acknowledged=1, lost=1)).is_clean
    assert not DrillReport("drain", Account()).is_clean


def test_the_longest_interruption_counts() -> None:
    report = clean()
    for failover_ms in (12.5, 3.0):
        report.interrupted(failover_ms)
    assert report.as_json() == {
        "drill": "drain",
        "acknowledged": 1,
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "failover_ms": 12.5,
        "notes": [],
    }
    report.interrupted(None)
    report.interrupted(1.0)
    assert report.failover_ms is None


def test_a_drill_in_which_something_else_happened_is_not_clean() -> None:
    report = clean()
    report.expect(True, "it rained")
    was_clean = report.is_clean
    report.expect(False, "nothing happened")
    assert (was_clean, report.is_clean) == (True, False)
    assert report.notes == ["nothing happened"]
