"""Cursors as a section of the state: what events say, and that a snapshot says the same."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.broker.dispatch import cursor_core
from fencelog.broker.dispatch.cursor_core import (
    Cursors,
    failure_ranges,
    next_generation,
    within,
)
from fencelog.broker.ledger_list.state_core import PartitionState, decode_events, encode_events
from fencelog.ledgers.errors import ErrorCode, FencelogError


def cursors_of(*events: list[Any]) -> Cursors:
    cursors = Cursors()
    for event in events:
        cursors.apply(event)
    return cursors


BEGUN: list[Any] = ["cursor", "s", 10, 0, 0]


def test_acks_and_failures_are_remembered_until_the_acks_reach_them() -> None:
    cursor = cursors_of(
        BEGUN,
        ["failures", "s", [[11, 14, 2], [8, 12, 1]]],
        ["ack", "s", [[10, 11], [12, 13]]],
        ["failures", "s", [[12, 13, 7]]],
    ).by_id["s"]
    assert (cursor.acks.acked_to, list(cursor.acks)) == (11, [(12, 13)])
    assert cursor.failures == {11: 1, 13: 2}
    assert cursor.confirmed_to == 10


def test_a_seek_begins_anew() -> None:
    events: list[list[Any]] = [
        BEGUN,
        ["ack", "s", [[10, 20], [22, 23]]],
        ["failures", "s", [[20, 21, 1]]],
    ]
    cursor = cursors_of(*events, ["seek", "s", 5, 1]).by_id["s"]
    assert (cursor.acks.acked_to, list(cursor.acks), cursor.failures) == (5, [], {})
    assert (cursor.generation, cursor.confirmed_to) == (1, 5)
    again = cursors_of(*events, ["seek", "s", 5, 1], ["ack", "s", [[5, 9]]], ["seek", "s", 5, 1])
    assert again.by_id["s"].acks.acked_to == 9  # the same seek, said twice


def test_what_retention_took_is_counted() -> None:
    cursor = cursors_of(BEGUN, ["ack", "s", [[12, 14]]], ["trimmed", "s", 16]).by_id["s"]
    assert (cursor.acks.acked_to, cursor.lost) == (16, 4)


def test_a_cursor_that_was_dropped_hears_nothing() -> None:
    cursors = cursors_of(BEGUN, ["cursor_dropped", "s"], ["ack", "s", [[0, 9]]])
    assert cursors.by_id == {}
    cursors.apply(["cursor_dropped", "s"])
    cursors.apply(BEGUN)
    cursors.apply(["cursor", "s", 0, 0, 0])  # it is there already
    assert cursors.by_id["s"].acks.acked_to == 10


def test_a_snapshot_makes_the_same_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_core, "RANGES_AN_EVENT", 2)
    cursors = cursors_of(
        BEGUN,
        ["cursor", "t", 0, 3, 7],
        ["ack", "s", [[first, first + 1] for first in range(12, 30, 2)]],
        ["failures", "s", [[11, 12, 1], [13, 14, 1], [15, 16, 3]]],
        ["seek", "s", 9, 1],
        ["ack", "s", [[first, first + 1] for first in range(12, 30, 2)]],
        ["failures", "s", [[9, 12, 2], [29, 31, 1]]],
    )
    events = [
        event for _, data in encode_events(cursors.snapshot()) for event in decode_events(data)
    ]
    assert max(len(event[2]) for event in events if event[0] == "ack") == 2
    again = cursors_of(*events)
    assert list(again.snapshot()) == list(cursors.snapshot())
    assert again.by_id["s"].failures == cursors.by_id["s"].failures
    assert again.by_id["t"].generation == 3
    assert again.by_id["t"].lost == 7


@pytest.mark.parametrize(
    "event",
    [
        ["ack"],
        ["ack", 1, []],
        ["ack", "s", 3],
        ["ack", "s", [[1]]],
        ["seek", "s", "x", 1],
        ["cursor", "s"],
        ["failures", "s", [["a", "b", 1]]],
    ],
)
def test_an_event_that_cannot_be_is_corrupt(event: list[Any]) -> None:
    state = PartitionState([cursors_of(BEGUN)])
    with pytest.raises(FencelogError) as caught:
        state.apply(event)
    assert caught.value.code is ErrorCode.CORRUPT


def test_failures_are_told_in_ranges() -> None:
    failures = {1: 2, 2: 2, 3: 1, 5: 1}
    assert failure_ranges(failures, [1, 2, 3, 5]) == [[1, 3, 2], [3, 4, 1], [5, 6, 1]]


def test_within_goes_through_the_smaller_of_both() -> None:
    known = {3: 0, 8: 0, 5: 0}
    assert within(known, 4, 6) == [5]
    assert sorted(within(known, 4, 1_000_000_000_000)) == [5, 8]


def test_generations_grow_and_those_of_two_epochs_never_meet() -> None:
    """Whatever the other owner's cursor had, of which this one may not know."""
    for known in (0, next_generation(0, 3)):
        one = next_generation(known, 4)
        assert known < one < next_generation(one, 4) < next_generation(known, 5)
