"""The drill's arithmetic: it has to notice everything that can go wrong with a message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.drill_account import (
    Account,
    Attempt,
    DrillReport,
    account,
    message_name,
    message_value,
)


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


def test_a_clients_messages_may_not_overtake_each_other() -> None:
    result = account(ATTEMPTS, [*LOG, *values((0, 2))])
    assert (result.out_of_order, result.is_clean) == (1, False)


def test_a_message_that_was_refused_is_foreign() -> None:
    result = account(ATTEMPTS, [*LOG, *values((1, 7))])
    assert (result.foreign, result.is_clean) == (1, False)


@given(st.integers(0, 99), st.integers(0, 10**9), st.integers(0, 200))
def test_a_message_names_itself(client: int, sequence: int, size: int) -> None:
    value = message_value(client, sequence, size=size)
    assert message_name(value) == (client, sequence)
    assert len(value) >= size


def test_a_drill_that_never_recovered_is_not_clean() -> None:
    assert not DrillReport("kill-broker", Account(acknowledged=1), failover_ms=None).is_clean
    report = DrillReport("kill-broker", Account(acknowledged=1), 12.5, ["killed"])
    assert report.is_clean
    assert report.as_json() == {
        "drill": "kill-broker",
        "acknowledged": 1,
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "failover_ms": 12.5,
        "notes": ["killed"],
    }
